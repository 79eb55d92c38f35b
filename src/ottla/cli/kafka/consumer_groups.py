"""`ottla consumer-groups`: Kafka's kafka-consumer-groups, with its flags and its columns."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from ottla.addresses import address_text
from ottla.cli.authorized_operations import describe_with_operations, operation_names
from ottla.cli.cluster_access import AdminConnection, CommandFailed, cluster_options, json_option
from ottla.cli.kafka.committed_offsets import (
    OffsetsAdmin,
    check_no_members,
    delete_offsets,
    reset_offsets,
    without_members,
)
from ottla.cli.kafka.group_actions import (
    ACTIONS,
    groups_option,
    run,
    select_action,
    shifting_options,
    timeout_option,
    topics_option,
)
from ottla.cli.kafka.offset_plan import reset_options
from ottla.cli.table import Column, as_objects, echo_json, echo_table
from ottla.client.admin.consumer_groups import ConsumerGroupDescription, GroupMember
from ottla.client.admin.groups import GroupRequests, ListedGroup
from ottla.client.groups import OffsetAndMetadata
from ottla.client.topics import LATEST, TopicPartition

_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
_TYPES = ("Consumer", "Classic")
_GROUP, _TOPIC, _PARTITION = Column("GROUP", 15), Column("TOPIC", 15), Column("PARTITION", 10)
_NO_DRY_RUN = "WARN: without --execute nothing is changed. Add --dry-run: a later version will require one of the two."


class _ConsumerGroupsAdmin(OffsetsAdmin, GroupRequests):
    """Subset of the admin client for this command."""


@click.command("consumer-groups")
@cluster_options
@click.option("--list", "list_", is_flag=True, help="List the groups; with --state and --type those too.")
@click.option("--describe", is_flag=True, help="Describe groups: --offsets (default), --members or --state.")
@click.option("--delete", is_flag=True, help="Delete groups that have no members.")
@click.option("--reset-offsets", is_flag=True, help="Reset offsets of groups without members.")
@click.option(
    "--delete-offsets", is_flag=True, help="Delete the committed offsets of topics that the group is not subscribed to."
)
@click.option("--validate-regex", metavar="REGEX", help="Regular expression (RE2) to check with the broker.")
@groups_option("A group")
@click.option("--all-groups", is_flag=True, help="All consumer groups.")
@topics_option("--topic", "A topic")
@click.option("--all-topics", is_flag=True, help="All partitions with committed offsets of the group.")
@click.option("--offsets", is_flag=True, help="Describe committed offsets and lag.")
@click.option("--members", is_flag=True, help="Describe members and their assignments.")
@click.option(
    "--state", is_flag=False, flag_value="", metavar="[STATE,...]", help="Show states, or only groups in these states."
)
@click.option(
    "--type",
    "type_",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,...]",
    help="Show types, or only groups of these types.",
)
@click.option("--verbose", is_flag=True, help="Show more columns.")
@reset_options
@shifting_options
@timeout_option
@json_option
def consumer_groups(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """List, describe, reset and delete consumer groups, classic ones and those of KIP-848."""
    action = _action(options)
    if action == "validate-regex":
        _validate(options["validate_regex"], as_json=options["as_json"])
        return
    work = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    run(_ConsumerGroupsAdmin, work[action], action, bootstrap_server, command_config, options)


def _action(options: dict[str, Any]) -> str:
    """Return the action of the options, after checking their combination. Raises UsageError."""
    action = select_action(options, (*ACTIONS, "validate-regex"))
    if action == "reset-offsets":
        if options["dry_run"] and options["execute"]:
            raise click.UsageError("--reset-offsets requires --dry-run or --execute, not both")
        if not options["dry_run"] and not options["execute"]:
            click.echo(_NO_DRY_RUN, err=True)
    return action


def _validate(pattern: str, *, as_json: bool) -> None:
    from ottla.coordinators.groups.consumer.regexes import check_regex
    from ottla.regexes import InvalidRegex

    reason = None
    try:
        check_regex(pattern)
    except InvalidRegex as error:
        reason = str(error)
    if as_json:
        echo_json({"valid": reason is None, "reason": reason})
    elif reason is None:
        click.echo(f"The regular expression `{pattern}` is valid.")
    else:
        click.echo(f"The regular expression `{pattern}` is invalid: {reason}.")
    if reason is not None:
        raise CommandFailed(f"{pattern} is not a valid RE2 regular expression")


# -- list --


def _is_consumer_group(group: ListedGroup) -> bool:
    return group.type in ("consumer", "classic", "") and group.protocol_type in ("consumer", "")


def _words(text: str | None, known: Sequence[str], option: str) -> list[str]:
    """Parse a list such as "stable, empty", ignoring case. Raises UsageError."""
    spelt = {word.lower(): word for word in known}
    words = [word.strip().lower() for word in (text or "").split(",") if word.strip()]
    unknown = [word for word in words if word not in spelt]
    if unknown:
        raise click.UsageError(f"{option} {', '.join(unknown)}: consumer groups have {', '.join(known)}")
    return [spelt[word] for word in words]


def _list(cluster: AdminConnection[_ConsumerGroupsAdmin], options: dict[str, Any]) -> None:
    states = _words(options["state"], _STATES, "--state")
    types = [word.lower() for word in _words(options["type_"], _TYPES, "--type")]
    listed = cluster.ask(cluster.admin.list_groups(states=states, types=types))
    groups = [
        group for _, group in sorted(listed.items()) if _is_consumer_group(group) and (not types or group.type in types)
    ]
    columns, rows = [Column("GROUP", 25)], [[group.group_id] for group in groups]
    for option, title in (("type_", "TYPE"), ("state", "STATE")):
        if options[option] is not None:
            columns.append(Column(title, 20))
            for row, group in zip(rows, groups, strict=True):
                row.append(group.type.capitalize() if option == "type_" else group.state)
    if options["as_json"]:
        echo_json(as_objects(columns, rows) if len(columns) > 1 else [group.group_id for group in groups])
    elif len(columns) > 1:
        echo_table(columns, rows)
    else:
        for group in groups:
            click.echo(group.group_id)


# -- describe --


def _groups(cluster: AdminConnection[_ConsumerGroupsAdmin], options: dict[str, Any]) -> list[str]:
    """Return the selected groups."""
    if not options["all_groups"]:
        return list(dict.fromkeys(options["groups"]))
    listed = cluster.ask(cluster.admin.list_groups())
    return sorted(name for name, group in listed.items() if _is_consumer_group(group))


def _describe(cluster: AdminConnection[_ConsumerGroupsAdmin], options: dict[str, Any]) -> None:
    names = _groups(cluster, options)
    shows_state = not options["members"] and options["state"] is not None
    described = describe_with_operations(
        cluster,
        lambda include: cluster.admin.describe_consumer_groups(names, include_authorized_operations=include),
        include=shows_state and options["as_json"],
    ).check()
    documents = []
    for name in names:
        group = described[name]
        if options["members"]:
            columns, rows = _members(group, verbose=options["verbose"])
        elif options["state"] is not None:
            columns, rows = _state(group, verbose=options["verbose"])
        else:
            columns, rows = _offsets(cluster, group, verbose=options["verbose"])
        if options["as_json"]:
            objects = as_objects(columns, rows)
            if shows_state:
                objects[0]["authorized_operations"] = operation_names(group.authorized_operations)
            documents += objects
            continue
        if not group.members:
            click.echo(f"\nConsumer group '{name}' has no active members.", err=True)
        if rows or options["members"]:
            click.echo()
            echo_table(columns, rows)
    if options["as_json"]:
        echo_json(documents)


def _offsets(
    cluster: AdminConnection[_ConsumerGroupsAdmin], group: ConsumerGroupDescription, *, verbose: bool
) -> tuple[Sequence[Column], list[Sequence[Any]]]:
    """Return a row for each partition with a commit or a member, with its end offset."""
    name = group.group_id
    committed = cluster.ask(cluster.admin.list_consumer_group_offsets([name])).check()[name]
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted(committed.keys() | readers.keys())
    ends = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(partitions, LATEST))).successes
    columns = [
        _GROUP,
        _TOPIC,
        _PARTITION,
        Column("CURRENT-OFFSET", 15),
        Column("LOG-END-OFFSET", 15),
        Column("LAG", 15),
        Column("CONSUMER-ID", 15),
        Column("HOST", 15),
        Column("CLIENT-ID"),
    ]
    rows: list[Sequence[Any]] = []
    for partition in partitions:
        row = [
            name,
            *partition,
            *_progress(committed.get(partition), ends[partition].offset if partition in ends else None),
        ]
        row += _reader(readers.get(partition))
        if verbose:
            commit = committed.get(partition)
            row.insert(3, commit.leader_epoch if commit is not None and commit.leader_epoch >= 0 else None)
        rows.append(row)
    # Members without partitions have a row too.
    rows += [
        [name, *[None] * (6 if verbose else 5), *_reader(member)] for member in group.members if not member.assignment
    ]
    if verbose:
        columns.insert(3, Column("LEADER-EPOCH", 15))
    return columns, rows


def _progress(committed: OffsetAndMetadata | None, end: int | None) -> list[int | None]:
    offset = None if committed is None else committed.offset
    return [offset, end, end - offset if end is not None and offset is not None else None]


def _reader(member: GroupMember | None) -> list[str | None]:
    return [None, None, None] if member is None else [member.member_id, member.host, member.client_id]


def _members(group: ConsumerGroupDescription, *, verbose: bool) -> tuple[Sequence[Column], list[Sequence[Any]]]:
    columns = [_GROUP, Column("CONSUMER-ID", 15), Column("HOST", 15)]
    static = any(member.group_instance_id is not None for member in group.members)
    if static:
        columns.insert(2, Column("GROUP-INSTANCE-ID", 17))
    columns += [Column("CLIENT-ID", 15), Column("#PARTITIONS", 15)]
    if verbose:
        columns += [
            Column("CURRENT-EPOCH", 15),
            Column("CURRENT-ASSIGNMENT", 20),
            Column("TARGET-EPOCH", 15),
            Column("TARGET-ASSIGNMENT", 20),
        ]
    rows: list[Sequence[Any]] = []
    for member in sorted(group.members, key=lambda member: -len(member.assignment)):
        row: list[Any] = [group.group_id, member.member_id, member.host, member.client_id, len(member.assignment)]
        if static:
            row.insert(2, member.group_instance_id)
        if verbose:
            row += [member.member_epoch, _assignment_text(member.assignment)]
            row += [group.assignment_epoch, _assignment_text(member.target_assignment or ())]
        rows.append(row)
    return columns, rows


def _assignment_text(partitions: Iterable[TopicPartition]) -> str | None:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return ";".join(f"{name}:{','.join(map(str, sorted(parts)))}" for name, parts in sorted(topics.items())) or None


def _state(group: ConsumerGroupDescription, *, verbose: bool) -> tuple[Sequence[Column], list[Sequence[Any]]]:
    node, host, port = group.coordinator
    columns = [
        _GROUP,
        Column("COORDINATOR (ID)", 25),
        Column("ASSIGNMENT-STRATEGY", 20),
        Column("STATE", 20),
    ]
    row: list[Any] = [group.group_id, f"{address_text(host, port)}  ({node})", group.assignor or None, group.state]
    if verbose:
        columns += [Column("GROUP-EPOCH", 15), Column("TARGET-ASSIGNMENT-EPOCH", 25)]
        row += [group.group_epoch, group.assignment_epoch]
    return [*columns, Column("#MEMBERS")], [[*row, len(group.members)]]


# -- change --


def _delete(cluster: AdminConnection[_ConsumerGroupsAdmin], options: dict[str, Any]) -> None:
    names = _groups(cluster, options)
    results = cluster.ask(cluster.admin.delete_groups(names))
    deleted = [name for name in names if name in results.successes]
    quoted = ", ".join(f"'{name}'" for name in deleted)
    if options["as_json"]:
        echo_json({"deleted": deleted})
    elif deleted and not results.errors:
        click.echo(f"Deletion of requested consumer groups ({quoted}) was successful.")
    elif deleted:
        click.echo(f"These consumer groups were deleted successfully: {quoted}")
    if results.errors:
        raise CommandFailed(f"not deleted: {'; '.join(str(error) for error in results.errors.values())}")


def _reset(cluster: AdminConnection[_ConsumerGroupsAdmin], options: dict[str, Any]) -> None:
    names = _groups(cluster, options)
    described = cluster.ask(cluster.admin.describe_consumer_groups(names))
    for error in described.errors.values():
        if error.name != "GROUP_ID_NOT_FOUND":  # such a group is created
            raise error
    groups = described.successes
    states = {name: groups[name].state if name in groups else "" for name in names}
    inactive = without_members(states)
    if inactive or not states:
        reset_offsets(cluster, inactive, options)
    check_no_members(states, "consumer")


def _delete_offsets(cluster: AdminConnection[_ConsumerGroupsAdmin], options: dict[str, Any]) -> None:
    delete_offsets(cluster, options, "--topic")
