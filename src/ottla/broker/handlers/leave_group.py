"""LeaveGroup: members leave a classic group at once, without waiting for their session to end.

Behaviour
    empty group id            INVALID_GROUP_ID
    unknown group or member   UNKNOWN_MEMBER_ID for each member
    an instance id without a member id   the static member is removed, whatever its member id (for operators)
    instance id taken by another         FENCED_INSTANCE_ID
    a member named twice      UNKNOWN_MEMBER_ID the second time

Versions
    0  one member, whose error is the answer's
    3  several members (KIP-345)
    5  a reason (KIP-800)
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.coordinators.groups import routing as membership
from ottla.protocol.answer import Answer
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


@handles(LeaveGroupRequest)
def leave_group(request: LeaveGroupRequest, broker: Broker) -> Answer[LeaveGroupResponse]:
    return broker.groups.run(request.group_id, membership.leave, request)
