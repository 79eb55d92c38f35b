"""What an operator asks about groups: describe, list, delete."""
# ruff: noqa: ARG001, ARG005 - operations, refusals and timers have one signature each, whatever they need of it

from collections.abc import Iterator

from ottla.coordinators.groups.group import ClassicGroup, State
from ottla.coordinators.groups.records import group_tombstone
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.offsets import all_offset_tombstones
from ottla.coordinators.runtime import Millis, Result, operation
from ottla.protocol import errors
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.list_groups import ListedGroup

CLASSIC = "classic"
"""The type of a classic group as ListGroups spells it (KIP-848)."""


class GroupName:
    """A question about one group."""

    __slots__ = ("group_id",)

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id


def _refuse_describe(request: GroupName, code: int) -> DescribedGroup:
    return DescribedGroup(group_id=request.group_id, error_code=code)


@operation(_refuse_describe)
def describe(groups: Groups, request: GroupName, now: Millis) -> Result:
    """The group's state and members; what they say of themselves, and have, only when it is stable.

    An unknown group is Dead, with GROUP_ID_NOT_FOUND (which versions before 6 are not told).
    """
    group = groups.get(request.group_id)
    if group is None:
        unknown = DescribedGroup(
            group_id=request.group_id,
            group_state="Dead",
            error_code=errors.GROUP_ID_NOT_FOUND,
            error_message=f"Group {request.group_id} not found.",
        )
        return Result(answers=((request, unknown),))
    return Result(answers=((request, _described(group)),))


def _described(group: ClassicGroup) -> DescribedGroup:
    protocol = (group.protocol or "") if group.state is State.STABLE else None
    members = [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=b"" if protocol is None else member.metadata(protocol),
            member_assignment=b"" if protocol is None else member.assignment,
        )
        for member in group.members.values()
    ]
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=members,
    )


def list_groups(groups: Groups, states: frozenset[str], types: frozenset[str]) -> Iterator[ListedGroup]:
    """The groups of a partition. `states` and `types` are names in lower case; empty means any."""
    if types and CLASSIC not in types:
        return
    for group in groups.groups.values():
        if not states or group.state.value.lower() in states:
            yield ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )


@operation(lambda request, code: code)
def delete(groups: Groups, request: GroupName, now: Millis) -> Result:
    """Delete a group without members and all its offsets. Answers the error code."""
    group = groups.get(request.group_id)
    if group is None:
        return Result(answers=((request, errors.GROUP_ID_NOT_FOUND),))
    if not group.is_empty:
        return Result(answers=((request, errors.NON_EMPTY_GROUP),))
    records = [*all_offset_tombstones(groups, request.group_id), group_tombstone(request.group_id)]
    return Result(records, ((request, errors.NONE),))
