"""OffsetFetch: the committed offsets of groups.

Authorization
    group: DESCRIBE   GROUP_AUTHORIZATION_FAILED
    topic: DESCRIBE   TOPIC_AUTHORIZATION_FAILED for its partitions; left out of all topics

Behaviour
    no offset, no such topic, no such group   offset -1, leader epoch -1, empty metadata, no error
    null topics                               all partitions that have an offset
    an unknown topic id                       UNKNOWN_TOPIC_ID for its partitions
    no offset, in version 0                   UNKNOWN_TOPIC_OR_PARTITION
    the coordinator cannot answer             one error for the group: on every partition before version 2, on the answer
                                              up to 7, on the group from 8 on

Versions
    0  the offsets of OffsetCommit 0, which Kafka kept in ZooKeeper, without metadata; creates the offsets topic too
    2  null topics, an error of the whole
    5  leader epochs (KIP-320)
    7  require stable (KIP-447): offsets that an open transaction is about to commit
    8  several groups (KIP-709)
    9  member id and epoch (KIP-848)
    10 topic ids
"""

from typing import TYPE_CHECKING, Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group, may_use_topic, split_topics
from ottla.coordinators import offsets
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable

if TYPE_CHECKING:
    from ottla.metadata.image import Image

_FIRST_WITH_TOP_LEVEL_ERROR: Final = 2
_FIRST_WITH_GROUPS: Final = 8
_FIRST_WITH_TOPIC_IDS: Final = 10


@handles(OffsetFetchRequest, rows=("groups.topics.partition_indexes", "topics.partition_indexes"))
async def offset_fetch(request: OffsetFetchRequest, broker: Broker) -> OffsetFetchResponse:
    version = request.context.version
    if version == 0:
        await awaitable(broker.topics.provide_internal(OFFSETS_TOPIC), broker.tasks)
    if version < _FIRST_WITH_GROUPS:
        group = OffsetFetchRequestGroup(group_id=request.group_id, topics=_as_topics(request))
        return _single(request, await _fetch(group, request, broker))
    image = broker.image
    asked = [group.topics for group in request.groups]
    by_id = version >= _FIRST_WITH_TOPIC_IDS
    if by_id:
        for group in request.groups:
            group.topics = _fill_in_names(group.topics, image)
    groups = await broker.tasks.every([_fetch(group, request, broker) for group in request.groups])
    if by_id:
        groups = [_with_ids(group, topics, image) for group, topics in zip(groups, asked, strict=True)]
    return OffsetFetchResponse(groups=groups)


async def _fetch(
    group: OffsetFetchRequestGroup, request: OffsetFetchRequest, broker: Broker
) -> OffsetFetchResponseGroup:
    context = request.context
    if not may_use_group(context, AclOperation.DESCRIBE, group.group_id):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=GROUP_AUTHORIZATION_FAILED)
    denied: list[OffsetFetchRequestTopics] = []
    if context.authorizer is not None and group.topics is not None:
        group.topics, denied = split_topics(context, AclOperation.DESCRIBE, group.topics)
    operation = offsets.fetch_stable if request.require_stable else offsets.fetch
    fetched = await awaitable(broker.groups.run(group.group_id, operation, group), broker.tasks)
    if context.authorizer is not None and fetched.error_code == NONE:
        fetched.topics = [
            topic
            for topic in fetched.topics
            if may_use_topic(context, AclOperation.DESCRIBE, topic.name, is_logged=False)
        ]
        fetched.topics += [_error_row(topic, TOPIC_AUTHORIZATION_FAILED) for topic in denied]
    return fetched


def _as_topics(request: OffsetFetchRequest) -> list[OffsetFetchRequestTopics] | None:
    if request.topics is None:
        return None
    return [
        OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in request.topics
    ]


def _single(request: OffsetFetchRequest, group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """Convert a group's row to the response of the versions for a single group."""
    if group.error_code != NONE and request.context.version < _FIRST_WITH_TOP_LEVEL_ERROR:
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=offsets.NO_OFFSET,
                        metadata="",
                        error_code=group.error_code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    is_oldest = request.context.version == 0

    def is_unknown(partition: OffsetFetchResponsePartitions) -> bool:
        return partition.error_code == NONE and partition.committed_offset == offsets.NO_OFFSET

    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata="" if is_oldest else partition.metadata,
                    error_code=UNKNOWN_TOPIC_OR_PARTITION
                    if is_oldest and is_unknown(partition)
                    else partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics, error_code=group.error_code)


def _fill_in_names(
    topics: list[OffsetFetchRequestTopics] | None, image: "Image"
) -> list[OffsetFetchRequestTopics] | None:
    """Return the requested topics that exist, with their names filled in."""
    if topics is None:
        return None
    named_topics = []
    for topic in topics:
        known = image.topics_by_id.get(topic.topic_id)
        if known is not None:
            topic.name = known.name
            named_topics.append(topic)
    return named_topics


def _with_ids(
    group: OffsetFetchResponseGroup, asked: list[OffsetFetchRequestTopics] | None, image: "Image"
) -> OffsetFetchResponseGroup:
    """Complete the response of a version with topic ids: unknown ids get their error; deleted topics are left out."""
    if group.error_code != NONE:
        return group
    if asked is None:
        group.topics = [topic for topic in group.topics if topic.name in image.topics]
        for topic in group.topics:
            topic.topic_id = image.topics[topic.name].id
        return group
    group.topics += [_error_row(topic, UNKNOWN_TOPIC_ID) for topic in asked if not topic.name]
    return group


def _error_row(topic: OffsetFetchRequestTopics, code: int) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=offsets.NO_OFFSET, metadata="", error_code=code
        )
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
