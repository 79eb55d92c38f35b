"""OffsetCommit: remember how far a group has read.

Behaviour
    unknown topic or partition          UNKNOWN_TOPIC_OR_PARTITION; by id UNKNOWN_TOPIC_ID
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
from ottla.broker.handlers.find_coordinator import provide_internal_topic
from ottla.coordinators import offsets
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.answer import Answer, Pending
from ottla.protocol.errors import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
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
        provide_internal_topic(OFFSETS_TOPIC, broker)
    refused = [refused_partitions(topic, request.context.version, broker.image) for topic in request.topics]
    if not any(refused):
        return broker.groups.run(request.group_id, offsets.commit, request)
    asked = request.topics
    request.topics = [
        without(topic, codes) for topic, codes in zip(asked, refused, strict=True) if len(codes) < len(topic.partitions)
    ]
    if not request.topics:
        return merged(asked, refused, OffsetCommitResponse())
    answer = broker.groups.run(request.group_id, offsets.commit, request)
    if not isinstance(answer, Pending):
        return merged(asked, refused, answer)
    whole = Pending[OffsetCommitResponse]()
    answer.listen(lambda response: whole.complete(merged(asked, refused, response)))
    return whole


def refused_partitions(topic: OffsetCommitRequestTopic, version: int, image: "Image") -> dict[int, int]:
    """The error of each partition (by its place in the list) that cannot have offsets. Fills in the name or the id."""
    by_id = version >= _FIRST_WITH_TOPIC_IDS
    known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    if known is None:
        return dict.fromkeys(range(len(topic.partitions)), UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION)
    topic.name, topic.topic_id = known.name, known.id
    count = len(known.partitions)
    return {
        place: UNKNOWN_TOPIC_OR_PARTITION
        for place, each in enumerate(topic.partitions)
        if not 0 <= each.partition_index < count
    }


def without(topic: OffsetCommitRequestTopic, refused: dict[int, int]) -> OffsetCommitRequestTopic:
    """The topic without its refused partitions."""
    kept = [each for place, each in enumerate(topic.partitions) if place not in refused]
    return OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=kept)


def merged(
    asked: list[OffsetCommitRequestTopic], refused: list[dict[int, int]], committed: OffsetCommitResponse
) -> OffsetCommitResponse:
    """The answer in the order of the request: what was refused here, and what the coordinator said."""
    said = iter([part.error_code for topic in committed.topics for part in topic.partitions])
    topics = []
    for topic, codes in zip(asked, refused, strict=True):
        partitions = [
            OffsetCommitResponsePartition(
                partition_index=each.partition_index, error_code=codes[place] if place in codes else next(said)
            )
            for place, each in enumerate(topic.partitions)
        ]
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return OffsetCommitResponse(topics=topics)
