"""DescribeGroups: state, protocol and members of classic groups.

Authorization
    group: DESCRIBE   GROUP_AUTHORIZATION_FAILED; these groups come first

Behaviour
    unknown group   state Dead; GROUP_ID_NOT_FOUND from version 6 on, no error before
    not Stable      members without their metadata, with the assignment that they had, and no protocol
    a coordinator that is loading or elsewhere   its error, for each group

Versions
    3  authorized operations, when asked for
    4  static members (KIP-345)
    6  GROUP_ID_NOT_FOUND with a message (KIP-1043)
"""

from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group
from ottla.coordinators.groups import listing
from ottla.protocol.errors import GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, NONE
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.security.operations import AclOperation, AclResourceType, authorized_operations
from ottla.tasks.deferred import awaitable

_FIRST_WITH_NOT_FOUND: Final = 6


@handles(DescribeGroupsRequest, rows="groups")
async def describe_groups(request: DescribeGroupsRequest, broker: Broker) -> DescribeGroupsResponse:
    groups: list[DescribedGroup] = []
    asked = []
    for group_id in request.groups:
        await broker.tasks.pace()
        if may_use_group(request.context, AclOperation.DESCRIBE, group_id):
            asked.append(broker.groups.run(group_id, listing.describe, listing.GroupName(group_id)))
        else:
            groups.append(DescribedGroup(error_code=GROUP_AUTHORIZATION_FAILED, group_id=group_id))
    groups += [await awaitable(answer, broker.tasks) for answer in asked]
    for group in groups:
        await broker.tasks.pace()
        if group.error_code == GROUP_ID_NOT_FOUND and request.context.version < _FIRST_WITH_NOT_FOUND:
            group.error_code, group.error_message = NONE, None
        if group.error_code == NONE and request.include_authorized_operations:
            group.authorized_operations = authorized_operations(request.context, AclResourceType.GROUP, group.group_id)
    return DescribeGroupsResponse(groups=groups)
