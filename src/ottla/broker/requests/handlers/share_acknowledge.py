"""ShareAcknowledge: a member's acknowledgements of records that it acquired (KIP-932).

Authorization
    group: READ   GROUP_AUTHORIZATION_FAILED
    topic: READ   TOPIC_AUTHORIZATION_FAILED for its partitions

Behaviour
    share.version 0                  UNSUPPORTED_VERSION
    no group id; a member id that is missing, empty or longer than 36 characters
                                     INVALID_REQUEST
    sessions                         the session and the epochs of ShareFetch; epoch 0 INVALID_SHARE_SESSION_EPOCH
    last epoch                       acknowledgements are applied, then the member's remaining records are released
    invalid batches                  INVALID_REQUEST for their partition: offsets or batches in the wrong order, no types, as
                                     many types as offsets or one, an unknown type, a renewal in a request without renewal
    offsets never delivered          INVALID_REQUEST beyond what was acquired, INVALID_RECORD_STATE below
    records that are not the member's, or not any more
                                     INVALID_RECORD_STATE; batches wholly below the start offset are passed over
    one batch with an error          none of its partition is applied
    unknown topic or partition       UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION; the latter also for one never fetched from
                                     here, as of another leader
    a partition without batches      is in the response if another one has valid batches, or if it is unknown
    the response                     is sent when the share coordinator has written the changes

Versions
    1  the first that is stable
    2  renewals (KIP-1222), and the duration of locks
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.current_leaders import MovedPartition, add_current_leaders
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group
from ottla.broker.share_partitions.led_partition import AcknowledgementResult
from ottla.broker.share_partitions.permission import split_acknowledgements
from ottla.coordinators.share.session import FINAL_EPOCH, INITIAL_EPOCH, TopicIdPartition
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_SHARE_SESSION_EPOCH,
    NONE,
    SHARE_SESSION_NOT_FOUND,
)
from ottla.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable


@handles(ShareAcknowledgeRequest, rows="topics.partitions", is_whole=True)
async def share_acknowledge(request: ShareAcknowledgeRequest, broker: Broker) -> ShareAcknowledgeResponse:
    sharing = broker.share_partitions
    code = sharing.refusal(request.group_id, request.member_id)
    if code == NONE and not may_use_group(request.context, AclOperation.READ, request.group_id or ""):
        code = GROUP_AUTHORIZATION_FAILED
    if code != NONE or request.group_id is None or request.member_id is None:
        return ShareAcknowledgeResponse(error_code=code)
    member = request.group_id, request.member_id
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        return ShareAcknowledgeResponse(error_code=INVALID_SHARE_SESSION_EPOCH)
    if epoch == FINAL_EPOCH:
        code = NONE if sharing.sessions.find(member) is not None else SHARE_SESSION_NOT_FOUND
    else:
        code, _ = sharing.sessions.resume(member, epoch)
    if code != NONE:
        return ShareAcknowledgeResponse(error_code=code)
    acks = {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in request.topics
        for partition in topic.partitions
    }
    acks, denied = split_acknowledgements(acks, request.context, broker)
    acknowledged = sharing.acknowledge(member, acks, is_renewal=request.is_renew_ack)
    if epoch == FINAL_EPOCH:
        sharing.leave(member)
    lock_ms = sharing.rules(request.group_id).rules.lock_ms
    outcomes = await awaitable(acknowledged, broker.tasks)
    return _response({**denied, **outcomes}, lock_ms, broker, request.context)


def _response(
    outcomes: dict[TopicIdPartition, AcknowledgementResult], lock_ms: int, broker: Broker, context: RequestContext
) -> ShareAcknowledgeResponse:
    by_id = broker.image.topics_by_id
    rows: list[MovedPartition] = []
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), (code, message) in outcomes.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
        data = PartitionData(partition_index=index, error_code=code, error_message=message)
        topic.partitions.append(data)
        if code != NONE:
            rows.append(MovedPartition(by_id.get(topic_id), index, data))
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=list(topics.values()),
        node_endpoints=add_current_leaders(broker, context, rows, LeaderIdAndEpoch, NodeEndpoint) if rows else [],
    )
