"""SyncGroup: the leader of a classic group sends the assignments, every member receives its own.

Authorization
    group: READ   GROUP_AUTHORIZATION_FAILED

Behaviour
    empty group id                     INVALID_GROUP_ID
    unknown group or member            UNKNOWN_MEMBER_ID
    instance id taken by another       FENCED_INSTANCE_ID
    another generation                 ILLEGAL_GENERATION
    another protocol type or name      INCONSISTENT_GROUP_PROTOCOL
    members are still rejoining        REBALANCE_IN_PROGRESS
    before the leader's assignments    parked until they are in the log; then the assignment, which may be empty

Versions
    3  static members (KIP-345)
    5  protocol type and name are mandatory: INCONSISTENT_GROUP_PROTOCOL without them (KIP-559)
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group
from ottla.coordinators.groups import routing as membership
from ottla.protocol.errors import GROUP_AUTHORIZATION_FAILED
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(SyncGroupRequest)
def sync_group(request: SyncGroupRequest, broker: Broker) -> Answer[SyncGroupResponse]:
    if not may_use_group(request.context, AclOperation.READ, request.group_id):
        return SyncGroupResponse(error_code=GROUP_AUTHORIZATION_FAILED)
    return broker.groups.run(request.group_id, membership.sync, request)
