"""ConsumerGroupDescribe (KIP-848): a consumer group's epochs and members, with their assignments and targets.

Behaviour
    unknown group, or a classic one    GROUP_ID_NOT_FOUND, with a message
    empty group id                     INVALID_GROUP_ID
    a coordinator that is loading or elsewhere                  its error, for each group
    group.coordinator.rebalance.protocols without "consumer", or feature group.version at 0
                                                                UNSUPPORTED_VERSION, for each group

Versions
    1  member type: classic or consumer protocol (KIP-1099)
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.broker.group_protocols import serves_consumer_groups
from ottla.coordinators.groups import listing
from ottla.protocol.answer import Answer, gather
from ottla.protocol.errors import INVALID_GROUP_ID, NONE, UNSUPPORTED_VERSION
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from ottla.security.operations import AclResourceType, authorized_operations


@handles(ConsumerGroupDescribeRequest)
def consumer_group_describe(
    request: ConsumerGroupDescribeRequest, broker: Broker
) -> Answer[ConsumerGroupDescribeResponse]:
    if not serves_consumer_groups(broker.config, broker.image.features):
        refused = [DescribedGroup(group_id=group_id, error_code=UNSUPPORTED_VERSION) for group_id in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=refused)

    def described(group_id: str) -> Answer[DescribedGroup]:
        if not group_id:
            return DescribedGroup(group_id=group_id, error_code=INVALID_GROUP_ID)
        return broker.groups.run(group_id, listing.describe_consumer, listing.GroupName(group_id))

    def shaped(groups: list[DescribedGroup]) -> ConsumerGroupDescribeResponse:
        for group in groups:
            if group.error_code == NONE and request.include_authorized_operations:
                group.authorized_operations = authorized_operations(
                    request.context, AclResourceType.GROUP, group.group_id
                )
        return ConsumerGroupDescribeResponse(groups=groups)

    return gather([described(group_id) for group_id in request.group_ids], shaped)
