"""ListPartitionReassignments: partitions on their way to other brokers (KIP-455). With one broker there are never any."""

from typing import TYPE_CHECKING

from ottla.broker.dispatch import handles
from ottla.protocol.answer import Answer
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker


@handles(ListPartitionReassignmentsRequest)
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest,  # noqa: ARG001  whatever is asked for, nothing moves
    broker: "Broker",  # noqa: ARG001
) -> Answer[ListPartitionReassignmentsResponse]:
    return ListPartitionReassignmentsResponse(error_message=None)
