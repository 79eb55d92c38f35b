"""OffsetCommit: store the offsets of a group.

Behaviour
    unknown topic or partition          UNKNOWN_TOPIC_OR_PARTITION; by id UNKNOWN_TOPIC_ID; listed before the committed ones,
                                        with one row for each topic
    more than offset.metadata.max.bytes OFFSET_METADATA_TOO_LARGE; the other partitions are committed
    no generation, group Empty or new   accepted: a consumer that assigns itself its partitions
    no generation, live group           UNKNOWN_MEMBER_ID
    unknown member                      UNKNOWN_MEMBER_ID
    another generation                  ILLEGAL_GENERATION
    instance id taken by another        FENCED_INSTANCE_ID
    the leader has not assigned yet     REBALANCE_IN_PROGRESS
    a generation, but no such group     GROUP_ID_NOT_FOUND; before version 9 ILLEGAL_GENERATION

Versions
    0  no generation or member; once kept in ZooKeeper, here with the others. Kafka 0.8.1, whose clients send it, had no
       FindCoordinator, so that the offsets topic is created here as well
    1  a timestamp per partition
    2  RetentionTimeMs up to version 4 (KIP-211 took it away)
    6  leader epochs (KIP-320)
    7  static members (KIP-345)
    10 topic ids
"""

from typing import TYPE_CHECKING, Final

from ottla.broker.dispatch import handles
from ottla.coordinators import offsets
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.answer import Answer, after, gather
from ottla.protocol.errors import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker
    from ottla.metadata.image import Image

_FIRST_WITH_TOPIC_IDS: Final = 10


@handles(OffsetCommitRequest)
def offset_commit(request: OffsetCommitRequest, broker: "Broker") -> Answer[OffsetCommitResponse]:
    if request.context.version == 0:
        return after(broker.provide_internal_topic(OFFSETS_TOPIC), lambda exists: _committed(request, broker))  # noqa: ARG005
    return _committed(request, broker)


def _committed(request: OffsetCommitRequest, broker: "Broker") -> Answer[OffsetCommitResponse]:
    refused = set_aside(request, request.context.version, broker.image)
    if not request.topics:
        return OffsetCommitResponse(topics=list(refused.values()))
    answer = broker.groups.run(request.group_id, offsets.commit, request)
    if not refused:
        return answer
    return gather([answer], lambda committed: merged(refused, committed[0]))


def set_aside(
    request: OffsetCommitRequest, version: int, image: "Image"
) -> dict[bytes | str, OffsetCommitResponseTopic]:
    """Take the partitions that cannot have offsets out of `request`; returns their rows, one for each topic, by its name or,
    where that is not known, its id. Both are filled in for the partitions that remain.
    """
    by_id = version >= _FIRST_WITH_TOPIC_IDS
    code = UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION
    rows: dict[bytes | str, OffsetCommitResponseTopic] = {}
    kept: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        if known is None:
            _add_row(rows, topic, topic.partitions, code)
            continue
        topic.name, topic.topic_id = known.name, known.id
        count = len(known.partitions)
        unknown = [each for each in topic.partitions if not 0 <= each.partition_index < count]
        if unknown:
            _add_row(rows, topic, unknown, UNKNOWN_TOPIC_OR_PARTITION)
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
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
        OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code) for each in partitions
    ]


def merged(
    refused: dict[bytes | str, OffsetCommitResponseTopic], committed: OffsetCommitResponse
) -> OffsetCommitResponse:
    """Merge the rows set aside with those of the coordinator: one row for each topic, in Kafka's order."""
    rows = dict(refused)
    for topic in committed.topics:
        row = rows.setdefault(topic.name or topic.topic_id, topic)
        if row is not topic:
            row.partitions += topic.partitions
    return OffsetCommitResponse(topics=list(rows.values()))
