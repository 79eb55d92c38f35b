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
from collections.abc import Callable

from ottla.broker.broker import Broker
from ottla.broker.coordination.share_state_deletion import delete_share_state
from ottla.broker.dispatch import handles
from ottla.broker.permission import may_use_group
from ottla.coordinators.groups import listing
from ottla.coordinators.groups.share.offsets import KnownPartitions, ShareGroupName, known_partitions
from ottla.coordinators.groups.streams.group import NO_EPOCH
from ottla.coordinators.groups.streams.topology_descriptions import Ending, begin_deletion, end_description
from ottla.protocol.errors import GROUP_AUTHORIZATION_FAILED, GROUP_DELETION_FAILED
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.security.operations import AclOperation
from ottla.tasks.answers import after, gather
from ottla.tasks.deferred import Answer

_logger = logging.getLogger("ottla.broker")


@handles(DeleteGroupsRequest, rows="groups_names")
def delete_groups(request: DeleteGroupsRequest, broker: Broker) -> Answer[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))
    allowed: list[str] = []
    denied: list[str] = []
    for name in names:
        (allowed if may_use_group(request.context, AclOperation.DELETE, name) else denied).append(name)

    def shaped(codes: list[int]) -> DeleteGroupsResponse:
        results = [
            DeletableGroupResult(group_id=name, error_code=code) for name, code in zip(allowed, codes, strict=True)
        ]
        results += [DeletableGroupResult(group_id=name, error_code=GROUP_AUTHORIZATION_FAILED) for name in denied]
        return DeleteGroupsResponse(results=results)

    return gather([_deleted(name, broker) for name in allowed], shaped)


def _deleted_description(name: str, broker: Broker, delete: Callable[[], Answer[int]]) -> Answer[int]:
    """Delete the description of a streams group's topology, then the group; only where there is a plug-in for it."""
    plugin = broker.description_plugin
    if plugin is None:
        return delete()

    def forget(is_stored: bool) -> Answer[int]:
        if not is_stored:
            return delete()
        try:
            plugin.delete(name)
        except Exception as cause:  # noqa: BLE001  a plug-in may raise anything
            _logger.warning("cannot delete the description of the topology of group %s: %s", name, cause)
            return GROUP_DELETION_FAILED
        ended = broker.groups.run(name, end_description, Ending(name, NO_EPOCH))
        return after(ended, lambda code: code or delete())

    return after(broker.groups.run(name, begin_deletion, Ending(name, NO_EPOCH)), forget)


def _deleted(name: str, broker: Broker) -> Answer[int]:
    def delete() -> Answer[int]:
        return broker.groups.run(name, listing.delete, listing.GroupName(name))

    def delete_state_first(known: KnownPartitions) -> Answer[int]:
        if not known.is_share_group:
            return _deleted_description(name, broker, delete)
        return after(delete_share_state(broker.coordination, name, None), lambda end: end.code or delete())

    return after(broker.groups.run(name, known_partitions, ShareGroupName(name)), delete_state_first)
