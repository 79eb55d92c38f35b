"""StreamsGroupDescribe (KIP-1071): a streams group's epochs, topology and members, with their tasks and targets.

Authorization
    group: DESCRIBE                     GROUP_AUTHORIZATION_FAILED
    each topic of the topology: DESCRIBE   TOPIC_AUTHORIZATION_FAILED, and no members

Behaviour
    unknown group, or one of another type              GROUP_ID_NOT_FOUND, with a message
    empty group id                                     INVALID_GROUP_ID
    a coordinator that is loading or elsewhere         its error, for each group
    group.coordinator.rebalance.protocols without "streams", or feature streams.version at 0
                                                       UNSUPPORTED_VERSION, for each group

Versions
    1  assignor, description of the topology as a member gave it (KIP-1331)
"""

import logging
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.coordination.group_protocols import serves_streams_groups
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group, may_use_topics
from ottla.coordinators.groups.listing import GroupName
from ottla.coordinators.groups.streams.description import Description, describe_streams
from ottla.protocol.codec import decode, encode
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_GROUP_ID,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TopologyDescription,
)
from ottla.security.operations import AclOperation, AclResourceType, authorized_operations
from ottla.tasks.deferred import Answer, awaitable

_logger = logging.getLogger("ottla.broker")
_NOT_STORED: Final = 1
_FAILED: Final = 2
_GIVEN: Final = 3


@handles(StreamsGroupDescribeRequest, rows="group_ids")
async def streams_group_describe(request: StreamsGroupDescribeRequest, broker: Broker) -> StreamsGroupDescribeResponse:
    if not serves_streams_groups(broker.config, broker.image.features):
        refused = [DescribedGroup(group_id=group_id, error_code=UNSUPPORTED_VERSION) for group_id in request.group_ids]
        return StreamsGroupDescribeResponse(groups=refused)

    def describe(group_id: str) -> Answer[Description]:
        if not group_id:
            return Description(DescribedGroup(group_id=group_id, error_code=INVALID_GROUP_ID))
        return broker.groups.run(group_id, describe_streams, GroupName(group_id))

    denied = []
    allowed = []
    for group_id in request.group_ids:
        await broker.tasks.pace()
        if may_use_group(request.context, AclOperation.DESCRIBE, group_id):
            allowed.append(describe(group_id))
        else:
            denied.append(Description(DescribedGroup(group_id=group_id, error_code=GROUP_AUTHORIZATION_FAILED)))
    groups = []
    for description in denied + [await awaitable(answer, broker.tasks) for answer in allowed]:
        await broker.tasks.pace()
        groups.append(_complete(description, request, broker))
    return StreamsGroupDescribeResponse(groups=groups)


def _complete(description: Description, request: StreamsGroupDescribeRequest, broker: Broker) -> DescribedGroup:
    group, context = description.group, request.context
    if group.error_code != NONE:
        return group
    if context.authorizer is not None and not may_use_topics(context, AclOperation.DESCRIBE, _topics(group)):
        text = "The described group uses topics that the client is not authorized to describe."
        return DescribedGroup(group_id=group.group_id, error_code=TOPIC_AUTHORIZATION_FAILED, error_message=text)
    if request.include_authorized_operations:
        group.authorized_operations = authorized_operations(context, AclResourceType.GROUP, group.group_id)
    if request.include_topology_description:
        _describe_topology(group, description.stored_epoch, broker)
    return group


def _topics(group: DescribedGroup) -> list[str]:
    names: dict[str, None] = {}
    for subtopology in (group.topology.subtopologies or ()) if group.topology is not None else ():
        names.update(dict.fromkeys(subtopology.source_topics))
        names.update(dict.fromkeys(subtopology.repartition_sink_topics))
        topics = (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
        names.update(dict.fromkeys(topic.name for topic in topics))
    return list(names)


def _describe_topology(group: DescribedGroup, stored_epoch: int, broker: Broker) -> None:
    """Add the description of the topology that a plug-in stores."""
    plugin = broker.description_plugin
    group.topology_description_status = _NOT_STORED
    if plugin is None or group.topology is None or stored_epoch != group.topology.epoch:
        return
    try:
        stored = plugin.get(group.group_id, stored_epoch)
    except Exception as cause:  # noqa: BLE001  a plug-in may raise anything
        _logger.warning("cannot get the description of the topology of group %s: %s", group.group_id, cause)
        group.topology_description_status = _FAILED
        return
    if stored is not None:
        # The same structure belongs to two APIs.
        group.topology_description = decode(TopologyDescription, 1, encode(stored, 0))[0]
        group.topology_description_status = _GIVEN
