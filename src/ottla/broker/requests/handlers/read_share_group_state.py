"""ReadShareGroupState (KIP-932): a share group's start offsets, and the states of the records beyond. The leader of a
partition sends it to the share coordinator.

Authorization
    cluster: CLUSTER_ACTION   CLUSTER_AUTHORIZATION_FAILED for each partition

Behaviour
    a negative partition or leader epoch   INVALID_REQUEST
    a share partition that is not initialised   INVALID_REQUEST, with a message
    a lower leader epoch than the current  FENCED_LEADER_EPOCH; a higher one becomes the current one
    no such topic id or partition          UNKNOWN_TOPIC_OR_PARTITION
    an empty group id, no topics, a topic without partitions   an empty answer
"""

from ottla.broker.broker import Broker
from ottla.broker.coordination.share_state import ask_each, deny_each
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.coordinators.share import state
from ottla.protocol.messages.read_share_group_state import (
    PartitionData,
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(ReadShareGroupStateRequest, rows="topics.partitions")
def read_share_group_state(request: ReadShareGroupStateRequest, broker: Broker) -> Answer[ReadShareGroupStateResponse]:
    if not may_use_cluster(request.context, AclOperation.CLUSTER_ACTION):
        return ReadShareGroupStateResponse(results=deny_each(request.topics, ReadStateResult, PartitionResult))
    group_id = request.group_id

    def question(topic_id: bytes, partition: PartitionData) -> state.ReadState:
        return state.ReadState(group_id, topic_id, partition.partition, partition.leader_epoch)

    def response(answers: dict[bytes, list[tuple[int, state.StateRead]]]) -> ReadShareGroupStateResponse:
        results = [
            ReadStateResult(topic_id=topic_id, partitions=[_result(*partition) for partition in partitions])
            for topic_id, partitions in answers.items()
        ]
        return ReadShareGroupStateResponse(results=results)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    return ask_each(broker.coordination.shares, group_id, topics, state.read_state, question, response)


def _result(index: int, answer: state.StateRead) -> PartitionResult:
    return PartitionResult(
        partition=index,
        error_code=answer.error_code,
        error_message=answer.error_message,
        state_epoch=answer.state_epoch,
        start_offset=answer.start_offset,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=delivery, delivery_count=count)
            for first, last, delivery, count in answer.batches
        ],
    )
