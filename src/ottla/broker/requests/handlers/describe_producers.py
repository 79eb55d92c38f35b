"""DescribeProducers: the idempotent producers in the state of a partition (KIP-664).

Authorization
    topic: READ   TOPIC_AUTHORIZATION_FAILED

Behaviour
    an illegal name               INVALID_TOPIC_EXCEPTION, with a text
    unknown topic                 UNKNOWN_TOPIC_OR_PARTITION, with a text; an unknown partition of a known topic without
    asked of a follower           answered; NOT_LEADER_OR_FOLLOWER without a replica
    an idle producer              is removed after producer.id.expiration.ms without a batch
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_topic
from ottla.metadata.plans.topics import check_name
from ottla.metadata.refusal import Refused
from ottla.protocol.errors import NONE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, error
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.security.operations import AclOperation


@handles(DescribeProducersRequest, rows="topics.partition_indexes")
async def describe_producers(request: DescribeProducersRequest, broker: Broker) -> DescribeProducersResponse:
    topics = []
    for topic in request.topics:
        await broker.tasks.pace()
        code, message = NONE, None
        try:
            check_name(topic.name)
            if not may_use_topic(request.context, AclOperation.READ, topic.name):
                raise Refused(TOPIC_AUTHORIZATION_FAILED, error(TOPIC_AUTHORIZATION_FAILED).message)
            if topic.name not in broker.image.topics:
                raise Refused(UNKNOWN_TOPIC_OR_PARTITION, error(UNKNOWN_TOPIC_OR_PARTITION).message)
        except Refused as refused:
            code, message = refused.code, refused.message
        partitions = [
            PartitionResponse(partition_index=index, error_code=code, error_message=message)
            if code != NONE
            else _describe(topic.name, index, broker)
            for index in topic.partition_indexes
        ]
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return DescribeProducersResponse(topics=topics)


def _describe(topic: str, index: int, broker: Broker) -> PartitionResponse:
    partition = broker.replicas.find(topic, index)
    if partition is None:
        return PartitionResponse(partition_index=index, error_code=broker.replicas.absence(topic, index))
    states = [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.transaction_start,
        )
        for producer in partition.log.producers.active()
    ]
    return PartitionResponse(partition_index=index, active_producers=states)
