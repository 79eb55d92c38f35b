"""`ottla streams-groups`: Kafka's kafka-streams-groups, with its flags and its columns."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from ottla.addresses import address_text
from ottla.cli.cluster_access import AdminConnection, CommandFailed, cluster_options, json_option
from ottla.cli.completion import complete_topics
from ottla.cli.kafka.committed_offsets import (
    OffsetsAdmin,
    check_no_members,
    delete_offsets,
    reset_offsets,
    without_members,
)
from ottla.cli.kafka.group_actions import (
    groups_option,
    run,
    select_action,
    shifting_options,
    timeout_option,
    topics_option,
)
from ottla.cli.kafka.offset_plan import parse_topics, reset_options
from ottla.cli.table import Column, as_objects, echo_json, echo_rows, echo_table
from ottla.client.admin.groups import GroupRequests
from ottla.client.admin.streams_groups import StreamsGroupDescription, StreamsGroups, StreamsTask, StreamsTasks
from ottla.client.topics import EARLIEST, LATEST, TopicPartition

_STATES = ("NotReady", "Assigning", "Reconciling", "Stable", "Dead", "Empty")
_INTERNAL_SUFFIXES = ("-changelog", "-repartition", "-topic")
_TAKEN_BY = {
    "all-input-topics": ("reset-offsets", "delete-offsets"),
    "delete-internal-topic": ("delete", "reset-offsets"),
    "delete-all-internal-topics": ("delete", "reset-offsets"),
    "dry-run": ("reset-offsets",),
    "execute": ("reset-offsets",),
}
_GROUP, _TOPIC, _PARTITION = Column("GROUP", 15), Column("TOPIC", 15), Column("PARTITION", 10)


class _StreamsGroupsAdmin(OffsetsAdmin, StreamsGroups, GroupRequests):
    """Subset of the admin client for this command."""


@click.command("streams-groups")
@cluster_options
@click.option("--list", "list_", is_flag=True, help="List the streams groups; with --state their states too.")
@click.option("--describe", is_flag=True, help="Describe groups: --offsets (default), --members or --state.")
@click.option("--delete", is_flag=True, help="Delete groups that have no members, and internal topics that are named.")
@click.option("--reset-offsets", is_flag=True, help="Reset offsets of groups without members.")
@click.option("--delete-offsets", is_flag=True, help="Delete the committed offsets of input topics.")
@groups_option("A streams group (application.id)")
@click.option("--all-groups", is_flag=True, help="All streams groups.")
@topics_option("--input-topic", "An input topic")
@click.option(
    "--all-input-topics", "all_topics", is_flag=True, help="All partitions with committed offsets of the group."
)
@click.option(
    "--delete-internal-topic",
    "--internal-topic",
    "internal_topics",
    metavar="TOPIC",
    multiple=True,
    help="With --delete or --reset-offsets --execute: an internal topic to delete.",
    shell_complete=complete_topics,
)
@click.option(
    "--delete-all-internal-topics",
    is_flag=True,
    help="With --delete or --reset-offsets --execute: delete all internal topics of the groups.",
)
@click.option("--offsets", is_flag=True, help="Describe committed offsets and lag.")
@click.option("--members", is_flag=True, help="Describe members and their tasks.")
@click.option(
    "--state", is_flag=False, flag_value="", metavar="[STATE,...]", help="Show states, or only groups in these states."
)
@click.option("--verbose", is_flag=True, help="Show more columns.")
@reset_options
@shifting_options
@timeout_option
@json_option
def streams_groups(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """List, describe, reset and delete streams groups: Kafka Streams applications with group.protocol=streams."""
    action = _action(options)
    work = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }
    run(_StreamsGroupsAdmin, work[action], action, bootstrap_server, command_config, options)


def _action(options: dict[str, Any]) -> str:
    """Return the action of the options, after checking their combination. Raises UsageError."""
    action = select_action(options, topic="input-topic", taken_by=_TAKEN_BY)
    deletes_topics = bool(options["internal_topics"]) or options["delete_all_internal_topics"]
    if action == "reset-offsets" and deletes_topics and not options["execute"]:
        raise click.UsageError("--reset-offsets deletes internal topics with --execute only")
    if action == "reset-offsets" and options["dry_run"] == options["execute"]:
        raise click.UsageError("--reset-offsets requires either --dry-run or --execute")
    return action


def _groups(cluster: AdminConnection[_StreamsGroupsAdmin], options: dict[str, Any]) -> list[str]:
    """Return the selected groups."""
    if not options["all_groups"]:
        return list(dict.fromkeys(options["groups"]))
    return sorted(cluster.ask(cluster.admin.list_groups(types=["streams"])))


def _list(cluster: AdminConnection[_StreamsGroupsAdmin], options: dict[str, Any]) -> None:
    state = options["state"]
    known = {name.lower(): name for name in _STATES}
    words = [word.strip().lower() for word in (state or "").split(",") if word.strip()]
    unknown = [word for word in words if word not in known]
    if unknown:
        raise click.UsageError(f"--state {', '.join(unknown)}: streams groups are {', '.join(_STATES)}")
    # Brokers know the state NotReady as NOT_READY in filters, which is no name of ListGroups: the filter is applied here.
    listed = cluster.ask(cluster.admin.list_groups(types=["streams"]))
    rows = [(name, group.state) for name, group in sorted(listed.items()) if not words or group.state.lower() in words]
    if state is not None:
        echo_rows((_GROUP, Column("STATE")), rows, as_json=options["as_json"])
    elif options["as_json"]:
        echo_json([name for name, _ in rows])
    else:
        for name, _ in rows:
            click.echo(name)


def _describe(cluster: AdminConnection[_StreamsGroupsAdmin], options: dict[str, Any]) -> None:
    names = _groups(cluster, options)
    described = cluster.ask(cluster.admin.describe_streams_groups(names)).check()
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
            documents += as_objects(columns, rows)
            continue
        if not group.members:
            click.echo(f"\nStreams group '{name}' has no active members.", err=True)
        if rows:
            click.echo()
            echo_table(columns, rows)
    if options["as_json"]:
        echo_json(documents)


def _offsets(
    cluster: AdminConnection[_StreamsGroupsAdmin], group: StreamsGroupDescription, *, verbose: bool
) -> tuple[Sequence[Column], list[Sequence[Any]]]:
    """Return a row for each partition that an active task reads; the lag of one without a commit counts from its start."""
    name = group.group_id
    sizes = _input_partitions(cluster, group)
    read = sorted(
        TopicPartition(topic, number)
        for topic, (subtopology_id, count) in sizes.items()
        for task_id, number in _active_tasks(group)
        if task_id == subtopology_id and number < count
    )
    committed = cluster.ask(cluster.admin.list_consumer_group_offsets([name])).check()[name]
    ends = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(read, LATEST))).check() if read else {}
    starts = cluster.ask(cluster.admin.list_offsets(dict.fromkeys(read, EARLIEST))).check() if read else {}
    columns = [_GROUP, _TOPIC, _PARTITION]
    if verbose:
        columns += [Column("CURRENT-OFFSET", 15), Column("LEADER-EPOCH", 15), Column("LOG-END-OFFSET", 15)]
    rows: list[Sequence[Any]] = []
    for partition in read:
        commit, end = committed.get(partition), ends[partition].offset
        lag = end - (starts[partition].offset if commit is None else commit.offset)
        row: list[Any] = [name, *partition]
        if verbose:
            epoch = None if commit is None or commit.leader_epoch < 0 else commit.leader_epoch
            row += [None if commit is None else commit.offset, epoch, end]
        rows.append([*row, lag])
    return [*columns, Column("OFFSET-LAG", 15)], rows


def _input_partitions(
    cluster: AdminConnection[_StreamsGroupsAdmin], group: StreamsGroupDescription
) -> dict[str, tuple[str, int]]:
    """Return the subtopology that reads each input topic, and the topic's number of partitions."""
    known = cluster.ask(cluster.admin.list_topics())
    inputs = {}
    for subtopology in group.subtopologies:
        internal = (topic.name for topic in subtopology.repartition_source_topics)
        for name in (*subtopology.source_topics, *internal):
            if name in known:
                inputs[name] = subtopology.subtopology_id, len(known[name].leaders)
    return inputs


