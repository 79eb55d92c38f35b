"""Bookkeeping of the descriptions of topologies that a plug-in stores (KIP-1331).

The group's epoch record says for which topology epoch a description is stored. Around each change it is UNCERTAIN, so that a
broker that takes over knows that the plug-in may have either.
"""
# ruff: noqa: ARG001, ARG005 - operations and refusals have one signature each, whatever they need of it

from typing import Final, NamedTuple

from ottla.coordinators.groups.state import Groups
from ottla.coordinators.groups.streams.group import NO_EPOCH, StreamsGroup
from ottla.coordinators.groups.streams.records import group_epoch
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis, Result, operation
from ottla.protocol import errors

UNCERTAIN: Final = -2


class Offer(NamedTuple):
    """A member's description of the topology in `topology_epoch`."""

    group_id: str
    member_id: str
    topology_epoch: int


class Ending(NamedTuple):
    """End of a change: the topology epoch of the stored description, -1 without; `has_failed` if it can never be stored."""

    group_id: str
    topology_epoch: int
    has_failed: bool = False


class Decision(NamedTuple):
    """Error code and message; NONE permits the change."""

    code: int
    message: str | None = None


@operation(lambda request, code: Decision(code))
def begin_description(groups: Groups, request: Offer, now: Millis) -> Result:
    """Permit a member to store a description."""
    group = groups.streams_groups.get(request.group_id)
    if group is None:
        why = "is not a streams group" if groups.type_of(request.group_id) is not None else "not found"
        text = f"Group {request.group_id} {why}."
        return Result(answers=((request, Decision(errors.GROUP_ID_NOT_FOUND, text)),))
    if request.member_id not in group.members:
        text = f"Member {request.member_id} is not a member of group {request.group_id}."
        return Result(answers=((request, Decision(errors.UNKNOWN_MEMBER_ID, text)),))
    epoch = NO_EPOCH if group.topology is None else group.topology.epoch
    if request.topology_epoch != epoch:
        text = f"Topology epoch {request.topology_epoch} does not match the group's current topology epoch {epoch}."
        return Result(answers=((request, Decision(errors.INVALID_REQUEST, text)),))
    return Result(
        [_description_record(group, UNCERTAIN, group.failed_description)], ((request, Decision(errors.NONE)),)
    )


@operation(lambda request, code: False)
def begin_deletion(groups: Groups, request: Ending, now: Millis) -> Result:
    """Mark the description of a group without members as uncertain. The answer: whether there is one to delete."""
    group = groups.streams_groups.get(request.group_id)
    if group is None or not group.is_empty or group.stored_description == NO_EPOCH:
        return Result(answers=((request, False),))
    return Result([_description_record(group, UNCERTAIN, group.failed_description)], ((request, True),))


@operation(lambda request, code: code)
def end_description(groups: Groups, request: Ending, now: Millis) -> Result:
    """Record the end of a change. The answer is NONE."""
    group = groups.streams_groups.get(request.group_id)
    if group is None:
        return Result(answers=((request, errors.NONE),))
    if request.has_failed:
        record = _description_record(group, group.stored_description, request.topology_epoch)
    else:
        record = _description_record(group, request.topology_epoch, group.failed_description)
    return Result([record], ((request, errors.NONE),))


def _description_record(group: StreamsGroup, stored: int, failed: int) -> CoordinatorRecord:
    return group_epoch(
        group.group_id, group.epoch, group.metadata_hash, group.validated_epoch, group.configs, (stored, failed)
    )
