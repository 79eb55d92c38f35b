"""ListPartitionReassignments: partitions that are being moved to other brokers (KIP-455).

Authorization
    cluster: DESCRIBE   CLUSTER_AUTHORIZATION_FAILED

Behaviour
    topics null               all reassignments in progress
    partition without one     is left out, as is an unknown topic or partition
"""

from collections.abc import Iterable

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.metadata.changes.reassignment import is_reassigned, still_adding
from ottla.metadata.image import TopicImage
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, error
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from ottla.security.operations import AclOperation


@handles(ListPartitionReassignmentsRequest, response_rows="topics.partitions")
async def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, broker: Broker
) -> ListPartitionReassignmentsResponse:
    if not may_use_cluster(request.context, AclOperation.DESCRIBE):
        return _refuse(request)
    topics = broker.image.topics
    listed = []
    if request.topics is None:
        for topic in topics.values():
            await broker.tasks.pace()
            listed.append(_ongoing(topic, range(len(topic.partitions))))
    else:
        for row in request.topics:
            await broker.tasks.pace()
            if row.name in topics:
                listed.append(_ongoing(topics[row.name], row.partition_indexes))
    return ListPartitionReassignmentsResponse(
        error_message=None, topics=[topic for topic in listed if topic.partitions]
    )


def _refuse(request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """Return the error, with the requested partitions without replicas, as Kafka does."""
    code = CLUSTER_AUTHORIZATION_FAILED
    rows = [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes],
        )
        for topic in request.topics or ()
    ]
    return ListPartitionReassignmentsResponse(error_code=code, error_message=error(code).message, topics=rows)


def _ongoing(topic: TopicImage, indexes: Iterable[int]) -> OngoingTopicReassignment:
    """Return the reassignments in progress of some partitions of a topic."""
    partitions = [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(partition.replicas),
            adding_replicas=list(still_adding(partition)),
            removing_replicas=list(partition.removing),
        )
        for index in indexes
        if 0 <= index < len(topic.partitions) and is_reassigned(partition := topic.partitions[index])
    ]
    return OngoingTopicReassignment(name=topic.name, partitions=partitions)
