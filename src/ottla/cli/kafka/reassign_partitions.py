"""`ottla reassign-partitions`: Kafka's kafka-reassign-partitions: move replicas between brokers or log directories.

A plan is a JSON file:

    {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "/d"]}]}
"""

import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import click

from ottla.cli.cluster_access import AdminConnection, CommandFailed, cluster_options, connect, json_option
from ottla.cli.kafka.json_files import check_unique, read_rows, topic_partition_of
from ottla.cli.kafka.reassignment import ReplicaPlacement, assignment_json, proposal
from ottla.cli.kafka.replication_throttles import ThrottleAdmin, clear_throttles, moves_to_throttle, set_throttles
from ottla.cli.properties import check_options_of, one_action
from ottla.cli.table import echo_json
from ottla.client.admin.log_dirs import LogDirs, TopicPartitionReplica
from ottla.client.admin.replicas import ReplicaRequests
from ottla.client.admin.topics import TopicDescription, Topics
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import NO_REASSIGNMENT_IN_PROGRESS, REPLICA_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION

_POLL_S: Final = 0.1
_ACTIONS = ("generate", "execute", "verify", "cancel", "list")
_TAKEN_BY = {
    "topics-to-move-json-file": ("generate",),
    "broker-list": ("generate",),
    "disable-rack-aware": ("generate",),
    "reassignment-json-file": ("execute", "verify", "cancel"),
    "additional": ("execute",),
    "disallow-replication-factor-change": ("execute",),
    "throttle": ("execute",),
    "replica-alter-log-dirs-throttle": ("execute",),
    "preserve-throttles": ("verify", "cancel"),
    "timeout": ("execute", "cancel"),
}


class _ReassignmentAdmin(ThrottleAdmin, ReplicaRequests, LogDirs, Topics):
    """Subset of the admin client for this command."""


@click.command("reassign-partitions")
@cluster_options
@click.option("--generate", is_flag=True, help="Propose a plan without executing it.")
@click.option("--execute", is_flag=True, help="Execute a reassignment plan.")
@click.option("--verify", is_flag=True, help="Show the progress of a plan; remove its throttles when it is complete.")
@click.option("--cancel", is_flag=True, help="Cancel a plan in progress.")
@click.option("--list", "list_", is_flag=True, help="List reassignments in progress.")
@click.option("--reassignment-json-file", "plan_file", metavar="FILE", help="The plan.")
@click.option(
    "--topics-to-move-json-file", "topics_file", metavar="FILE", help='{"topics": [{"topic": "t"}], "version": 1}.'
)
@click.option("--broker-list", metavar="1,2", help="The brokers that a proposal may use.")
@click.option("--disable-rack-aware", is_flag=True, help="Do not spread the replicas of a proposal over racks.")
@click.option("--additional", is_flag=True, help="Execute the plan in addition to reassignments in progress.")
@click.option("--disallow-replication-factor-change", is_flag=True, help="Fail if the replication factor would change.")
@click.option("--throttle", type=int, default=-1, metavar="N", help="Bytes a second between brokers.")
@click.option(
    "--replica-alter-log-dirs-throttle", type=int, default=-1, metavar="N", help="Bytes a second between directories."
)
@click.option("--preserve-throttles", is_flag=True, help="Do not change throttles.")
@click.option("--timeout", type=int, default=10_000, show_default=True, metavar="MS", help="Timeout.")
@json_option
def reassign_partitions(bootstrap_server: str | None, command_config: str | None, **options: Any) -> None:
    """Propose, execute, verify, cancel and list partition reassignments."""
    action = one_action(_ACTIONS)
    check_options_of(action, _TAKEN_BY)
    if action in ("execute", "verify", "cancel") and options["plan_file"] is None:
        raise click.UsageError(f"--{action} requires --reassignment-json-file")
    if action == "generate" and (options["topics_file"] is None or options["broker_list"] is None):
        raise click.UsageError("--generate requires --topics-to-move-json-file and --broker-list")
    moves = read_plan(options["plan_file"]) if options["plan_file"] is not None else []
    configs: dict[str, Any] = {"default.api.timeout.ms": options["timeout"]}
    # --verify removes the throttles of a completed plan.
    changes = action in ("execute", "cancel") or (action == "verify" and not options["preserve_throttles"])
    with connect(_ReassignmentAdmin, bootstrap_server, command_config, changes=changes, **configs) as cluster:
        if action == "list":
            _list(cluster, options)
        elif action == "generate":
            _generate(cluster, options)
        elif action == "execute":
            _execute(cluster, moves, options)
        elif action == "verify":
            _verify(cluster, moves, options)
        else:
            _cancel(cluster, moves, options)