def _active_tasks(group: StreamsGroupDescription) -> list[StreamsTask]:
    return [task for member in group.members for task in member.assignment.active]


def _members(group: StreamsGroupDescription, *, verbose: bool) -> tuple[Sequence[Column], list[Sequence[Any]]]:
    columns = [_GROUP]
    if verbose:
        columns += [Column("TARGET-ASSIGNMENT-EPOCH", 25), Column("TOPOLOGY-EPOCH", 15)]
    columns.append(Column("MEMBER", 15))
    if verbose:
        columns += [Column("MEMBER-PROTOCOL", 15), Column("MEMBER-EPOCH", 15)]
    columns += [Column("PROCESS", 15), Column("CLIENT-ID", 15), Column("ASSIGNMENTS")]
    rows: list[Sequence[Any]] = []
    for member in sorted(group.members, key=lambda member: member.member_id):
        tasks = _tasks_text(member.assignment)
        row: list[Any] = [group.group_id]
        if verbose:
            row += [group.assignment_epoch, member.topology_epoch, member.member_id, "streams", member.member_epoch]
            tasks += _tasks_text(member.target_assignment, "TARGET-")
        else:
            row.append(member.member_id)
        rows.append([*row, member.process_id, member.client_id, tasks.strip() or None])
    return columns, rows


