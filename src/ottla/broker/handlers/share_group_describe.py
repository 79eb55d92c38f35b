"""ShareGroupDescribe (KIP-932): a share group's epochs and members, with their assignments.

Behaviour
    unknown group, or one of another type        GROUP_ID_NOT_FOUND, with a message
    empty group id                               INVALID_GROUP_ID
    a coordinator that is loading or elsewhere   its error, for each group
    feature share.version at 0                   UNSUPPORTED_VERSION, for each group
"""

from typing import TYPE_CHECKING

from ottla.broker.dispatch import handles
from ottla.broker.handlers.describe_groups import GROUP_OPERATIONS
from ottla.broker.handlers.share_group_heartbeat import serves_share_groups
from ottla.coordinators.groups import listing
from ottla.protocol.answer import Answer, gather
from ottla.protocol.errors import INVALID_GROUP_ID, NONE, UNSUPPORTED_VERSION
from ottla.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker


@handles(ShareGroupDescribeRequest)
def share_group_describe(request: ShareGroupDescribeRequest, broker: "Broker") -> Answer[ShareGroupDescribeResponse]:
    if not serves_share_groups(broker):
        refused = [DescribedGroup(group_id=each, error_code=UNSUPPORTED_VERSION) for each in request.group_ids]
        return ShareGroupDescribeResponse(groups=refused)

    def described(group_id: str) -> Answer[DescribedGroup]:
        if not group_id:
            return DescribedGroup(group_id=group_id, error_code=INVALID_GROUP_ID)
        return broker.groups.run(group_id, listing.describe_share, listing.GroupName(group_id))

    def shaped(groups: list[DescribedGroup]) -> ShareGroupDescribeResponse:
        for group in groups:
            if group.error_code == NONE and request.include_authorized_operations:
                group.authorized_operations = GROUP_OPERATIONS
        return ShareGroupDescribeResponse(groups=groups)

    return gather([described(group_id) for group_id in request.group_ids], shaped)
