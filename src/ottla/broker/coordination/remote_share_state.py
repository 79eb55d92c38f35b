"""Requests to share coordinators on other brokers: one message for each operation of the share coordinator (KIP-932)."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ottla.broker.cluster.other_brokers import OtherBrokers
from ottla.coordinators.runtime import Operation
from ottla.coordinators.share import state
from ottla.coordinators.share.state_batches import StateBatch
from ottla.protocol.errors import COORDINATOR_NOT_AVAILABLE
from ottla.protocol.messages import delete_share_group_state as deletion
from ottla.protocol.messages import initialize_share_group_state as initialization
from ottla.protocol.messages import read_share_group_state as reading
from ottla.protocol.messages import read_share_group_state_summary as summary
from ottla.protocol.messages import write_share_group_state as writing
from ottla.protocol.schema import Request
from ottla.tasks.deferred import awaitable
from ottla.tasks.scheduler import Scheduler

_PURPOSE: Final = "share state"


class _Message(NamedTuple):
    """Message of an operation.

    encode  builds the request
    decode  builds the outcome from a partition's row of the response
    failed  the outcome without a response
    """

    encode: Callable[[Any], Request[Any]]
    decode: Callable[[Any], Any]
    failed: Any


def _initialize(request: state.InitializeState) -> initialization.InitializeShareGroupStateRequest:
    partition = initialization.PartitionData(
        partition=request.partition, state_epoch=request.state_epoch, start_offset=request.start_offset
    )
    topic = initialization.InitializeStateData(topic_id=request.topic_id, partitions=[partition])
    return initialization.InitializeShareGroupStateRequest(group_id=request.group_id, topics=[topic])


def _read(request: state.ReadState) -> reading.ReadShareGroupStateRequest:
    partition = reading.PartitionData(partition=request.partition, leader_epoch=request.leader_epoch)
    topic = reading.ReadStateData(topic_id=request.topic_id, partitions=[partition])
    return reading.ReadShareGroupStateRequest(group_id=request.group_id, topics=[topic])


def _write(request: state.WriteState) -> writing.WriteShareGroupStateRequest:
    batches = [
        writing.StateBatch(first_offset=first, last_offset=last, delivery_state=delivery, delivery_count=count)
        for first, last, delivery, count in request.batches
    ]
    partition = writing.PartitionData(
        partition=request.partition,
        state_epoch=request.state_epoch,
        leader_epoch=request.leader_epoch,
        start_offset=request.start_offset,
        delivery_complete_count=request.delivery_complete_count,
        state_batches=batches,
    )
    topic = writing.WriteStateData(topic_id=request.topic_id, partitions=[partition])
    return writing.WriteShareGroupStateRequest(group_id=request.group_id, topics=[topic])


def _delete(request: state.DeleteState) -> deletion.DeleteShareGroupStateRequest:
    partition = deletion.PartitionData(partition=request.partition)
    topic = deletion.DeleteStateData(topic_id=request.topic_id, partitions=[partition])
    return deletion.DeleteShareGroupStateRequest(group_id=request.group_id, topics=[topic])


def _summarize(request: state.SummarizeState) -> summary.ReadShareGroupStateSummaryRequest:
    partition = summary.PartitionData(partition=request.partition, leader_epoch=-1)
    topic = summary.ReadStateSummaryData(topic_id=request.topic_id, partitions=[partition])
    return summary.ReadShareGroupStateSummaryRequest(group_id=request.group_id, topics=[topic])


def _outcome(row: Any) -> state.StateOutcome:
    return state.StateOutcome(row.error_code, row.error_message)


def _state_read(row: reading.PartitionResult) -> state.StateRead:
    batches = [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in row.state_batches
    ]
    return state.StateRead(row.error_code, row.error_message, row.state_epoch, row.start_offset, batches=batches)


def _state_summary(row: summary.PartitionResult) -> state.StateSummary:
    return state.StateSummary(
        row.error_code,
        row.error_message,
        row.state_epoch,
        row.leader_epoch,
        row.start_offset,
        row.delivery_complete_count,
    )


_UNREACHABLE: Final = "The share coordinator cannot be reached."
_NO_OUTCOME: Final = state.StateOutcome(COORDINATOR_NOT_AVAILABLE, _UNREACHABLE)
_MESSAGES: Final[dict[Operation[Any, Any], _Message]] = {
    state.initialize_state: _Message(_initialize, _outcome, _NO_OUTCOME),
    state.read_state: _Message(_read, _state_read, state.StateRead(COORDINATOR_NOT_AVAILABLE, _UNREACHABLE)),
    state.write_state: _Message(_write, _outcome, _NO_OUTCOME),
    state.delete_state: _Message(_delete, _outcome, _NO_OUTCOME),
    state.summarize_state: _Message(
        _summarize, _state_summary, state.StateSummary(COORDINATOR_NOT_AVAILABLE, _UNREACHABLE)
    ),
}


async def run_remotely(
    peers: OtherBrokers, tasks: Scheduler, node_id: int, operation: Operation[Any, Any], request: Any
) -> Any:
    """Run an operation of the share coordinator on another broker; COORDINATOR_NOT_AVAILABLE if it does not answer."""
    message = _MESSAGES[operation]
    response: Any = await awaitable(peers.request(node_id, message.encode(request), purpose=_PURPOSE), tasks)
    rows = [] if response is None else [row for topic in response.results for row in topic.partitions]
    return message.decode(rows[0]) if rows else message.failed
