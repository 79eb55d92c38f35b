"""ReadShareGroupStateSummary (KIP-932): a share group's start offsets, without the states of single records. The group
coordinator sends it to the share coordinator.

Authorization
    cluster: CLUSTER_ACTION   CLUSTER_AUTHORIZATION_FAILED for each partition

Behaviour
    a negative partition                   INVALID_REQUEST
    no such topic id or partition          UNKNOWN_TOPIC_OR_PARTITION
    no state                               start offset -1, count -1
    the leader epoch of the request is ignored
    an empty group id, no topics, a topic without partitions   an empty answer

Versions
    1  number of completed records beyond the start offset (KIP-1226)
"""

from ottla.broker.broker import Broker
from ottla.broker.coordination.share_state import ask_each, deny_each
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.coordinators.share import state
from ottla.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(ReadShareGroupStateSummaryRequest, rows="topics.partitions")
def read_share_group_state_summary(
    request: ReadShareGroupStateSummaryRequest, broker: Broker
) -> Answer[ReadShareGroupStateSummaryResponse]:
    if not may_use_cluster(request.context, AclOperation.CLUSTER_ACTION):
        return ReadShareGroupStateSummaryResponse(
            results=deny_each(request.topics, ReadStateSummaryResult, PartitionResult)
        )
    group_id = request.group_id

    def question(topic_id: bytes, partition: PartitionData) -> state.SummarizeState:
        return state.SummarizeState(group_id, topic_id, partition.partition)

    def response(answers: dict[bytes, list[tuple[int, state.StateSummary]]]) -> ReadShareGroupStateSummaryResponse:
        results = [
            ReadStateSummaryResult(topic_id=topic_id, partitions=[_result(*partition) for partition in partitions])
            for topic_id, partitions in answers.items()
        ]
        return ReadShareGroupStateSummaryResponse(results=results)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    return ask_each(broker.coordination.shares, group_id, topics, state.summarize_state, question, response)


def _result(index: int, answer: state.StateSummary) -> PartitionResult:
    return PartitionResult(
        partition=index,
        error_code=answer.error_code,
        error_message=answer.error_message,
        state_epoch=answer.state_epoch,
        leader_epoch=answer.leader_epoch,
        start_offset=answer.start_offset,
        delivery_complete_count=answer.delivery_complete_count,
    )
