"""`ottla share-groups`: Kafka's kafka-share-groups, with its flags and its columns."""

from collections.abc import Sequence
from typing import Any

import click

from ottla.cli.cluster_access import Cluster, CommandFailed, cluster_options, connected, json_option
from ottla.cli.offset_plan import (
    Plan,
    Target,
    csv_lines,
    offsets_at,
    parse_topics,
    partitions_of,
    read_plan,
    within_log,
)
from ottla.cli.properties import given_of, one_action
from ottla.cli.table import Column, as_objects, echo_json, echo_table
from ottla.cli.times import timestamp_ms
from ottla.client.admin.groups import Groups
from ottla.client.admin.share_groups import ShareGroupDescription, ShareGroups
from ottla.client.admin.topics import Topics
from ottla.client.errors import KafkaError
from ottla.client.topics import EARLIEST, LATEST, TopicPartition

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_TARGETS = ("to-earliest", "to-latest", "to-datetime", "to-offset", "to-current", "from-file")
_GROUP, _TOPIC, _PARTITION = Column("GROUP", 15), Column("TOPIC", 15), Column("PARTITION", 10)


class _Part(ShareGroups, Groups, Topics):
    """What this command asks."""


@click.command("share-groups")
@cluster_options
@click.option("--list", "list_", is_flag=True, help="List the share groups; with --state their states too.")
@click.option(
    "--describe", is_flag=True, help="Describe groups: --offsets (unless told otherwise), --members, --state."
)
@click.option("--delete", is_flag=True, help="Delete groups that have no members.")
@click.option("--reset-offsets", is_flag=True, help="Let a group without members go on elsewhere.")
@click.option("--delete-offsets", is_flag=True, help="Forget what a group without members has read of topics.")
@click.option("--group", "groups", metavar="GROUP", multiple=True, help="A share group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="All share groups.")
@click.option("--topic", "topics", metavar="TOPIC[:N,M]", multiple=True, help="A topic, or some partitions of it.")
@click.option("--all-topics", is_flag=True, help="All topics that the group has offsets of.")
@click.option("--offsets", is_flag=True, help="Where the group begins to read, and how far that is behind.")
@click.option("--members", is_flag=True, help="Who shares what.")
@click.option(
    "--state", "state", is_flag=False, flag_value="", metavar="[STATE,...]", help="States: Empty, Stable, Dead."
)
@click.option("--verbose", is_flag=True, help="More columns.")
@click.option("--to-earliest", is_flag=True, help="From the first record on.")
@click.option("--to-latest", is_flag=True, help="From the end on.")
@click.option("--to-datetime", metavar="TIME", help="From the first record at or after YYYY-MM-DDTHH:mm:SS.sss on.")
@click.option("--to-offset", type=int, metavar="N", help="From this offset on, within what the log has.")
@click.option("--to-current", is_flag=True, help="From where the group is on.")
@click.option("--from-file", metavar="CSV", help="As a file says that --export has written.")
@click.option("--dry-run", is_flag=True, help="Show the plan only.")
@click.option("--execute", is_flag=True, help="Carry the plan out.")
@click.option("--export", is_flag=True, help="Print the plan as CSV.")
@click.option("--timeout", type=int, default=30_000, show_default=True, metavar="MS", help="How long to try.")
@json_option
def share_groups(bootstrap_server: str, command_config: str | None, **given: Any) -> None:
    """List, describe, reset and delete share groups."""
    action = _action(given)
    configs = {"default.api.timeout.ms": given["timeout"]}
    with connected(_Part, bootstrap_server, command_config, **configs) as cluster:
        if action == "list":
            _list(cluster, given)
        elif action == "describe":
            _describe(cluster, given)
        elif action == "delete":
            _delete(cluster, given)
        elif action == "reset-offsets":
            _reset(cluster, given)
        else:
            _delete_offsets(cluster, given)


def _action(given: dict[str, Any]) -> str:
    """Which of the actions it is. Raises UsageError when the options do not go together."""
    action = one_action(given, _ACTIONS)
    scoped = action in ("describe", "delete", "reset-offsets")
    if scoped and bool(given["groups"]) == given["all_groups"]:
        raise click.UsageError(f"--{action} wants either --group or --all-groups")
    if action == "describe" and len(given_of(given, ("offsets", "members", "state"))) > 1:
        raise click.UsageError("--describe takes one of --offsets, --members, --state")
    if action == "delete-offsets" and (len(given["groups"]) != 1 or not given["topics"]):
        raise click.UsageError("--delete-offsets wants one --group and at least one --topic")
    if action == "reset-offsets":
        if len(given_of(given, _TARGETS)) != 1:
            listed = ", ".join(f"--{each}" for each in _TARGETS)
            raise click.UsageError(f"--reset-offsets wants exactly one of {listed}")
        if given["dry_run"] == given["execute"] and not given["export"]:
            raise click.UsageError("--reset-offsets wants either --dry-run or --execute")
        if len(given_of(given, ("topic", "all-topics", "from-file"))) != 1:
            raise click.UsageError("--reset-offsets wants exactly one of --topic, --all-topics, --from-file")
    return action


def _show(columns: Sequence[Column], rows: Sequence[Sequence[Any]], *, as_json: bool) -> None:
    if as_json:
        echo_json(as_objects(columns, rows))
    else:
        echo_table(columns, rows)


def _groups(cluster: Cluster[_Part], given: dict[str, Any]) -> list[str]:
    """The groups meant."""
    if not given["all_groups"]:
        return list(dict.fromkeys(given["groups"]))
    return sorted(cluster.ask(cluster.admin.list_groups(types=["share"])))


def _list(cluster: Cluster[_Part], given: dict[str, Any]) -> None:
    state = given["state"]
    states = [each.strip().capitalize() for each in (state or "").split(",") if each.strip()]
    unknown = set(states) - {"Empty", "Stable", "Dead"}
    if unknown:
        raise click.UsageError(f"--state {', '.join(sorted(unknown))}: share groups are Empty, Stable or Dead")
    found = cluster.ask(cluster.admin.list_groups(types=["share"], states=states))
    if state is not None:
        rows = [(name, group.state) for name, group in sorted(found.items())]
        _show((_GROUP, Column("STATE")), rows, as_json=given["as_json"])
    elif given["as_json"]:
        echo_json(sorted(found))
    else:
        for name in sorted(found):
            click.echo(name)


def _describe(cluster: Cluster[_Part], given: dict[str, Any]) -> None:
    names = _groups(cluster, given)
    described = cluster.ask(cluster.admin.describe_share_groups(names)).check()
    documents = []
    for name in names:
        group = described[name]
        columns, rows = _described(cluster, group, given)
        if given["as_json"]:
            documents += as_objects(columns, rows)
            continue
        if not group.members and (given["members"] or given["state"] is not None):
            click.echo(f"\nShare group '{name}' has no active members.")
        if rows:
            click.echo()
            echo_table(columns, rows)
    if given["as_json"]:
        echo_json(documents)


def _described(
    cluster: Cluster[_Part], group: ShareGroupDescription, given: dict[str, Any]
) -> tuple[Sequence[Column], list[Sequence[Any]]]:
    if given["members"]:
        return _members(group, verbose=given["verbose"])
    if given["state"] is not None:
        return _state(group, verbose=given["verbose"])
    offsets = cluster.ask(cluster.admin.list_share_group_offsets([group.group_id])).check()[group.group_id]
    columns = [_GROUP, _TOPIC, _PARTITION, Column("START-OFFSET", 13), Column("LAG")]
    rows: list[Sequence[Any]] = []
    for partition, offset in sorted(offsets.items()):
        row = [group.group_id, *partition, offset.start_offset, offset.lag]
        if given["verbose"]:
            row.insert(3, offset.leader_epoch)
        rows.append(row)
    if given["verbose"]:
        columns.insert(3, Column("LEADER-EPOCH", 13))
    return columns, rows


def _members(group: ShareGroupDescription, *, verbose: bool) -> tuple[Sequence[Column], list[Sequence[Any]]]:
    columns = [
        _GROUP,
        Column("CONSUMER-ID", 15),
        Column("HOST", 15),
        Column("CLIENT-ID", 15),
        Column("#PARTITIONS", 12),
        Column("ASSIGNMENT"),
    ]
    rows: list[Sequence[Any]] = []
    for member in group.members:
        topics: dict[str, list[int]] = {}
        for partition in member.assignment:
            topics.setdefault(partition.topic, []).append(partition.partition)
        assigned = ";".join(f"{name}:{','.join(map(str, sorted(parts)))}" for name, parts in sorted(topics.items()))
        row: list[Any] = [group.group_id, member.member_id, member.host, member.client_id, len(member.assignment)]
        rows.append([*row, *([member.member_epoch] if verbose else []), assigned or None])
    if verbose:
        columns.insert(5, Column("MEMBER-EPOCH", 13))
    return columns, rows


def _state(group: ShareGroupDescription, *, verbose: bool) -> tuple[Sequence[Column], list[Sequence[Any]]]:
    node, host, port = group.coordinator
    columns = [_GROUP, Column("COORDINATOR (ID)", 25), Column("STATE", 15)]
    row: list[Any] = [group.group_id, f"{host}:{port}  ({node})", group.state]
    if verbose:
        columns += [Column("GROUP-EPOCH", 12), Column("ASSIGNMENT-EPOCH", 17)]
        row += [group.group_epoch, group.assignment_epoch]
    return [*columns, Column("#MEMBERS")], [[*row, len(group.members)]]


def _delete(cluster: Cluster[_Part], given: dict[str, Any]) -> None:
    names = _groups(cluster, given)
    share = cluster.ask(cluster.admin.list_groups(types=["share"]))
    results = cluster.ask(cluster.admin.delete_groups([name for name in names if name in share]))
    deleted = [name for name in names if name in results.successes]
    if given["as_json"]:
        echo_json({"deleted": deleted})
    elif deleted:
        click.echo(f"These share groups were deleted successfully: {', '.join(repr(name) for name in deleted)}")
    failed = [f"'{name}' is no share group" for name in names if name not in share]
    failed += [f"'{name}': {error}" for name, error in results.errors.items()]
    if failed:
        raise CommandFailed(f"not deleted: {'; '.join(failed)}")


def _delete_offsets(cluster: Cluster[_Part], given: dict[str, Any]) -> None:
    (group,) = given["groups"]
    results = cluster.ask(cluster.admin.delete_share_group_offsets(group, given["topics"]))
    rows = [
        (topic, "Successful" if topic not in results.errors else f"Error: {results.errors[topic]}") for topic in results
    ]
    if not given["as_json"]:
        click.echo()
    _show((_TOPIC, Column("STATUS")), rows, as_json=given["as_json"])
    if results.errors:
        raise CommandFailed(f"offsets of {len(results.errors)} of {len(rows)} topics were not deleted")


def _reset(cluster: Cluster[_Part], given: dict[str, Any]) -> None:
    names = _groups(cluster, given)
    plan = _plan(cluster, names, given)
    if given["execute"]:
        for name in names:
            _check_empty(cluster, name)
        failed: list[KafkaError] = []
        for name, offsets in plan.items():
            results = cluster.ask(cluster.admin.alter_share_group_offsets(name, offsets))
            failed += results.errors.values()
            plan[name] = {partition: offset for partition, offset in offsets.items() if partition in results.successes}
        _show_plan(plan, given)
        if failed:
            raise CommandFailed(str(failed[0]))
        return
    _show_plan(plan, given)


def _check_empty(cluster: Cluster[_Part], group: str) -> None:
    """Kafka's tool says this before it changes anything; a group that is not there yet will be made."""
    described = cluster.ask(cluster.admin.describe_share_groups([group]))
    if group in described.successes and described[group].members:
        raise CommandFailed(f"share group {group!r} has members: stop them, then reset its offsets")
    listed = cluster.ask(cluster.admin.list_groups())
    if group in listed and listed[group].type not in ("share", ""):
        raise CommandFailed(f"group {group!r} is no share group but a {listed[group].type} group")


def _plan(cluster: Cluster[_Part], groups: list[str], given: dict[str, Any]) -> Plan:
    """Where each group is to go on."""
    target = _target(given)
    if target.file is not None:
        plan = read_plan(target.file, groups)
        return {group: within_log(cluster, offsets) for group, offsets in plan.items()}
    named = parse_topics(given["topics"])
    plan = {}
    for group in groups:
        current = cluster.ask(cluster.admin.list_share_group_offsets([group])).check()[group]
        topics = dict.fromkeys(sorted({part.topic for part in current})) if given["all_topics"] else named
        partitions = partitions_of(cluster, topics)
        if target.moment is not None:
            plan[group] = offsets_at(cluster, partitions, target.moment)
        elif target.offset is not None:
            plan[group] = within_log(cluster, dict.fromkeys(partitions, target.offset))
        else:
            plan[group] = _staying(cluster, partitions, {part: found.start_offset for part, found in current.items()})
    return plan


def _target(given: dict[str, Any]) -> Target:
    if given["to_datetime"] is not None:
        return Target(moment=timestamp_ms(given["to_datetime"]))
    if given["to_offset"] is not None:
        return Target(offset=given["to_offset"])
    if given["from_file"] is not None:
        return Target(file=given["from_file"])
    if given["to_current"]:
        return Target(current=True)
    return Target(moment=EARLIEST if given["to_earliest"] else LATEST)


def _staying(
    cluster: Cluster[_Part], partitions: list[TopicPartition], current: dict[TopicPartition, int | None]
) -> dict[TopicPartition, int]:
    """Where the group is; the end of a partition that nobody has read."""
    unread = [partition for partition in partitions if current.get(partition) is None]
    ends = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(unread, LATEST))).check() if unread else {}
    found = {}
    for partition in partitions:
        offset = current.get(partition)
        found[partition] = ends[partition].offset if offset is None else offset
    return found


def _show_plan(plan: Plan, given: dict[str, Any]) -> None:
    rows = [(group, *partition, offset) for group, parts in plan.items() for partition, offset in sorted(parts.items())]
    if given["export"]:
        for line in csv_lines(plan):
            click.echo(line)
        return
    if not given["as_json"]:
        click.echo()
    _show((_GROUP, _TOPIC, _PARTITION, Column("NEW-OFFSET")), rows, as_json=given["as_json"])
