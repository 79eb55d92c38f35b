"""WriteShareGroupState (KIP-932): states of records of a share group. The leader of a partition sends it to the share
coordinator; a successful response means that they are committed.

Authorization
    cluster: CLUSTER_ACTION   CLUSTER_AUTHORIZATION_FAILED for each partition

Behaviour
    a negative partition or epoch          INVALID_REQUEST
    a share partition that is not initialised   INVALID_REQUEST, with a message
    a lower leader epoch than the current  FENCED_LEADER_EPOCH
    a lower state epoch than the current   FENCED_STATE_EPOCH
    no such topic id or partition          UNKNOWN_TOPIC_OR_PARTITION
    a batch that ends before it begins     INVALID_REQUEST (Kafka 4.4: UNKNOWN_SERVER_ERROR)
    the start offset never decreases; of two states of a record, the one with more deliveries is kept
    an empty group id, no topics, a topic without partitions   an empty answer

Versions
    1  number of completed records beyond the start offset (KIP-1226)
"""

from ottla.broker.broker import Broker
from ottla.broker.coordination.share_state import ask_each, deny_each
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.coordinators.share import state
from ottla.coordinators.share.state_batches import StateBatch
from ottla.protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(WriteShareGroupStateRequest, rows="topics.partitions")
def write_share_group_state(
    request: WriteShareGroupStateRequest, broker: Broker
) -> Answer[WriteShareGroupStateResponse]:
    if not may_use_cluster(request.context, AclOperation.CLUSTER_ACTION):
        return WriteShareGroupStateResponse(results=deny_each(request.topics, WriteStateResult, PartitionResult))
    group_id = request.group_id

    def question(topic_id: bytes, partition: PartitionData) -> state.WriteState:
        return state.WriteState(
            group_id,
            topic_id,
            partition.partition,
            partition.state_epoch,
            partition.leader_epoch,
            partition.start_offset,
            partition.delivery_complete_count,
            [
                StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
                for batch in partition.state_batches
            ],
        )

    def response(answers: dict[bytes, list[tuple[int, state.StateOutcome]]]) -> WriteShareGroupStateResponse:
        results = [
            WriteStateResult(topic_id=topic_id, partitions=[_result(*partition) for partition in partitions])
            for topic_id, partitions in answers.items()
        ]
        return WriteShareGroupStateResponse(results=results)

    topics = [(topic.topic_id, topic.partitions) for topic in request.topics]
    return ask_each(broker.coordination.shares, group_id, topics, state.write_state, question, response)


def _result(index: int, answer: state.StateOutcome) -> PartitionResult:
    return PartitionResult(partition=index, error_code=answer.error_code, error_message=answer.error_message)
