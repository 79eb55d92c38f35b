"""ShareGroupDescribe (KIP-932): a share group's epochs and members, with their assignments.

Authorization
    group: DESCRIBE                 GROUP_AUTHORIZATION_FAILED
    each assigned topic: DESCRIBE   TOPIC_AUTHORIZATION_FAILED, and no members

Behaviour
    unknown group, or one of another type        GROUP_ID_NOT_FOUND, with a message
    empty group id                               INVALID_GROUP_ID
    a coordinator that is loading or elsewhere   its error, for each group
    feature share.version at 0                   UNSUPPORTED_VERSION, for each group
"""

from ottla.broker.broker import Broker
from ottla.broker.coordination.group_protocols import serves_share_groups
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group, may_use_topics
from ottla.coordinators.groups import listing
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ottla.security.operations import AclOperation, AclResourceType, authorized_operations
from ottla.tasks.deferred import Answer, awaitable


@handles(ShareGroupDescribeRequest, rows="group_ids")
async def share_group_describe(request: ShareGroupDescribeRequest, broker: Broker) -> ShareGroupDescribeResponse:
    if not serves_share_groups(broker.image.features):
        refused = [DescribedGroup(group_id=group_id, error_code=UNSUPPORTED_VERSION) for group_id in request.group_ids]
        return ShareGroupDescribeResponse(groups=refused)

    def describe(group_id: str) -> Answer[DescribedGroup]:
        if not group_id:
            return DescribedGroup(group_id=group_id, error_code=INVALID_GROUP_ID)
        return broker.groups.run(group_id, listing.describe_share, listing.GroupName(group_id))

    denied = []
    allowed = []
    for group_id in request.group_ids:
        await broker.tasks.pace()
        if may_use_group(request.context, AclOperation.DESCRIBE, group_id):
            allowed.append(describe(group_id))
        else:
            denied.append(DescribedGroup(group_id=group_id, error_code=GROUP_AUTHORIZATION_FAILED))
    groups = denied + [await awaitable(answer, broker.tasks) for answer in allowed]
    for index, group in enumerate(groups):
        await broker.tasks.pace()
        if request.context.authorizer is not None and _has_hidden_topic(group, request.context):
            text = "The group has described topic(s) that the client is not authorized to describe."
            groups[index] = DescribedGroup(
                group_id=group.group_id, error_code=TOPIC_AUTHORIZATION_FAILED, error_message=text
            )
        elif group.error_code == NONE and request.include_authorized_operations:
            group.authorized_operations = authorized_operations(request.context, AclResourceType.GROUP, group.group_id)
    return ShareGroupDescribeResponse(groups=groups)


def _has_hidden_topic(group: DescribedGroup, context: RequestContext) -> bool:
    """Return whether a member is assigned a topic that the sender may not describe."""
    names = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment,)
        for topic in assignment.topic_partitions
    }
    return not may_use_topics(context, AclOperation.DESCRIBE, sorted(names))
