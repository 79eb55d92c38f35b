"""Validation of positions after a change of leader (KIP-320, OffsetForLeaderEpoch).

A leader that took over without being in sync may lack the end of the log, and write other records in its place. The epoch of
the record before a position shows it: the leader returns the end of that epoch in its log.

    read:    | epoch 3 ........ | position 40            leader's log: | epoch 3 ..... 35 | epoch 5 ...
    asked:   where does epoch 3 end?   answered: 35      what was read from 35 on is gone
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.core import Core
from ottla.client.errors import KafkaError, UnsupportedVersion, error_for
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import NONE
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_OLDEST_FOR_CLIENTS: Final = 3
"""Older ones want the right to act as a broker."""


class Question(NamedTuple):
    """Request for the end of `read_epoch` in the log of the leader whose epoch is `leader_epoch`."""

    read_epoch: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The last epoch that is not newer than the requested one, and its end (exclusive); -1, -1 without such an epoch."""

    epoch: int
    offset: int


async def epoch_ends(
    core: Core, node: int, asked: Mapping[TopicPartition, Question]
) -> dict[TopicPartition, EpochEnd | KafkaError]:
    """Ask a leader; empty when its version has no answer for clients. Raises KafkaError."""
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
                ends[part] = error_for(row.error_code, f"validate the position in {part}")
            else:
                ends[part] = EpochEnd(row.leader_epoch, row.end_offset)
    return ends