def read_plan(path: str) -> list[ReplicaPlacement]:
    """Read a plan. Raises CommandFailed for an invalid one."""
    rows = read_rows(path)
    moves = []
    for row in rows:
        partition, replicas = topic_partition_of(row, path), row.get("replicas")
        if not isinstance(replicas, list) or not replicas or not all(isinstance(node, int) for node in replicas):
            raise CommandFailed(f"{path}: {partition} requires replicas, as in [1, 2]")
        if len(set(replicas)) != len(replicas):
            raise CommandFailed(f"{path}: {partition} has a replica twice")
        log_dirs = row.get("log_dirs") or ["any"] * len(replicas)
        if len(log_dirs) != len(replicas):
            raise CommandFailed(f"{path}: {partition} has {len(replicas)} replicas and {len(log_dirs)} log_dirs")
        moves.append(ReplicaPlacement(partition, tuple(replicas), tuple(log_dirs)))
    if not moves:
        raise CommandFailed(f"{path} has no partitions")
    check_unique([move.partition for move in moves], path)
    return sorted(moves)


def _list(cluster: AdminConnection[_ReassignmentAdmin], options: dict[str, Any]) -> None:
    reassignments = cluster.ask(cluster.admin.list_partition_reassignments())
    if options["as_json"]:
        echo_json(
            [{**partition._asdict(), **reassignments[partition]._asdict()} for partition in sorted(reassignments)]
        )
        return
    if not reassignments:
        click.echo("No partition reassignments found.")
        return
    click.echo("Current partition reassignments:")
    for partition in sorted(reassignments):
        reassignment = reassignments[partition]
        coming = f" adding: {_nodes(reassignment.adding)}." if reassignment.adding else ""
        going = f" removing: {_nodes(reassignment.removing)}." if reassignment.removing else ""
        click.echo(f"{partition}: replicas: {_nodes(reassignment.replicas)}.{coming}{going}")


