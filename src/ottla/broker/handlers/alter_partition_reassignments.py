"""AlterPartitionReassignments: move partitions to other brokers (KIP-455).

Behaviour
    other replicas                the new ones are assigned besides the old ones; the controller completes the reassignment when
                                  all of them are in the ISR. Another reassignment in progress is replaced
    the present replicas          done at once, also in another order, and if some are only removed and the leader stays
    replicas null                 cancels: the original replicas stay; NO_REASSIGNMENT_IN_PROGRESS: nothing to cancel;
                                  INVALID_REPLICA_ASSIGNMENT: only new replicas are in the ISR
    invalid replicas              INVALID_REPLICA_ASSIGNMENT, with the reason; fenced brokers are valid
    another number of replicas    INVALID_REPLICATION_FACTOR where the request does not allow it
    unknown topic, partition      UNKNOWN_TOPIC_OR_PARTITION

Versions
    1  whether the number of replicas may change (KIP-860)
"""

import logging
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.reassignment import begun, cancelled, completed, is_reassigned, keeps_records, target_of
from ottla.metadata.refusal import ChangeResult, Refused
from ottla.metadata.topic_plans import check_replicas
from ottla.protocol.answer import Answer, after
from ottla.protocol.errors import (
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

_logger: Final = logging.getLogger("ottla.metadata")
_Planned = dict[tuple[str, int], tuple[TopicImage, int, PartitionImage]]


@handles(AlterPartitionReassignmentsRequest, in_turn=True)
def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, broker: Broker
) -> Answer[AlterPartitionReassignmentsResponse]:
    if not request.topics:
        return AlterPartitionReassignmentsResponse(
            error_message=""
        )  # Kafka answers the defaults, without its controller
    planned: _Planned = {}
    responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[_reassigned(topic.name, partition, request, broker, planned) for partition in topic.partitions],
        )
        for topic in request.topics
    ]

    def response(change: ChangeResult) -> AlterPartitionReassignmentsResponse:
        for topic in responses:
            for row in topic.partitions:
                if (
                    change.error_code != NONE
                    and row.error_code == NONE
                    and (topic.name, row.partition_index) in planned
                ):
                    row.error_code, row.error_message = change
        if change.error_code == NONE:
            _log(planned)
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None,
            responses=responses,
        )

    return after(broker.metadata.change_partitions(list(planned.values())), response)


def _log(planned: _Planned) -> None:
    for topic, index, state in planned.values():
        before = topic.partitions[index].replicas
        how = "is reassigned" if is_reassigned(state) else "was reassigned"
        _logger.info("%s-%d %s from %s to %s", topic.name, index, how, list(before), list(target_of(state)))


def _reassigned(
    name: str,
    partition: ReassignablePartition,
    request: AlterPartitionReassignmentsRequest,
    broker: Broker,
    planned: _Planned,
) -> ReassignablePartitionResponse:
    """Plan a reassignment, or its cancellation. The last one that a request has for a partition counts."""
    code, message = NONE, None
    index = partition.partition_index
    try:
        topic = broker.image.topics.get(name)
        if topic is None:
            raise Refused(UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        if not 0 <= index < len(topic.partitions):
            raise Refused(UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
        before = topic.partitions[index]
        if partition.replicas is None:
            state = _cancelled(topic, index, broker)
        else:
            check_replicas(partition.replicas, broker.image.registered)
            if not request.allow_replication_factor_change:
                _check_factor(before, len(partition.replicas))
            state = begun(before, partition.replicas)
        state = _completed(topic, state, broker)
        planned.pop((name, index), None)
        if state != before:
            planned[name, index] = topic, index, state._replace(epoch=before.epoch + 1)
    except Refused as refused:
        code, message = refused.code, refused.message
    return ReassignablePartitionResponse(partition_index=index, error_code=code, error_message=message)


def _cancelled(topic: TopicImage, index: int, broker: Broker) -> PartitionImage:
    """Return a partition whose reassignment is cancelled. Raises Refused."""
    before = topic.partitions[index]
    if not is_reassigned(before):
        raise Refused(NO_REASSIGNMENT_IN_PROGRESS, None)
    if not keeps_records(before) and not broker.election_rules(topic).allows_unclean:
        text = (
            f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean leader "
            "election."
        )
        raise Refused(INVALID_REPLICA_ASSIGNMENT, text)
    return cancelled(before)


def _check_factor(before: PartitionImage, count: int) -> None:
    """Raise Refused unless a partition will have as many replicas as before (KIP-860)."""
    present = len(target_of(before))
    if count != present:
        text = f"The replication factor is changed from {present} to {count}"
        raise Refused(INVALID_REPLICATION_FACTOR, text)


def _completed(topic: TopicImage, state: PartitionImage, broker: Broker) -> PartitionImage:
    """Complete a reassignment that needs no new replica, unless the leader changes: elections are the controller's."""
    image = broker.image

    def acceptable(node: int) -> bool:
        return node not in state.offline and image.is_active(node)

    result = completed(state, acceptable, broker.election_rules(topic)._replace(allows_unclean=False))
    return state if result is None or result.leader != state.leader else result
