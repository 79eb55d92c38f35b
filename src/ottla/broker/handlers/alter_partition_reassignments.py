"""AlterPartitionReassignments: move partitions to other brokers (KIP-455). With one broker no move is possible.

Behaviour
    the present replicas          done at once
    replicas null                 NO_REASSIGNMENT_IN_PROGRESS: nothing to cancel
    other replicas                INVALID_REPLICA_ASSIGNMENT, with the reason
    unknown topic, partition      UNKNOWN_TOPIC_OR_PARTITION

Versions
    1  whether the number of replicas may change (KIP-860)
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.metadata.refusal import Refused
from ottla.metadata.topic_plans import check_replicas
from ottla.protocol.answer import Answer
from ottla.protocol.errors import NO_REASSIGNMENT_IN_PROGRESS, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@handles(AlterPartitionReassignmentsRequest)
def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, broker: Broker
) -> Answer[AlterPartitionReassignmentsResponse]:
    if not request.topics:
        return AlterPartitionReassignmentsResponse(
            error_message=""
        )  # Kafka answers the defaults, without its controller
    responses = [
        ReassignableTopicResponse(
            name=topic.name, partitions=[_reassigned(topic.name, partition, broker) for partition in topic.partitions]
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )


def _reassigned(name: str, partition: ReassignablePartition, broker: Broker) -> ReassignablePartitionResponse:
    code, message = NONE, None
    index = partition.partition_index
    try:
        topic = broker.image.topics.get(name)
        if topic is None:
            raise Refused(UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        if not 0 <= index < len(topic.partitions):
            raise Refused(UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
        if partition.replicas is None:
            raise Refused(NO_REASSIGNMENT_IN_PROGRESS, None)
        check_replicas(partition.replicas, broker.image.brokers)
    except Refused as refused:
        code, message = refused.code, refused.message
    return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)
