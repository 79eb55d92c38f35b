"""DescribeTopicPartitions: topics and partitions, page by page (KIP-966).

Authorization
    topic: DESCRIBE   TOPIC_AUTHORIZATION_FAILED at the end; left out of all topics

Behaviour
    no topics named              all topics
    order                        by name; a cursor says where the page begins
    more than the limit          response_partition_limit (at most max.request.partition.size.limit), then a next cursor
    unknown or illegal topic     UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION
    a partition without leader   leader -1, and no error, unlike in Metadata
    a cursor with a negative partition, or at a topic that was not named
                                 INVALID_REQUEST for every topic that was named
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_topic
from ottla.metadata.image import NO_LEADER, TopicImage
from ottla.metadata.plans.topics import check_name
from ottla.metadata.refusal import Refused
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from ottla.security.operations import AclOperation, AclResourceType, authorized_operations


@handles(DescribeTopicPartitionsRequest, rows="topics", is_whole=True)
async def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, broker: Broker
) -> DescribeTopicPartitionsResponse:
    image = broker.image
    fetch_all = not request.topics
    names = sorted(image.topics) if fetch_all else sorted({topic.name for topic in request.topics})
    first = 0
    context = request.context
    if request.cursor is not None:
        if request.cursor.partition_index < 0 or not (fetch_all or request.cursor.topic_name in names):
            asked = [topic.name for topic in request.topics]  # in the order of the request, repetitions included
            failed = [DescribeTopicPartitionsResponseTopic(error_code=INVALID_REQUEST, name=name) for name in asked]
            return DescribeTopicPartitionsResponse(topics=failed)
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first = request.cursor.partition_index
    request.topics.clear()  # very many names are held once
    allowed: list[str] = []
    denied: list[str] = []
    for name in names:
        await broker.tasks.pace()
        if may_use_topic(context, AclOperation.DESCRIBE, name, is_logged=not fetch_all):
            allowed.append(name)
        elif not fetch_all:
            denied.append(name)
    del names
    most = broker.config.integer("max.request.partition.size.limit")
    left = max(1, min(most, request.response_partition_limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    cursor = None
    for name in allowed:
        await broker.tasks.pace()
        if left == 0:
            cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_unknown(name, request.context))
            continue
        end = min(len(topic.partitions), first + left)
        topics.append(_page(topic, first, end, broker, request.context))
        left -= max(0, end - first)
        if end < len(topic.partitions):
            cursor = Cursor(topic_name=name, partition_index=end)
            break
        first = 0
    topics += [
        DescribeTopicPartitionsResponseTopic(error_code=TOPIC_AUTHORIZATION_FAILED, name=name) for name in denied
    ]
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _unknown(name: str, context: RequestContext) -> DescribeTopicPartitionsResponseTopic:
    code = UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except Refused:
        code = INVALID_TOPIC_EXCEPTION
    operations = authorized_operations(context, AclResourceType.TOPIC, name)
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_authorized_operations=operations)


def _page(
    topic: TopicImage, first: int, end: int, broker: Broker, context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in range(first, end):
        placed, view = topic.partitions[index], broker.view(topic, index)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=view.leader,
                leader_epoch=placed.leader_epoch,
                replica_nodes=list(placed.replicas),
                isr_nodes=view.isr,
                eligible_leader_replicas=list(placed.elr),
                last_known_elr=[] if placed.last_known_leader == NO_LEADER else [placed.last_known_leader],
                offline_replicas=view.offline,
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=partitions,
        topic_authorized_operations=authorized_operations(context, AclResourceType.TOPIC, topic.name),
    )
