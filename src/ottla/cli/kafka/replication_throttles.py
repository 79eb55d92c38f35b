"""Replication throttles while replicas move (KIP-73): configs of brokers and topics, set and removed with a plan."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.cli.cluster_access import AdminConnection
from ottla.cli.kafka.reassignment import ReplicaPlacement
from ottla.client.admin.cluster import ClusterRequests
from ottla.client.admin.configs import ConfigChange, ConfigOperation, ConfigResource, Configs, ResourceType
from ottla.client.admin.replicas import Reassignment
from ottla.client.topics import TopicPartition

_BETWEEN_BROKERS: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_BETWEEN_DIRECTORIES: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_LEADERS: Final = "leader.replication.throttled.replicas"
_FOLLOWERS: Final = "follower.replication.throttled.replicas"


class ThrottleAdmin(Configs, ClusterRequests):
    """Subset of the admin client for throttles."""


def moves_to_throttle(
    current: Iterable[ReplicaPlacement],
    moves: Iterable[ReplicaPlacement],
    ongoing: Mapping[TopicPartition, Reassignment],
) -> tuple[list[ReplicaPlacement], list[ReplicaPlacement]]:
    """Return sources and targets of the moves to throttle: those of a plan, and other reassignments in progress.

    A replica that a reassignment in progress is adding is no source.
    """
    sources = {
        move.partition: tuple(
            node
            for node in move.replicas
            if move.partition not in ongoing or node not in ongoing[move.partition].adding
        )
        for move in current
    }
    targets = list(moves)
    for partition, reassignment in sorted(ongoing.items()):
        if partition not in sources:
            sources[partition] = tuple(node for node in reassignment.replicas if node not in reassignment.adding)
            kept = tuple(node for node in reassignment.replicas if node not in reassignment.removing)
            targets.append(ReplicaPlacement(partition, kept, ("any",) * len(kept)))
    return [ReplicaPlacement(partition, nodes, ()) for partition, nodes in sources.items()], targets


def set_throttles(
    cluster: AdminConnection[ThrottleAdmin],
    current: Sequence[ReplicaPlacement],
    moves: Sequence[ReplicaPlacement],
    between_brokers: int,
    directories: int,
) -> list[str]:
    """Set the limits that are not negative, in bytes per second; return lines of output."""
    if between_brokers < 0 and directories < 0:
        return []
    lines = [
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
    ]
    changes: dict[ConfigResource, list[ConfigChange]] = {}
    if between_brokers >= 0:
        now = {move.partition: move.replicas for move in current}
        nodes = {node for move in moves for node in (*move.replicas, *now[move.partition])}
        for node in sorted(nodes):
            changes[_broker(node)] = [ConfigChange(name, str(between_brokers)) for name in _BETWEEN_BROKERS]
        for topic in sorted({move.partition.topic for move in moves}):
            its = [move for move in moves if move.partition.topic == topic]
            leaders = [f"{move.partition.partition}:{node}" for move in its for node in now[move.partition]]
            followers = [
                f"{move.partition.partition}:{node}"
                for move in its
                for node in move.replicas
                if node not in now[move.partition]
            ]
            changes[ConfigResource(ResourceType.TOPIC, topic)] = [
                ConfigChange(_LEADERS, ",".join(leaders)),
                ConfigChange(_FOLLOWERS, ",".join(followers)),
            ]
        lines.append(f"The inter-broker throttle limit was set to {between_brokers} B/s")
    if directories >= 0:
        to_directories = {
            node for move in moves for node, path in zip(move.replicas, move.log_dirs, strict=True) if path != "any"
        }
        for node in sorted(to_directories):
            changes.setdefault(_broker(node), []).append(ConfigChange(_BETWEEN_DIRECTORIES, str(directories)))
        lines.append(f"The replica-alter-dir throttle limit was set to {directories} B/s")
    cluster.ask(cluster.admin.incremental_alter_configs(changes)).check()
    return lines


def clear_throttles(cluster: AdminConnection[ThrottleAdmin], moves: Iterable[ReplicaPlacement]) -> list[str]:
    """Remove all throttles; return lines of output."""
    nodes = [node.id for node in cluster.ask(cluster.admin.describe_cluster()).nodes]
    topics = sorted({move.partition.topic for move in moves})
    changes = {_broker(node): _deletions((*_BETWEEN_BROKERS, _BETWEEN_DIRECTORIES)) for node in nodes}
    changes |= {ConfigResource(ResourceType.TOPIC, topic): _deletions((_LEADERS, _FOLLOWERS)) for topic in topics}
    cluster.ask(cluster.admin.incremental_alter_configs(changes)).check()
    lines = [f"Clearing broker-level throttles on broker{'s' if len(nodes) > 1 else ''} {','.join(map(str, nodes))}"]
    if topics:
        lines.append(f"Clearing topic-level throttles on topic{'s' if len(topics) > 1 else ''} {','.join(topics)}")
    return lines


def _broker(node: int) -> ConfigResource:
    return ConfigResource(ResourceType.BROKER, str(node))


def _deletions(names: Iterable[str]) -> list[ConfigChange]:
    return [ConfigChange(name, operation=ConfigOperation.DELETE) for name in names]
