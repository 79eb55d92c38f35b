"""InitializeShareGroupState (KIP-932): start offsets of a share group in partitions. The group coordinator sends it to
the share coordinator.

Authorization
    cluster: CLUSTER_ACTION   CLUSTER_AUTHORIZATION_FAILED for each partition

Behaviour
    a negative partition or state epoch    INVALID_REQUEST
    a lower state epoch than the current   FENCED_STATE_EPOCH
    no such topic id or partition          UNKNOWN_TOPIC_OR_PARTITION
    the previous state of the share partition is dropped, even if epoch and offset are the same
    an empty group id, no topics           an empty answer; a topic without partitions is left out of it
"""

from ottla.broker.broker import Broker
from ottla.broker.coordination.share_state import ask_each, deny_each
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.coordinators.share import state
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(InitializeShareGroupStateRequest, rows="topics.partitions")
def initialize_share_group_state(
    request: InitializeShareGroupStateRequest, broker: Broker
) -> Answer[InitializeShareGroupStateResponse]:
    if not may_use_cluster(request.context, AclOperation.CLUSTER_ACTION):
        return InitializeShareGroupStateResponse(
            results=deny_each(request.topics, InitializeStateResult, PartitionResult)
        )
    group_id = request.group_id

    def question(topic_id: bytes, partition: PartitionData) -> state.InitializeState:
        return state.InitializeState(
            group_id, topic_id, partition.partition, partition.state_epoch, partition.start_offset
        )

    def response(answers: dict[bytes, list[tuple[int, state.StateOutcome]]]) -> InitializeShareGroupStateResponse:
        results = [
            InitializeStateResult(topic_id=topic_id, partitions=[_result(*partition) for partition in partitions])
            for topic_id, partitions in answers.items()
        ]
        return InitializeShareGroupStateResponse(results=results)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics if topic.partitions]
    return ask_each(broker.coordination.shares, group_id, topics, state.initialize_state, question, response)


def _result(index: int, answer: state.StateOutcome) -> PartitionResult:
    return PartitionResult(partition=index, error_code=answer.error_code, error_message=answer.error_message)
