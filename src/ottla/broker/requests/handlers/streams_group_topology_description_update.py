"""StreamsGroupTopologyDescriptionUpdate (KIP-1331): store a member's description of its application's topology.

Authorization
    group: READ   GROUP_AUTHORIZATION_FAILED

Behaviour
    no plug-in (group.streams.topology.description.plugin.class), or no streams groups   UNSUPPORTED_VERSION
    an empty group or member id, an unknown type of node     INVALID_REQUEST
    another topology epoch than the group's                  INVALID_REQUEST
    unknown group, or one of another type                    GROUP_ID_NOT_FOUND
    unknown member                                           UNKNOWN_MEMBER_ID
    the plug-in fails    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED with its text; members are asked again, unless for good
"""

from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.coordination.group_protocols import serves_streams_groups
from ottla.broker.coordination.topology_descriptions import DescriptionRefused
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group
from ottla.coordinators.groups.streams.topology_descriptions import (
    Decision,
    Ending,
    Offer,
    begin_description,
    end_description,
)
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    NONE,
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
    TopologyDescription,
    TopologyDescriptionNode,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable

_NODE_TYPES: Final = (1, 2, 3)
"""Source, processor, sink."""


@handles(StreamsGroupTopologyDescriptionUpdateRequest)
async def streams_group_topology_description_update(
    request: StreamsGroupTopologyDescriptionUpdateRequest, broker: Broker
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    if not serves_streams_groups(broker.config, broker.image.features):
        return _response(UNSUPPORTED_VERSION)
    if not may_use_group(request.context, AclOperation.READ, request.group_id):
        return _response(GROUP_AUTHORIZATION_FAILED)
    plugin = broker.description_plugin
    if plugin is None:
        text = "The broker has no streams group topology description plugin configured."
        return _response(UNSUPPORTED_VERSION, text)
    for name, value in (("GroupId", request.group_id), ("MemberId", request.member_id)):
        if not value.strip():
            return _response(INVALID_REQUEST, f"{name} can't be empty.")
    for node in _nodes(request.topology_description):
        if node.node_type not in _NODE_TYPES:
            return _response(INVALID_REQUEST, f"Unknown topology node type: {node.node_type}")

    offer = Offer(request.group_id, request.member_id, request.topology_epoch)
    begun = broker.groups.run(request.group_id, begin_description, offer)
    decision: Decision = await awaitable(begun, broker.tasks)
    if decision.code != NONE:
        return _response(decision.code, decision.message)
    failure = None
    ending = Ending(request.group_id, request.topology_epoch)
    try:
        plugin.set(request.group_id, request.topology_epoch, request.topology_description)
    except DescriptionRefused as cause:
        failure, ending = str(cause), ending._replace(has_failed=True)
    except Exception as cause:  # noqa: BLE001  a plug-in may raise anything
        return _response(STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, str(cause))
    code = await awaitable(broker.groups.run(request.group_id, end_description, ending), broker.tasks)
    if failure is not None:
        return _response(STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED, failure)
    return _response(code)


def _nodes(description: TopologyDescription) -> list[TopologyDescriptionNode]:
    nodes = [node for subtopology in description.subtopologies for node in subtopology.nodes]
    return nodes + [node for store in description.global_stores for node in (store.source, store.processor)]


def _response(code: int, message: str | None = None) -> StreamsGroupTopologyDescriptionUpdateResponse:
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=code, error_message=message)
