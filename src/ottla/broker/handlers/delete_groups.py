"""DeleteGroups: forget groups without members, and everything they committed.

Behaviour
    a group with members     NON_EMPTY_GROUP
    unknown or empty id      GROUP_ID_NOT_FOUND
    one group twice          answered once

Versions
    1  throttled
    3  error messages; Kafka sends none
"""

from typing import TYPE_CHECKING

from ottla.broker.dispatch import handles
from ottla.coordinators.groups import listing
from ottla.coordinators.runtime import gather
from ottla.protocol.answer import Answer
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker


@handles(DeleteGroupsRequest)
def delete_groups(request: DeleteGroupsRequest, broker: "Broker") -> Answer[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))

    def shaped(codes: list[int]) -> DeleteGroupsResponse:
        results = [
            DeletableGroupResult(group_id=name, error_code=code) for name, code in zip(names, codes, strict=True)
        ]
        return DeleteGroupsResponse(results=results)

    return gather([broker.groups.run(name, listing.delete, listing.GroupName(name)) for name in names], shaped)
