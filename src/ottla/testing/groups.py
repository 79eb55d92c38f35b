"""Groups that a broker coordinates, as tests see and end them; everything here runs on the broker's thread."""

from functools import partial

from ottla.broker.broker import Broker
from ottla.coordinators.groups import listing
from ottla.coordinators.groups.classic import membership as classic
from ottla.coordinators.groups.consumer import timers as consumer_timers
from ottla.coordinators.groups.coordinator import GroupCoordinator
from ottla.coordinators.groups.share import heartbeat as share_heartbeat
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.groups.streams import timers as streams_timers
from ottla.coordinators.runtime import Operation, Result
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.errors import NONE
from ottla.testing.contents import GroupStatus


def group_statuses(broker: Broker) -> dict[str, GroupStatus] | None:
    """Return the groups that a broker coordinates; None while it loads some."""
    if OFFSETS_TOPIC not in broker.image.topics:
        return {}
    groups = broker.groups
    if groups.is_loading:
        return None
    listed = [row for state in groups.states() for row in listing.list_groups(state, frozenset(), frozenset())]
    return {
        row.group_id: GroupStatus(row.group_state, len(group_members(groups, row.group_id, None))) for row in listed
    }


def group_members(groups: GroupCoordinator, group: str, member: str | None) -> list[str]:
    """Return the ids of the members of a group: of all, or of those whose id, instance id or client id is `member`."""
    state = groups.state_of(groups.partition_of(group))
    if state is None:
        return []
    identities: list[tuple[str | None, ...]]
    if group in state.consumer_groups:
        new = state.consumer_groups[group].members.values()
        identities = [(entry.member_id, entry.description.instance_id, entry.description.client_id) for entry in new]
    elif group in state.share_groups:
        sharing = state.share_groups[group].members.values()
        identities = [(entry.member_id, entry.description.client_id) for entry in sharing]
    elif group in state.streams_groups:
        streams = state.streams_groups[group].members.values()
        identities = [
            (entry.member_id, entry.description.instance_id, entry.description.client_id) for entry in streams
        ]
    else:
        old = state.groups[group].members.values() if group in state.groups else ()
        identities = [(entry.member_id, entry.instance_id, entry.client_id) for entry in old]
    return [names[0] or "" for names in identities if member is None or member in names]


def session_expiry(group: str, member: str) -> Operation[object, int]:
    """Return the operation that ends the session of a member, as its timer does."""
    return Operation(partial(_expire, group, member), _code_of)


def _code_of(request: object, code: int) -> int:  # noqa: ARG001
    return code


def _expire(group: str, member: str, groups: Groups, request: object, now: int) -> Result:
    if group in groups.consumer_groups:
        result = consumer_timers.end_session(groups, group, member, now)
    elif group in groups.share_groups:
        result = share_heartbeat.end_session(groups, group, member, now)
    elif group in groups.streams_groups:
        result = streams_timers.end_session(groups, group, member, now)
    else:
        result = classic.expire_session(groups, group, member, now)
    return result._replace(answers=(*result.answers, (request, NONE)))
