"""Rejection of the unknown and the forbidden partitions of an offset commit; the coordinator commits the others."""

from typing import Final

from ottla.broker.security.permission import may_use_topic
from ottla.metadata.image import Image
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.security.operations import AclOperation

_FIRST_WITH_TOPIC_IDS: Final = 10


def reject_unknown(
    request: OffsetCommitRequest, version: int, image: Image, context: RequestContext
) -> dict[bytes | str, OffsetCommitResponseTopic]:
    """Remove unknown partitions, and topics that the sender may not read, from `request`; returns their response rows by topic
    name, or by id for an unknown topic.

    The topics that remain in the request have both name and id filled in.
    """
    by_id = version >= _FIRST_WITH_TOPIC_IDS
    code = UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION
    rows: dict[bytes | str, OffsetCommitResponseTopic] = {}
    kept: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        name = topic.name if known is None else known.name
        if (known is not None or not by_id) and not may_use_topic(context, AclOperation.READ, name):
            _add_row(rows, topic, topic.partitions, TOPIC_AUTHORIZATION_FAILED)
            continue
        if known is None:
            _add_row(rows, topic, topic.partitions, code)
            continue
        topic.name, topic.topic_id = known.name, known.id
        count = len(known.partitions)
        unknown = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
        if unknown:
            _add_row(rows, topic, unknown, UNKNOWN_TOPIC_OR_PARTITION)
            topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
        if topic.partitions:
            kept.append(topic)
    request.topics = kept
    return rows


def _add_row(
    rows: dict[bytes | str, OffsetCommitResponseTopic],
    topic: OffsetCommitRequestTopic,
    partitions: list[OffsetCommitRequestPartition],
    code: int,
) -> None:
    row = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
    row = rows.setdefault(topic.name or topic.topic_id, row)
    row.partitions += [
        OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
        for partition in partitions
    ]


def merge_rows(
    refused: dict[bytes | str, OffsetCommitResponseTopic], committed: OffsetCommitResponse
) -> OffsetCommitResponse:
    """Merge the rows of unknown partitions with those of the coordinator: one row for each topic, in Kafka's order."""
    rows = dict(refused)
    for topic in committed.topics:
        row = rows.setdefault(topic.name or topic.topic_id, topic)
        if row is not topic:
            row.partitions += topic.partitions
    return OffsetCommitResponse(topics=list(rows.values()))
