"""ListPartitionReassignments: partitions that move to other brokers (KIP-455). With one broker the list is empty."""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.protocol.answer import Answer
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(ListPartitionReassignmentsRequest)
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest,  # noqa: ARG001  whatever is asked for, nothing moves
    broker: Broker,  # noqa: ARG001
) -> Answer[ListPartitionReassignmentsResponse]:
    return ListPartitionReassignmentsResponse(error_message=None)
