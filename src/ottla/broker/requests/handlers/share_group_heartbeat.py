"""ShareGroupHeartbeat (KIP-932): join, stay in, change and leave a share group; the response is the assignment.

Authorization
    group: READ                       GROUP_AUTHORIZATION_FAILED
    each subscribed topic: DESCRIBE   TOPIC_AUTHORIZATION_FAILED

Behaviour
    feature share.version at 0                     UNSUPPORTED_VERSION
    an empty member id, or one of more than 36 characters   INVALID_REQUEST
    other empty ids, a join without topics, an invalid epoch   INVALID_REQUEST, with a message
    unknown group (but to join), or one of another type   GROUP_ID_NOT_FOUND
    unknown member                                 UNKNOWN_MEMBER_ID
    another epoch than the member's                FENCED_MEMBER_EPOCH
    the group has group.share.max.size members     GROUP_MAX_SIZE_REACHED

    The assignment is in the answer to a join, to a heartbeat that names topics, and when it changed. A partition is assigned
    once the share coordinator has a state of it.
"""

from functools import partial
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.coordination.group_protocols import serves_share_groups
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import after_topics, may_use_group
from ottla.coordinators.groups.share import heartbeat as share_heartbeat
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer

MEMBER_ID_LENGTH: Final = 36
"""Length of a uuid with hyphens, as clients generate them."""


@handles(ShareGroupHeartbeatRequest)
def share_group_heartbeat(request: ShareGroupHeartbeatRequest, broker: Broker) -> Answer[ShareGroupHeartbeatResponse]:
    if not serves_share_groups(broker.image.features):
        return ShareGroupHeartbeatResponse(error_code=UNSUPPORTED_VERSION)
    context = request.context
    if not may_use_group(context, AclOperation.READ, request.group_id):
        return ShareGroupHeartbeatResponse(error_code=GROUP_AUTHORIZATION_FAILED)
    names = request.subscribed_topic_names or ()
    return after_topics(context, AclOperation.DESCRIBE, names, broker.tasks, partial(_heartbeat, request, broker))


def _heartbeat(
    request: ShareGroupHeartbeatRequest, broker: Broker, may_describe: bool
) -> Answer[ShareGroupHeartbeatResponse]:
    if not may_describe:
        return ShareGroupHeartbeatResponse(error_code=TOPIC_AUTHORIZATION_FAILED)
    if not 0 < len(request.member_id) <= MEMBER_ID_LENGTH:
        return ShareGroupHeartbeatResponse(error_code=INVALID_REQUEST)
    wrong = share_heartbeat.request_error(request)
    if wrong is not None:
        return ShareGroupHeartbeatResponse(error_code=INVALID_REQUEST, error_message=wrong)
    return broker.groups.run(request.group_id, share_heartbeat.heartbeat, request)
