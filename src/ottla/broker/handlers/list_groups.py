"""ListGroups: the groups whose coordinator this broker is.

Behaviour
    a partition is still loading   COORDINATOR_LOAD_IN_PROGRESS, and no groups
    filters                        names of states and types, in any case; one that does not exist matches nothing

Versions
    4  a filter by state (KIP-518)
    5  a filter by type (KIP-848)
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.coordinators.groups import listing
from ottla.protocol.answer import Answer
from ottla.protocol.errors import COORDINATOR_LOAD_IN_PROGRESS
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@handles(ListGroupsRequest)
def list_groups(request: ListGroupsRequest, broker: Broker) -> Answer[ListGroupsResponse]:
    if broker.groups.is_loading:
        return ListGroupsResponse(error_code=COORDINATOR_LOAD_IN_PROGRESS)
    states = frozenset(name.lower() for name in request.states_filter)
    types = frozenset(name.lower() for name in request.types_filter)
    groups = [group for state in broker.groups.states() for group in listing.list_groups(state, states, types)]
    return ListGroupsResponse(groups=groups)
