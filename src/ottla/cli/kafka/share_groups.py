"""`ottla share-groups`: Kafka's kafka-share-groups, with its flags and its columns."""

from collections.abc import Sequence
from typing import Any

import click

from ottla.addresses import address_text
from ottla.cli.authorized_operations import describe_with_operations, operation_names
from ottla.cli.cluster_access import AdminConnection, CommandFailed, cluster_options, json_option
from ottla.cli.kafka.group_actions import groups_option, run, select_action, timeout_option, topics_option
from ottla.cli.kafka.offset_plan import plan_for, reset_options, show_plan
from ottla.cli.table import Column, as_objects, echo_json, echo_rows, echo_table
from ottla.client.admin.groups import GroupRequests
from ottla.client.admin.share_groups import ShareGroupDescription, ShareGroups
from ottla.client.admin.topics import Topics
from ottla.client.errors import KafkaError

_GROUP, _TOPIC, _PARTITION = Column("GROUP", 15), Column("TOPIC", 15), Column("PARTITION", 10)


class _ShareGroupsAdmin(ShareGroups, GroupRequests, Topics):
    """Subset of the admin client for this command."""


@click.command("share-groups")
@cluster_options
@click.option("--list", "list_", is_flag=True, help="List the share groups; with --state their states too.")
@click.option("--describe", is_flag=True, help="Describe groups: --offsets (default), --members or --state.")
@click.option("--delete", is_flag=True, help="Delete groups that have no members.")
@click.option("--reset-offsets", is_flag=True, help="Reset offsets of a group without members.")
@click.option("--delete-offsets", is_flag=True, help="Delete the offsets of topics of a group without members.")
@groups_option("A share group")
@click.option("--all-groups", is_flag=True, help="All share groups.")
@topics_option("--topic", "A topic")
@click.option("--all-topics", is_flag=True, help="All topics with offsets of the group.")
@click.option("--offsets", is_flag=True, help="Describe start offsets and lag.")
@click.option("--members", is_flag=True, help="Describe members and their assignments.")
@click.option(
    "--state",
    "state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,...]",
    help="Only groups in these states: Empty, Stable, Dead.",
)
@click.option("--verbose", is_flag=True, help="Show more columns.")
@reset_options
@timeout_option
@json_option
def share_groups(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """List, describe, reset and delete share groups."""
    action = _action(options)
    work = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    run(_ShareGroupsAdmin, work[action], action, bootstrap_server, command_config, options)


def _action(options: dict[str, Any]) -> str:
    """Return the action of the options, after checking their combination. Raises UsageError."""
    action = select_action(options)
    if action == "reset-offsets":
        if len(options["groups"]) != 1:
            raise click.UsageError("--reset-offsets requires exactly one --group")
        if options["dry_run"] and options["execute"]:
            raise click.UsageError("--reset-offsets requires --dry-run or --execute, not both")
        if not (options["dry_run"] or options["execute"] or options["export"]):
            raise click.UsageError("--reset-offsets requires either --dry-run or --execute")
    return action


def _groups(cluster: AdminConnection[_ShareGroupsAdmin], options: dict[str, Any]) -> list[str]:
    """Return the selected groups."""
    if not options["all_groups"]:
        return list(dict.fromkeys(options["groups"]))
    return sorted(cluster.ask(cluster.admin.list_groups(types=["share"])))


def _list(cluster: AdminConnection[_ShareGroupsAdmin], options: dict[str, Any]) -> None:
    state = options["state"]
    states = [state_name.strip().capitalize() for state_name in (state or "").split(",") if state_name.strip()]
    unknown = set(states) - {"Empty", "Stable", "Dead"}
    if unknown:
        raise click.UsageError(f"--state {', '.join(sorted(unknown))}: share groups are Empty, Stable or Dead")
    listed = cluster.ask(cluster.admin.list_groups(types=["share"], states=states))
    if state is not None:
        rows = [(name, group.state) for name, group in sorted(listed.items())]
        echo_rows((_GROUP, Column("STATE")), rows, as_json=options["as_json"])
    elif options["as_json"]:
        echo_json(sorted(listed))
    else:
        for name in sorted(listed):
            click.echo(name)


def _describe(cluster: AdminConnection[_ShareGroupsAdmin], options: dict[str, Any]) -> None:
    names = _groups(cluster, options)
    shows_state = not options["members"] and options["state"] is not None
    described = describe_with_operations(
        cluster,
        lambda include: cluster.admin.describe_share_groups(names, include_authorized_operations=include),
        include=shows_state and options["as_json"],
    ).check()
    documents = []
    for name in names:
        group = described[name]
        columns, rows = _describe_group(cluster, group, options)
        if options["as_json"]:
            objects = as_objects(columns, rows)
            if shows_state:
                objects[0]["authorized_operations"] = operation_names(group.authorized_operations)
            documents += objects
            continue
        shows_offsets = not options["members"] and options["state"] is None
        if shows_offsets and not rows:
            click.echo(f"\nShare group '{name}' has no offset information.")
        elif not shows_offsets and not group.members:
            click.echo(f"\nShare group '{name}' has no active members.", err=True)
        if rows:
            click.echo()
            echo_table(columns, rows)
    if options["as_json"]:
        echo_json(documents)


def _describe_group(
    cluster: AdminConnection[_ShareGroupsAdmin], group: ShareGroupDescription, options: dict[str, Any]
) -> tuple[Sequence[Column], list[Sequence[Any]]]:
    if options["members"]:
        return _members(group, verbose=options["verbose"])
    if options["state"] is not None:
        return _state(group, verbose=options["verbose"])
    offsets = cluster.ask(cluster.admin.list_share_group_offsets([group.group_id])).check()[group.group_id]
    columns = [_GROUP, _TOPIC, _PARTITION, Column("START-OFFSET", 13), Column("LAG")]
    rows: list[Sequence[Any]] = []
    for partition, offset in sorted(offsets.items()):
        row = [group.group_id, *partition, offset.start_offset, offset.lag]
        if options["verbose"]:
            row.insert(3, offset.leader_epoch)
        rows.append(row)
    if options["verbose"]:
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
    row: list[Any] = [group.group_id, f"{address_text(host, port)}  ({node})", group.state]
    if verbose:
        columns += [Column("GROUP-EPOCH", 12), Column("ASSIGNMENT-EPOCH", 17)]
        row += [group.group_epoch, group.assignment_epoch]
    return [*columns, Column("#MEMBERS")], [[*row, len(group.members)]]


def _delete(cluster: AdminConnection[_ShareGroupsAdmin], options: dict[str, Any]) -> None:
    names = _groups(cluster, options)
    share = cluster.ask(cluster.admin.list_groups(types=["share"]))
    results = cluster.ask(cluster.admin.delete_groups([name for name in names if name in share]))
    deleted = [name for name in names if name in results.successes]
    failed = [f"'{name}' is not a share group" for name in names if name not in share]
    failed += [f"'{name}': {error}" for name, error in results.errors.items()]
    quoted = ", ".join(f"'{name}'" for name in deleted)
    if options["as_json"]:
        echo_json({"deleted": deleted})
    elif deleted and not failed:
        click.echo(f"Deletion of requested share groups ({quoted}) was successful.")
    elif deleted:
        click.echo(f"These share groups were deleted successfully: {quoted}")
    if failed:
        raise CommandFailed(f"not deleted: {'; '.join(failed)}")


def _delete_offsets(cluster: AdminConnection[_ShareGroupsAdmin], options: dict[str, Any]) -> None:
    (group,) = options["groups"]
    results = cluster.ask(cluster.admin.delete_share_group_offsets(group, options["topics"]))
    rows = [
        (topic, "Successful" if topic not in results.errors else f"Error: {results.errors[topic]}") for topic in results
    ]
    if not options["as_json"]:
        click.echo()
    echo_rows((_TOPIC, Column("STATUS")), rows, as_json=options["as_json"])
    if results.errors:
        raise CommandFailed(f"offsets of {len(results.errors)} of {len(rows)} topics were not deleted")


def _reset(cluster: AdminConnection[_ShareGroupsAdmin], options: dict[str, Any]) -> None:
    names = _groups(cluster, options)
    offsets_of = cluster.ask(cluster.admin.list_share_group_offsets(names)).check()
    currents = {name: {place: position.start_offset for place, position in offsets_of[name].items()} for name in names}
    plan = plan_for(cluster, currents, options)
    if options["execute"]:
        for name in names:
            _check_empty(cluster, name)
        failed: list[KafkaError] = []
        for name, offsets in plan.items():
            results = cluster.ask(cluster.admin.alter_share_group_offsets(name, offsets))
            failed += results.errors.values()
            plan[name] = {partition: offset for partition, offset in offsets.items() if partition in results.successes}
        show_plan(plan, options)
        if failed:
            raise CommandFailed(str(failed[0]))
        return
    show_plan(plan, options)


def _check_empty(cluster: AdminConnection[_ShareGroupsAdmin], group: str) -> None:
    """Check that a share group has no members before a change, as Kafka's tool does; an unknown group is created later."""
    described = cluster.ask(cluster.admin.describe_share_groups([group]))
    if group in described.successes and described[group].members:
        raise CommandFailed(f"share group {group!r} has members: stop them, then reset its offsets")
    listed = cluster.ask(cluster.admin.list_groups())
    if group in listed and listed[group].type not in ("share", ""):
        raise CommandFailed(f"group {group!r} is not a share group but a {listed[group].type} group")
