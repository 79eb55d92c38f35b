"""DeleteShareGroupState (KIP-932): delete a share group's state of partitions. The group coordinator sends it to the
share coordinator.

Authorization
    cluster: CLUSTER_ACTION   CLUSTER_AUTHORIZATION_FAILED for each partition

Behaviour
    a negative partition                   INVALID_REQUEST
    no such topic id or partition          UNKNOWN_TOPIC_OR_PARTITION
    no state                               NONE
    an empty group id, no topics, a topic without partitions   an empty answer
"""

from ottla.broker.broker import Broker
from ottla.broker.coordination.share_state import ask_each, deny_each
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.coordinators.share import state
from ottla.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionData,
    PartitionResult,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(DeleteShareGroupStateRequest, rows="topics.partitions")
def delete_share_group_state(
    request: DeleteShareGroupStateRequest, broker: Broker
) -> Answer[DeleteShareGroupStateResponse]:
    if not may_use_cluster(request.context, AclOperation.CLUSTER_ACTION):
        return DeleteShareGroupStateResponse(results=deny_each(request.topics, DeleteStateResult, PartitionResult))
    group_id = request.group_id

    def question(topic_id: bytes, partition: PartitionData) -> state.DeleteState:
        return state.DeleteState(group_id, topic_id, partition.partition)

    def response(answers: dict[bytes, list[tuple[int, state.StateOutcome]]]) -> DeleteShareGroupStateResponse:
        results = [
            DeleteStateResult(topic_id=topic_id, partitions=[_result(*partition) for partition in partitions])
            for topic_id, partitions in answers.items()
        ]
        return DeleteShareGroupStateResponse(results=results)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    return ask_each(broker.coordination.shares, group_id, topics, state.delete_state, question, response)


def _result(index: int, answer: state.StateOutcome) -> PartitionResult:
    return PartitionResult(partition=index, error_code=answer.error_code, error_message=answer.error_message)
