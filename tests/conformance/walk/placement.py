"""Placement of partitions in clusters of brokers, which differs between clusters unless requests give it."""

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.errors import NONE, TOPIC_ALREADY_EXISTS
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.metadata import MetadataRequest

from .side import Side

_WITHIN_S: Final = 10
_INTERVAL_S: Final = 0.02
_STABLE_S: Final = 0.5
_LEADER_RATE: Final = 0.7
Partition = tuple[int, int, int, Sequence[int], Sequence[int]]
"""Index, leader, leader epoch, replicas, and replicas in sync."""


def main_node(nodes: Sequence[int]) -> int:
    """Return the broker that leads most partitions, among them those of the internal topics."""
    return nodes[len(nodes) // 2]


def assignment(rng: random.Random, nodes: Sequence[int]) -> list[int]:
    """Draw the replicas of a partition."""
    others = list(nodes)
    rng.shuffle(others)
    if rng.random() < _LEADER_RATE:
        leader = main_node(nodes)
        others = [leader, *(node for node in others if node != leader)]
    return others


def assigned(assignments: Sequence[Sequence[int]]) -> list[CreatableReplicaAssignment]:
    """Return the assignments of the partitions of a new topic."""
    return [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
        for index, replicas in enumerate(assignments)
    ]


def new_topic(
    name: str, assignments: Sequence[Sequence[int]], configs: Sequence[CreatableTopicConfig] = ()
) -> CreatableTopic:
    """Return the description of a topic to create."""
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=assigned(assignments),
        configs=list(configs),
    )


def create_internal_topics(side: Side) -> None:
    """Create the internal topics with one partition each, which the main broker leads."""
    nodes = list(side.addresses)
    leader = main_node(nodes)
    replicas = [leader, *(node for node in nodes if node != leader)]
    configs = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    topics = [
        new_topic(name, [replicas], configs) for name in (OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC)
    ]
    answer = side.ask(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 7)
    codes = {topic["error_code"] for topic in answer["topics"]}
    assert codes <= {NONE, TOPIC_ALREADY_EXISTS}, answer


def settle(sides: Sequence[Side], prefix: str, running: Sequence[int]) -> None:
    """Wait until the running brokers know the same topics with `prefix`, and no partition is being moved; or, while a broker is
    stopped, the same partitions for some time.
    """
    is_whole = len(running) == len(sides[0].addresses)
    deadline = time.monotonic() + _WITHIN_S
    before: object = None
    since = time.monotonic()
    while time.monotonic() < deadline:
        views = [topics_of(side, prefix, node_id) for side in sides for node_id in running]
        moves = [_moves(side, prefix) for side in sides]
        if (views, moves) != before:
            before, since = (views, moves), time.monotonic()
        is_equal = all(view == views[0] for view in views) and moves[0] == moves[-1]
        if is_equal and (not any(moves) or (not is_whole and time.monotonic() - since > _STABLE_S)):
            break
        time.sleep(_INTERVAL_S)


def topics_of(side: Side, prefix: str, node_id: int) -> Mapping[str, Sequence[Partition]]:
    """Return the partitions of each topic with `prefix` that a broker knows."""
    answer = side.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12, node_id)
    return {
        topic["name"]: sorted(map(_partition, topic["partitions"]))
        for topic in answer["topics"]
        if topic["name"].startswith(prefix) and topic["error_code"] == NONE
    }


def _partition(row: Mapping[str, Any]) -> Partition:
    replicas, isr = sorted(row["replica_nodes"]), sorted(row["isr_nodes"])
    return row["partition_index"], row["leader_id"], row["leader_epoch"], replicas, isr


def _moves(side: Side, prefix: str) -> list[str]:
    answer = side.ask(ListPartitionReassignmentsRequest(topics=None, timeout_ms=10_000), 0)
    return sorted(topic["name"] for topic in answer["topics"] if topic["name"].startswith(prefix))
