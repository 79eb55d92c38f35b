"""Checks of a member's instance id and epoch that consumer groups and streams groups share, with Kafka's errors and texts."""

from collections.abc import Mapping, Sized
from typing import Final, Protocol, TypeVar

from ottla.metadata.refusal import Refused
from ottla.protocol import errors

_JOINING: Final = 0
_LEAVING_FOR_A_WHILE: Final = -2


class _Current(Protocol):
    @property
    def epoch(self) -> int: ...

    @property
    def previous_epoch(self) -> int: ...


class _Member(Protocol):
    member_id: str

    @property
    def current(self) -> _Current: ...


M_co = TypeVar("M_co", bound=_Member, covariant=True)


class _Group(Protocol[M_co]):
    @property
    def members(self) -> Mapping[str, M_co]: ...

    def static_member(self, instance_id: str | None) -> M_co | None: ...


def check_room(group: _Group[_Member], kind: str, most: int, member_id: str, instance_id: str | None) -> None:
    """Raise Refused (GROUP_MAX_SIZE_REACHED) for a new member of a group with `most` members; `kind` is its type."""
    members: Sized = group.members
    if group.static_member(instance_id) is None and len(members) >= most and member_id not in group.members:
        text = f"The {kind} group has reached its maximum capacity of {most} members."
        raise Refused(errors.GROUP_MAX_SIZE_REACHED, text)


def check_instance(group: _Group[M_co], member_id: str, instance_id: str) -> M_co:
    """Return the static member with `instance_id`. Raises Refused unless its member id is `member_id`."""
    member = group.static_member(instance_id)
    if member is None:
        raise Refused(errors.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise Refused(
            errors.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def check_released(old: _Member, member_id: str, instance_id: str) -> None:
    """Raise Refused (UNRELEASED_INSTANCE_ID) if the instance's current member has not left."""
    if old.current.epoch != _LEAVING_FOR_A_WHILE:
        raise Refused(
            errors.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {old.member_id} member.",
        )


def check_epoch(current: _Current, kind: str, epoch: int, *, is_behind: bool) -> None:
    """Raise Refused (FENCED_MEMBER_EPOCH) for an invalid member epoch; `kind` is the type of the group.

    Valid is the member's current epoch; also the previous one if a response was lost, provided that the member owns only
    what it was assigned (`is_behind`).
    """
    if epoch in (_JOINING, current.epoch):
        return
    if epoch > current.epoch:
        how = "greater"
    elif epoch == current.previous_epoch and is_behind:
        return
    else:
        how = "smaller"
    raise Refused(
        errors.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
        f"({current.epoch}). The member must abandon all its partitions and rejoin.",
    )
