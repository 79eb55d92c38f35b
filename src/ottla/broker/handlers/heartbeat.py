"""Heartbeat: keeps a member of a classic group alive and requests a rejoin when needed.

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
from ottla.broker.dispatch import handles
from ottla.coordinators.groups import routing as membership
from ottla.protocol.answer import Answer
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(HeartbeatRequest)
def heartbeat(request: HeartbeatRequest, broker: Broker) -> Answer[HeartbeatResponse]:
    return broker.groups.run(request.group_id, membership.heartbeat, request)
