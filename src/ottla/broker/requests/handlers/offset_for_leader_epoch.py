"""OffsetForLeaderEpoch: the end offset of a leader epoch, by which a reader detects log truncation (KIP-101, KIP-320).

Authorization
    cluster: CLUSTER_ACTION, else topic: DESCRIBE   TOPIC_AUTHORIZATION_FAILED; these topics come last

Behaviour
    the current epoch             the log end offset
    an older one                  start of the next epoch, with the newest epoch that is not newer than the requested one
    -1, or newer than any         -1 and -1, no error
    the reader's own leader epoch older than ours FENCED_LEADER_EPOCH, newer UNKNOWN_LEADER_EPOCH
    unknown topic or partition    UNKNOWN_TOPIC_OR_PARTITION
    another broker leads          NOT_LEADER_OR_FOLLOWER, whatever the replica id is

Versions
    1  the epoch of the end offset
    2  the leader epoch that the reader knows
    3  the id of the requesting replica
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster, may_use_topic
from ottla.protocol.errors import TOPIC_AUTHORIZATION_FAILED
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(OffsetForLeaderEpochRequest, rows="topics.partitions")
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, broker: Broker
) -> Answer[OffsetForLeaderEpochResponse]:
    context = request.context
    is_broker = may_use_cluster(context, AclOperation.CLUSTER_ACTION, is_logged=False)
    allowed: list[OffsetForLeaderTopic] = []
    denied: list[OffsetForLeaderTopic] = []
    for topic in request.topics:
        is_allowed = is_broker or may_use_topic(context, AclOperation.DESCRIBE, topic.topic)
        (allowed if is_allowed else denied).append(topic)
    topics = [
        OffsetForLeaderTopicResult(
            topic=topic.topic, partitions=[_end_of(topic.topic, partition, broker) for partition in topic.partitions]
        )
        for topic in allowed
    ]
    return OffsetForLeaderEpochResponse(topics=topics + [_denial_row(topic) for topic in denied])


def _denial_row(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
    partitions = [
        EpochEndOffset(partition=partition.partition, error_code=TOPIC_AUTHORIZATION_FAILED)
        for partition in topic.partitions
    ]
    return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)


def _end_of(topic: str, requested: OffsetForLeaderPartition, broker: Broker) -> EpochEndOffset:
    partition = broker.replicas.readable(topic, requested.partition, requested.current_leader_epoch, leader_only=True)
    if isinstance(partition, int):
        return EpochEndOffset(partition=requested.partition, error_code=partition)
    epoch, end = partition.log.epochs.end_of(requested.leader_epoch, partition.log.end_offset)
    return EpochEndOffset(partition=requested.partition, leader_epoch=epoch, end_offset=end)