def _tasks_text(tasks: StreamsTasks, prefix: str = "") -> str:
    """Return tasks as Kafka's tool shows them: ACTIVE: 0:[0,1]; 1:[0]; STANDBY: ..."""
    text = ""
    for role, row in (("ACTIVE", tasks.active), ("STANDBY", tasks.standby), ("WARMUP", tasks.warmup)):
        by_subtopology: dict[str, list[int]] = {}
        for subtopology_id, number in row:
            by_subtopology.setdefault(subtopology_id, []).append(number)
        if by_subtopology:
            parts = (f"{name}:[{','.join(map(str, numbers))}]; " for name, numbers in by_subtopology.items())
            text += f"{prefix}{role}: {''.join(parts)}"
    return text


def _state(group: StreamsGroupDescription, *, verbose: bool) -> tuple[Sequence[Column], list[Sequence[Any]]]:
    node, host, port = group.coordinator
    columns = [_GROUP, Column("COORDINATOR (ID)", 25), Column("STATE", 25)]
    row: list[Any] = [group.group_id, f"{address_text(host, port)} ({node})", group.state]
    if verbose:
        columns += [Column("GROUP-EPOCH", 15), Column("TARGET-ASSIGNMENT-EPOCH", 25)]
        row += [group.group_epoch, group.assignment_epoch]
    return [*columns, Column("#MEMBERS")], [[*row, len(group.members)]]


# -- change --


