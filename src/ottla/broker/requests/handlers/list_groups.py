"""ListGroups: the groups whose coordinator this broker is.

Authorization
    cluster, else group: DESCRIBE   other groups are left out

Behaviour
    a partition is still loading   COORDINATOR_LOAD_IN_PROGRESS, and no groups
    filters                        names of states and types, in any case; one that does not exist matches nothing

Versions
    4  a filter by state (KIP-518)
    5  a filter by type (KIP-848)
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster, may_use_group
from ottla.coordinators.groups import listing
from ottla.protocol.errors import COORDINATOR_LOAD_IN_PROGRESS
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.security.operations import AclOperation


@handles(ListGroupsRequest, response_rows="groups")
async def list_groups(request: ListGroupsRequest, broker: Broker) -> ListGroupsResponse:
    if broker.groups.is_loading:
        return ListGroupsResponse(error_code=COORDINATOR_LOAD_IN_PROGRESS)
    states = frozenset(name.lower() for name in request.states_filter)
    types = frozenset(name.lower() for name in request.types_filter)
    sees_all = may_use_cluster(request.context, AclOperation.DESCRIBE, is_logged=False)
    groups = []
    for state in list(broker.groups.states()):
        await broker.tasks.pace()
        for group in listing.list_groups(state, states, types):
            if not sees_all:
                await broker.tasks.pace()
            if sees_all or may_use_group(request.context, AclOperation.DESCRIBE, group.group_id, is_logged=False):
                groups.append(group)
    return ListGroupsResponse(groups=groups)
