"""Validation of positions after a change of leader (KIP-320, OffsetForLeaderEpoch).

A leader elected from outside of the ISR may lack the end of the log, and write other records at these offsets. To detect that,
the consumer requests the end offset of an epoch, that of the record before its position, in the log of the new leader.

    read:    | epoch 3 ........ | position 40            leader's log: | epoch 3 ..... 35 | epoch 5 ...
    request: end of epoch 3            response: 35      the records read from 35 on are truncated
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.core import Core
from ottla.client.errors import KafkaError, Permission, UnsupportedVersion, error_for
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import NONE
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_OLDEST_FOR_CLIENTS: Final = 3
"""Oldest version for clients; earlier ones require CLUSTER_ACTION, the permission of brokers."""


class Question(NamedTuple):
    """Request for the end offset of `read_epoch` at the leader with the epoch `leader_epoch`."""

    read_epoch: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """Newest epoch up to the requested one, and its end offset (exclusive); -1, -1 without one."""

    epoch: int
    offset: int


async def epoch_ends(
    core: Core, node: int, asked: Mapping[TopicPartition, Question]
) -> dict[TopicPartition, EpochEnd | KafkaError]:
    """Request epoch ends from a leader; return an empty dict if the broker is too old. Raises KafkaError."""
    link = await core.network.ready(node)
    try:
        version = link.version(OffsetForLeaderEpochRequest)
    except UnsupportedVersion:
        return {}
    if version < _OLDEST_FOR_CLIENTS:
        return {}
    topics: dict[str, OffsetForLeaderTopic] = {}
    for part, question in asked.items():
        topics.setdefault(part.topic, OffsetForLeaderTopic(topic=part.topic)).partitions.append(
            OffsetForLeaderPartition(
                partition=part.partition,
                current_leader_epoch=question.leader_epoch,
                leader_epoch=question.read_epoch,
            )
        )
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values()))
    answer = await link.request(request, version)
    ends: dict[TopicPartition, EpochEnd | KafkaError] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            part = TopicPartition(topic.topic, row.partition)
            if row.error_code != NONE:
                ends[part] = error_for(
                    row.error_code, f"validate the position in {part}", None, Permission("Read", "topic", (part.topic,))
                )
            else:
                ends[part] = EpochEnd(row.leader_epoch, row.end_offset)
    return ends
