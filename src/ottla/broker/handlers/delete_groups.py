"""DeleteGroups: delete groups without members, and all their offsets.

Behaviour
    a group with members     NON_EMPTY_GROUP
    unknown or empty id      GROUP_ID_NOT_FOUND
    one group twice          answered once
    a share group            its state at the share coordinator is deleted first; if that fails, the group stays

Versions
    1  throttled
    3  error messages; Kafka sends none
"""

from ottla.broker.broker import Broker
from ottla.broker.coordination.share_state_deletion import delete_share_state
from ottla.broker.dispatch import handles
from ottla.coordinators.groups import listing
from ottla.coordinators.groups.share.offsets import KnownPartitions, ShareGroupName, known_partitions
from ottla.protocol.answer import Answer, after, gather
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handles(DeleteGroupsRequest)
def delete_groups(request: DeleteGroupsRequest, broker: Broker) -> Answer[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))

    def shaped(codes: list[int]) -> DeleteGroupsResponse:
        results = [
            DeletableGroupResult(group_id=name, error_code=code) for name, code in zip(names, codes, strict=True)
        ]
        return DeleteGroupsResponse(results=results)

    return gather([_deleted(name, broker) for name in names], shaped)


def _deleted(name: str, broker: Broker) -> Answer[int]:
    def delete() -> Answer[int]:
        return broker.groups.run(name, listing.delete, listing.GroupName(name))

    def delete_state_first(known: KnownPartitions) -> Answer[int]:
        if not known.is_share_group:
            return delete()
        return after(delete_share_state(broker.coordination, name, None), lambda end: end.code or delete())

    return after(broker.groups.run(name, known_partitions, ShareGroupName(name)), delete_state_first)
