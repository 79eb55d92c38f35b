"""Heartbeat: keeps a member of a classic group alive and requests a rejoin when needed.

Authorization
    group: READ   GROUP_AUTHORIZATION_FAILED

Behaviour
    empty group id                INVALID_GROUP_ID
    unknown group or member       UNKNOWN_MEMBER_ID
    older generation              ILLEGAL_GENERATION
    a rebalance is under way      REBALANCE_IN_PROGRESS, and the session is renewed all the same
    instance id taken by another  FENCED_INSTANCE_ID
    the coordinator is loading    NONE: the member continues

Versions
    1  throttled after the answer is sent (KIP-219)
    3  static members (KIP-345)
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group
from ottla.coordinators.groups import routing as membership
from ottla.protocol.errors import GROUP_AUTHORIZATION_FAILED
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(HeartbeatRequest)
def heartbeat(request: HeartbeatRequest, broker: Broker) -> Answer[HeartbeatResponse]:
    if not may_use_group(request.context, AclOperation.READ, request.group_id):
        return HeartbeatResponse(error_code=GROUP_AUTHORIZATION_FAILED)
    return broker.groups.run(request.group_id, membership.heartbeat, request)
