"""JoinGroup: become, or stay, a member of a classic group; the answer is the group's next generation.

Authorization
    group: READ   GROUP_AUTHORIZATION_FAILED

Behaviour
    empty group id                        INVALID_GROUP_ID
    a session timeout the broker forbids  INVALID_SESSION_TIMEOUT, also from a broker that is not the coordinator
    another broker is the coordinator     NOT_COORDINATOR, with an empty member id
    an unknown member id                  UNKNOWN_MEMBER_ID
    another protocol type, or no protocol in common   INCONSISTENT_GROUP_PROTOCOL
    the group has group.max.size members  GROUP_MAX_SIZE_REACHED
    otherwise the request is parked until all members rejoined, or time is up

Versions
    0  the session timeout is the rebalance timeout
    1  a rebalance timeout of its own (KIP-62)
    4  MEMBER_ID_REQUIRED and a member id to come back with (KIP-394)
    5  static members (KIP-345)
    7  the protocol type in the answer (KIP-559), null protocol name on errors
    9  a static leader that rejoins gets SkipAssignment: it must not assign again (KIP-814)
"""

from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group
from ottla.coordinators.groups import routing as membership
from ottla.protocol.errors import GROUP_AUTHORIZATION_FAILED, INVALID_SESSION_TIMEOUT
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer

_FIRST_WITH_NULL_NAMES: Final = 7


@handles(JoinGroupRequest)
def join_group(request: JoinGroupRequest, broker: Broker) -> Answer[JoinGroupResponse]:
    if not may_use_group(request.context, AclOperation.READ, request.group_id):
        name = None if request.context.version >= _FIRST_WITH_NULL_NAMES else ""
        return JoinGroupResponse(error_code=GROUP_AUTHORIZATION_FAILED, protocol_name=name)
    integer = broker.config.integer
    least, most = integer("group.min.session.timeout.ms"), integer("group.max.session.timeout.ms")
    if request.group_id and not least <= request.session_timeout_ms <= most:
        return membership.join.refuse(request, INVALID_SESSION_TIMEOUT)
    return broker.groups.run(request.group_id, membership.join, request)
