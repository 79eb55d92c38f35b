"""Reassignment plans: JSON format, and proposal of a plan."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cli.cluster_access import CommandFailed
from ottla.client.topics import TopicPartition


class ReplicaPlacement(NamedTuple):
    """Replicas of a partition, current or planned, the preferred leader first, and their log directories or "any"."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    log_dirs: tuple[str, ...]


def assignment_json(moves: Iterable[ReplicaPlacement], *, text: bool = False) -> Any:
    """Return a plan in the format of Kafka's tool, as an object or one line of text."""
    rows = [
        {
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "replicas": list(move.replicas),
            "log_dirs": list(move.log_dirs),
        }
        for move in moves
    ]
    document = {"version": 1, "partitions": rows}
    return json.dumps(document, separators=(",", ":")) if text else document


def proposal(
    current: Sequence[ReplicaPlacement], racks: Mapping[int, str | None], *, rack_aware: bool
) -> list[ReplicaPlacement]:
    """Propose a placement of the same partitions, with the same replication factors, on brokers (node -> rack).

    Leaders are assigned round-robin. The distance of the second replica from the first grows by one each round, so that the
    partitions of a failed broker are spread over all others (as Kafka places the replicas of a new topic). With racks, brokers
    are ordered so that neighbours are in different racks. Raises CommandFailed.
    """
    with_rack = [node for node, rack in racks.items() if rack is not None]
    if rack_aware and with_rack and len(with_rack) < len(racks):
        raise CommandFailed("some brokers have no rack: add --disable-rack-aware to ignore racks")
    nodes = _alternating(racks) if rack_aware and with_rack else sorted(racks)
    topics: dict[str, list[ReplicaPlacement]] = {}
    for move in current:
        topics.setdefault(move.partition.topic, []).append(move)
    proposed = []
    for moves in topics.values():
        factor = len(moves[0].replicas)
        if factor > len(nodes):
            raise CommandFailed(f"{moves[0].partition} has {factor} replicas, and there are {len(nodes)} brokers")
        for number, move in enumerate(moves):
            replicas = _replicas(nodes, number, factor)
            proposed.append(ReplicaPlacement(move.partition, replicas, ("any",) * factor))
    return sorted(proposed)


def _replicas(nodes: Sequence[int], number: int, factor: int) -> tuple[int, ...]:
    count = len(nodes)
    first, shift = number % count, number // count
    others = [(first + 1 + (shift + step) % (count - 1)) % count for step in range(factor - 1)] if count > 1 else []
    return tuple(nodes[index] for index in [first, *others])


def _alternating(racks: Mapping[int, str | None]) -> list[int]:
    """Order brokers by taking one of each rack in turn."""
    by_rack: dict[str | None, list[int]] = {}
    for node in sorted(racks):
        by_rack.setdefault(racks[node], []).append(node)
    rows = [by_rack[rack] for rack in sorted(by_rack, key=str)]
    return [row[turn] for turn in range(max(map(len, rows))) for row in rows if turn < len(row)]