def _delete(cluster: AdminConnection[_StreamsGroupsAdmin], options: dict[str, Any]) -> None:
    names = _groups(cluster, options)
    known = cluster.ask(cluster.admin.list_groups(types=["streams"]))
    described = cluster.ask(cluster.admin.describe_streams_groups([name for name in names if name in known])).check()
    internal = {name: _internal_topics(cluster, described[name], options) for name in names if name in known}
    results = cluster.ask(cluster.admin.delete_groups(list(internal)))
    deleted = [name for name in names if name in results.successes]
    topics = list(dict.fromkeys(topic for name in deleted for topic in internal[name]))
    removed = cluster.ask(cluster.admin.delete_topics(topics)) if topics else None
    quoted = ", ".join(f"'{name}'" for name in deleted)
    failed = [f"'{name}' is not a streams group" for name in names if name not in known]
    failed += [str(error) for error in results.errors.values()]
    if options["as_json"]:
        echo_json({"deleted": deleted, "topics": [] if removed is None else sorted(removed.successes)})
    elif deleted and not failed:
        click.echo(f"Deletion of requested streams groups ({quoted}) was successful.")
        if removed is not None and not removed.errors:
            cleared = ", ".join(f"'{name}'" for name in deleted if internal[name])
            click.echo(f"Deletion of associated internal topics of the streams groups ({cleared}) was successful.")
    elif deleted:
        click.echo(f"These streams groups were deleted successfully: {quoted}")
    if removed is not None:
        failed += [str(error) for error in removed.errors.values()]
    if failed:
        raise CommandFailed(f"not deleted: {'; '.join(failed)}")


def _internal_topics(
    cluster: AdminConnection[_StreamsGroupsAdmin], group: StreamsGroupDescription, options: Mapping[str, Any]
) -> list[str]:
    """Return the internal topics to delete with a group or with a reset of its offsets. Raises CommandFailed for a topic that
    is not one of its own.
    """
    own = [
        topic.name
        for subtopology in group.subtopologies
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
    ]
    if options["delete_all_internal_topics"]:
        known = cluster.ask(cluster.admin.list_topics())
        own = [name for name in own if name in known]
        for name in own:
            if not _is_named_as_internal(name, group.group_id):
                click.echo(f"topic {name} has no name of an internal topic of {group.group_id}: it is kept", err=True)
        return [name for name in own if _is_named_as_internal(name, group.group_id)]
    for name in options["internal_topics"]:
        if name not in own or not _is_named_as_internal(name, group.group_id):
            raise CommandFailed(f"topic {name} is not an internal topic of group {group.group_id}")
    return list(options["internal_topics"])


def _is_named_as_internal(topic: str, group: str) -> bool:
    """Return whether a topic has a name as Kafka Streams gives it to internal topics: others are the user's own."""
    return topic.startswith(f"{group}-") and topic.endswith(_INTERNAL_SUFFIXES)


def _reset(cluster: AdminConnection[_StreamsGroupsAdmin], options: dict[str, Any]) -> None:
    described = cluster.ask(cluster.admin.describe_streams_groups(_groups(cluster, options))).check()
    states = {name: group.state for name, group in described.items()}
    inactive = without_members(states)
    inputs = {name: _source_topics(described[name]) for name in inactive}
    _check_inputs(inputs, options)
    topics = [topic for name in inactive for topic in _internal_topics(cluster, described[name], options)]
    if inactive or not states:
        reset_offsets(cluster, inactive, options, inputs)
    if topics:
        cluster.ask(cluster.admin.delete_topics(topics)).check()
    check_no_members(states, "streams")


def _source_topics(group: StreamsGroupDescription) -> frozenset[str]:
    """Return the topics that an application reads, without its internal ones."""
    return frozenset(topic for subtopology in group.subtopologies for topic in subtopology.source_topics)


def _check_inputs(inputs: Mapping[str, Collection[str]], options: Mapping[str, Any]) -> None:
    """Check that each named topic is an input topic: of one group with --all-groups, of every group without. Raises
    CommandFailed.
    """
    enough = any if options["all_groups"] else all
    for topic in parse_topics(options["topics"], "--input-topic"):
        if inputs and not enough(topic in sources for sources in inputs.values()):
            groups = [name for name, sources in inputs.items() if topic not in sources]
            raise CommandFailed(f"topic {topic} is not an input topic of {', '.join(groups)}")


def _delete_offsets(cluster: AdminConnection[_StreamsGroupsAdmin], options: dict[str, Any]) -> None:
    inputs = None
    if options["all_topics"]:
        (name,) = options["groups"]
        inputs = _source_topics(cluster.ask(cluster.admin.describe_streams_groups([name])).check()[name])
    delete_offsets(cluster, options, "--input-topic", inputs)
