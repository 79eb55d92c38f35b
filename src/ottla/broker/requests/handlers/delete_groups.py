"""DeleteGroups: delete groups without members, and all their offsets.

Authorization
    group: DELETE   GROUP_AUTHORIZATION_FAILED; these groups come last

Behaviour
    a group with members     NON_EMPTY_GROUP
    unknown or empty id      GROUP_ID_NOT_FOUND
    one group twice          answered once
    a share group            its state at the share coordinator is deleted first; if that fails, the group stays
    a streams group          the description of its topology is deleted first; if that fails, GROUP_DELETION_FAILED

Versions
    1  throttled
    3  error messages; Kafka sends none
"""

import logging

from ottla.broker.broker import Broker
from ottla.broker.coordination.share_state_deletion import delete_share_state
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_group
from ottla.coordinators.groups import listing
from ottla.coordinators.groups.share.offsets import KnownPartitions, ShareGroupName, known_partitions
from ottla.coordinators.groups.streams.group import NO_EPOCH
from ottla.coordinators.groups.streams.topology_descriptions import Ending, begin_deletion, end_description
from ottla.protocol.errors import GROUP_AUTHORIZATION_FAILED, GROUP_DELETION_FAILED, NONE
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable

_logger = logging.getLogger("ottla.broker")


@handles(DeleteGroupsRequest, rows="groups_names")
async def delete_groups(request: DeleteGroupsRequest, broker: Broker) -> DeleteGroupsResponse:
    names = list(dict.fromkeys(request.groups_names))
    allowed: list[str] = []
    denied: list[str] = []
    for name in names:
        (allowed if may_use_group(request.context, AclOperation.DELETE, name) else denied).append(name)
    codes = await broker.tasks.every(_delete(name, broker) for name in allowed)
    results = [DeletableGroupResult(group_id=name, error_code=code) for name, code in zip(allowed, codes, strict=True)]
    results += [DeletableGroupResult(group_id=name, error_code=GROUP_AUTHORIZATION_FAILED) for name in denied]
    return DeleteGroupsResponse(results=results)


async def _delete(name: str, broker: Broker) -> int:
    known: KnownPartitions = await awaitable(
        broker.groups.run(name, known_partitions, ShareGroupName(name)), broker.tasks
    )
    if known.is_share_group:
        code = (await delete_share_state(broker.coordination, name, None)).code
    else:
        code = await _delete_description(name, broker)
    if code != NONE:
        return code
    return await awaitable(broker.groups.run(name, listing.delete, listing.GroupName(name)), broker.tasks)


async def _delete_description(name: str, broker: Broker) -> int:
    """Delete the description of a streams group's topology, where there is a plug-in for it; return an error code."""
    plugin = broker.description_plugin
    if plugin is None:
        return NONE
    begun = broker.groups.run(name, begin_deletion, Ending(name, NO_EPOCH))
    if not await awaitable(begun, broker.tasks):  # it has none
        return NONE
    try:
        plugin.delete(name)
    except Exception as cause:  # noqa: BLE001  a plug-in may raise anything
        _logger.warning("cannot delete the description of the topology of group %s: %s", name, cause)
        return GROUP_DELETION_FAILED
    return await awaitable(broker.groups.run(name, end_description, Ending(name, NO_EPOCH)), broker.tasks)