def _nodes(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


def _describe_topics(cluster: AdminConnection[_ReassignmentAdmin], names: Sequence[str]) -> dict[str, TopicDescription]:
    results = cluster.ask(cluster.admin.describe_topics(sorted(set(names)))).check()
    return {str(name): topic for name, topic in results.items()}


def _current(
    cluster: AdminConnection[_ReassignmentAdmin], partitions: Sequence[TopicPartition]
) -> list[ReplicaPlacement]:
    """Return the current replicas and their directories. Raises CommandFailed for a partition that does not exist."""
    topics = _describe_topics(cluster, [partition.topic for partition in partitions])
    parts = {TopicPartition(name, part.partition): part for name, topic in topics.items() for part in topic.partitions}
    missing = [partition for partition in partitions if partition not in parts]
    if missing:
        raise CommandFailed(f"{missing[0]} does not exist")
    nodes = sorted({node for partition in partitions for node in parts[partition].replicas})
    described = cluster.ask(cluster.admin.describe_log_dirs(nodes, partitions=partitions)).successes
    directories = {
        (partition, node): path
        for node, paths in described.items()
        for path, directory in paths.items()
        for partition, replica in directory.replicas.items()
        if not replica.is_future
    }
    return [
        ReplicaPlacement(
            partition,
            parts[partition].replicas,
            tuple(directories.get((partition, node), "any") for node in parts[partition].replicas),
        )
        for partition in sorted(partitions)
    ]


def _generate(cluster: AdminConnection[_ReassignmentAdmin], options: dict[str, Any]) -> None:
    try:
        brokers = [int(number) for number in options["broker_list"].split(",")]
    except ValueError:
        raise click.UsageError(f"--broker-list {options['broker_list']}: numbers, as in 1,2") from None
    if len(set(brokers)) != len(brokers):
        raise click.UsageError(f"--broker-list {options['broker_list']} names a broker twice")
    rows = read_rows(options["topics_file"], "topics")
    names = sorted(str(row.get("topic")) for row in rows)
    if len(set(names)) != len(names):
        raise CommandFailed(f"{options['topics_file']} names a topic twice")
    _check_brokers(cluster, brokers)
    racks = {node.id: node.rack for node in cluster.ask(cluster.admin.describe_cluster()).nodes if node.id in brokers}
    topics = _describe_topics(cluster, names)
    partitions = [TopicPartition(name, part.partition) for name, topic in topics.items() for part in topic.partitions]
    current = _current(cluster, partitions)
    proposed = proposal(current, racks, rack_aware=not options["disable_rack_aware"])
    if options["as_json"]:
        echo_json({"current": assignment_json(current), "proposed": assignment_json(proposed)})
        return
    click.echo(f"Current partition replica assignment\n{assignment_json(current, text=True)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{assignment_json(proposed, text=True)}")


def _check_brokers(cluster: AdminConnection[_ReassignmentAdmin], nodes: Sequence[int]) -> None:
    known = {node.id for node in cluster.ask(cluster.admin.describe_cluster()).nodes}
    unknown = sorted(set(nodes) - known)
    if unknown:
        raise CommandFailed(f"there is no broker {_nodes(unknown)}, only {_nodes(sorted(known))}")


def _execute(
    cluster: AdminConnection[_ReassignmentAdmin], moves: list[ReplicaPlacement], options: dict[str, Any]
) -> None:
    ongoing = cluster.ask(cluster.admin.list_partition_reassignments())
    if ongoing and not options["additional"]:
        raise CommandFailed("another reassignment is in progress: wait for it, cancel it, or add --additional")
    _check_brokers(cluster, [node for move in moves for node in move.replicas])
    current = _current(cluster, [move.partition for move in moves])
    if not options["as_json"]:
        click.echo(f"Current partition replica assignment\n\n{assignment_json(current, text=True)}\n")
        click.echo("Save this to use as the --reassignment-json-file option during rollback")
    throttled = moves_to_throttle(current, moves, ongoing)
    for line in set_throttles(cluster, *throttled, options["throttle"], options["replica_alter_log_dirs_throttle"]):
        if not options["as_json"]:
            click.echo(line)
    replicas_by_partition = {move.partition: move.replicas for move in moves}
    change = not options["disallow_replication_factor_change"]
    results = cluster.ask(
        cluster.admin.alter_partition_reassignments(replicas_by_partition, allow_replication_factor_change=change)
    )
    if len(results.errors) > 1:
        raise CommandFailed("\n".join(str(error) for _, error in sorted(results.errors.items())))
    results.check()
    moved = _move_directories(cluster, moves, options["timeout"])
    if options["as_json"]:
        echo_json(
            {
                "before": assignment_json(current),
                "started": [str(partition) for partition in sorted(replicas_by_partition)],
            }
        )
        return
    plural = "s" if len(replicas_by_partition) > 1 else ""
    click.echo(
        f"Successfully started partition reassignment{plural} for {','.join(map(str, sorted(replicas_by_partition)))}"
    )
    for replica, path in moved.items():
        partition = TopicPartition(replica.topic, replica.partition)
        click.echo(
            f"Successfully started moving log directory to {path} for replica {partition} with broker {replica.broker_id}"
        )


def _directories(moves: Sequence[ReplicaPlacement]) -> dict[TopicPartitionReplica, str]:
    """Return the log directories that a plan sets."""
    return {
        TopicPartitionReplica(*move.partition, node): path
        for move in moves
        for node, path in zip(move.replicas, move.log_dirs, strict=True)
        if path != "any"
    }


def _move_directories(
    cluster: AdminConnection[_ReassignmentAdmin], moves: Sequence[ReplicaPlacement], timeout_ms: int
) -> dict[TopicPartitionReplica, str]:
    """Move replicas to the log directories of a plan. Brokers create new replicas only after the reassignment has begun: wait
    for them. Raises CommandFailed after a timeout.
    """
    targets = _directories(moves)
    left = targets
    deadline = time.monotonic() + timeout_ms / 1000
    while left:
        results = cluster.ask(cluster.admin.alter_replica_log_dirs(left))
        for error in results.errors.values():
            if error.code != REPLICA_NOT_AVAILABLE:
                raise error
        left = {replica: path for replica, path in left.items() if replica in results.errors}
        if left and time.monotonic() >= deadline:
            raise CommandFailed(
                f"{len(left)} of {len(targets)} replicas were not created within {timeout_ms} ms: their log directories "
                "were not set; repeat the command with --additional"
            )
        _show_progress(f"{len(targets) - len(left)} of {len(targets)} replicas created" if left else "")
        if left:
            time.sleep(_POLL_S)
    return targets


def _show_progress(text: str) -> None:
    """Show progress in place of the one before, on a terminal only; an empty text removes it."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", err=True, nl=False)


def _verify(
    cluster: AdminConnection[_ReassignmentAdmin], moves: list[ReplicaPlacement], options: dict[str, Any]
) -> None:
    """Print the state of a plan, and remove its throttles if it is complete. Raises CommandFailed for a failed plan."""
    # Also those of other plans: they need their throttles.
    under_way = cluster.ask(cluster.admin.list_partition_reassignments())
    results = cluster.ask(cluster.admin.describe_topics({move.partition.topic for move in moves}))
    parts = {
        TopicPartition(topic.name, part.partition): part.replicas
        for topic in results.successes.values()
        for part in topic.partitions
    }
    for error in results.errors.values():
        if error.code != UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    states, lines = {}, ["Status of partition reassignment:"]
    for move in moves:
        replicas = parts.get(move.partition, ())
        if move.partition in under_way:
            states[str(move.partition)] = "in progress"
            lines.append(f"Reassignment of partition {move.partition} is still in progress.")
        elif replicas == move.replicas:
            states[str(move.partition)] = "completed"
            lines.append(f"Reassignment of partition {move.partition} is completed.")
        else:
            states[str(move.partition)] = "not as planned"
            lines.append(
                f"There is no active reassignment of partition {move.partition}, "
                f"but replica set is {_nodes(replicas)} rather than {_nodes(move.replicas)}."
            )
    moving, directory_lines = _moving(cluster, moves)
    lines += directory_lines or [""]
    done = not under_way and not moving
    if done and not options["preserve_throttles"]:
        lines += clear_throttles(cluster, [move for move in moves if move.partition in parts])
    if options["as_json"]:
        echo_json({"partitions": states, "moving_directories": moving, "done": done})
    else:
        click.echo("\n".join(lines))
    if "not as planned" in states.values():
        raise CommandFailed("some partitions differ from the plan, and no reassignment is in progress")


def _moving(
    cluster: AdminConnection[_ReassignmentAdmin], moves: Sequence[ReplicaPlacement]
) -> tuple[list[str], list[str]]:
    """Return the replicas moving between directories, and a line for each replica with a directory in the plan."""
    targets = _directories(moves)
    moving, lines = [], []
    if not targets:
        return [], []
    nodes = sorted({replica.broker_id for replica in targets})
    described = cluster.ask(cluster.admin.describe_log_dirs(nodes)).successes
    for replica, path in targets.items():
        partition = TopicPartition(replica.topic, replica.partition)
        name = f"{partition}-{replica.broker_id}"
        locations = {
            (where, directory.replicas[partition].is_future)
            for where, directory in described.get(replica.broker_id, {}).items()
            if partition in directory.replicas
        }
        if (path, True) in locations:
            moving.append(name)
            lines.append(f"Reassignment of replica {name} is still in progress.")
        elif (path, False) in locations:
            lines.append(f"Reassignment of replica {name} completed successfully.")
        elif not locations:
            lines.append(f"Partition {partition} is not found in any live log dir on broker {replica.broker_id}.")
        else:
            lines.append(f"Partition {name} is not being moved to log dir {path}.")
    return moving, lines


def _cancel(
    cluster: AdminConnection[_ReassignmentAdmin], moves: list[ReplicaPlacement], options: dict[str, Any]
) -> None:
    """Cancel the reassignments of a plan, and its moves between directories."""
    partitions = [move.partition for move in moves]
    under_way = sorted(cluster.ask(cluster.admin.list_partition_reassignments(partitions)))
    results = cluster.ask(cluster.admin.alter_partition_reassignments(dict.fromkeys(under_way)))
    for error in results.errors.values():
        if error.code != NO_REASSIGNMENT_IN_PROGRESS:
            raise error
    lines = ["None of the specified partition reassignments are active."]
    if under_way:
        plural = "s" if len(under_way) > 1 else ""
        lines = [f"Successfully cancelled partition reassignment{plural} for: {','.join(map(str, under_way))}"]
    moving, _ = _moving(cluster, moves)
    back = _current_directories(cluster, moves, moving)
    if back:
        cluster.ask(cluster.admin.alter_replica_log_dirs(back)).check()
        lines.append(f"Successfully cancelled moves of {','.join(moving)}")
    else:
        lines.append("None of the specified partition moves are active.")
    if not options["preserve_throttles"]:
        lines += clear_throttles(cluster, moves)
    if options["as_json"]:
        echo_json({"cancelled": [str(partition) for partition in under_way], "cancelled_moves": moving})
    else:
        click.echo("\n".join(lines))


def _current_directories(
    cluster: AdminConnection[_ReassignmentAdmin], moves: Sequence[ReplicaPlacement], moving: Sequence[str]
) -> dict[TopicPartitionReplica, str]:
    """Return the directories that replicas are being moved from: moving a replica to its own directory cancels the move."""
    moving_moves = [move for move in moves if any(f"{move.partition}-{node}" in moving for node in move.replicas)]
    if not moving_moves:
        return {}
    return {
        TopicPartitionReplica(*move.partition, node): path
        for move in _current(cluster, [move.partition for move in moving_moves])
        for node, path in zip(move.replicas, move.log_dirs, strict=True)
        if f"{move.partition}-{node}" in moving
    }
