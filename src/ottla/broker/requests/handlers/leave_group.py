"""LeaveGroup: members leave a classic group at once, without waiting for their session to end.

Authorization
    group: READ   GROUP_AUTHORIZATION_FAILED

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
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group
from ottla.coordinators.groups import routing as membership
from ottla.protocol.errors import GROUP_AUTHORIZATION_FAILED
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(LeaveGroupRequest)
def leave_group(request: LeaveGroupRequest, broker: Broker) -> Answer[LeaveGroupResponse]:
    if not may_use_group(request.context, AclOperation.READ, request.group_id):
        return LeaveGroupResponse(error_code=GROUP_AUTHORIZATION_FAILED)
    return broker.groups.run(request.group_id, membership.leave, request)
