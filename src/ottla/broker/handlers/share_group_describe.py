"""ShareGroupDescribe (KIP-932): a share group's epochs and members, with their assignments.

Behaviour
    unknown group, or one of another type        GROUP_ID_NOT_FOUND, with a message
    empty group id                               INVALID_GROUP_ID
    a coordinator that is loading or elsewhere   its error, for each group
    feature share.version at 0                   UNSUPPORTED_VERSION, for each group
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.broker.group_protocols import serves_share_groups
from ottla.coordinators.groups import listing
from ottla.protocol.answer import Answer, gather
from ottla.protocol.errors import INVALID_GROUP_ID, NONE, UNSUPPORTED_VERSION
from ottla.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.security.operations import AclResourceType, authorized_operations


@handles(ShareGroupDescribeRequest)
def share_group_describe(request: ShareGroupDescribeRequest, broker: Broker) -> Answer[ShareGroupDescribeResponse]:
    if not serves_share_groups(broker.image.features):
        refused = [DescribedGroup(group_id=group_id, error_code=UNSUPPORTED_VERSION) for group_id in request.group_ids]
        return ShareGroupDescribeResponse(groups=refused)

    def described(group_id: str) -> Answer[DescribedGroup]:
        if not group_id:
            return DescribedGroup(group_id=group_id, error_code=INVALID_GROUP_ID)
        return broker.groups.run(group_id, listing.describe_share, listing.GroupName(group_id))

    def shaped(groups: list[DescribedGroup]) -> ShareGroupDescribeResponse:
        for group in groups:
            if group.error_code == NONE and request.include_authorized_operations:
                group.authorized_operations = authorized_operations(
                    request.context, AclResourceType.GROUP, group.group_id
                )
        return ShareGroupDescribeResponse(groups=groups)

    return gather([described(group_id) for group_id in request.group_ids], shaped)
