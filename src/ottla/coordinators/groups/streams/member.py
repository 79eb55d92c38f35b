"""A member of a streams group (KIP-1071), one stream thread: its description of itself, and its progress towards its target.

The two halves are two records in the log, and two tuples in memory. A decision creates a new tuple; a record is written only if
that differs from the old one.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from ottla.coordinators.groups.streams.tasks import EpochTasks, Tasks, TaskSet, tasks_of, with_epochs, without_epochs
from ottla.protocol.messages.streams_group_current_member_assignment_record import (
    StreamsGroupCurrentMemberAssignmentValue,
)
from ottla.protocol.messages.streams_group_current_member_assignment_record import TaskIds as AssignedTasks
from ottla.protocol.messages.streams_group_member_metadata_record import StreamsGroupMemberMetadataValue

JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
"""Epochs that a member sends to join, to leave, and, if static, to leave temporarily."""
Offsets = tuple[tuple[str, int, int], ...]
"""Sums of changelog offsets: (subtopology id, partition, offset)."""


class MemberState(IntEnum):
    """Progress of a member towards its target; the numbers are those in the log."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """The member must give tasks back, and has not confirmed that it did."""
    UNRELEASED_TASKS = 3
    """The member waits for tasks that other members have not given back."""
    UNKNOWN = 127


class Description(NamedTuple):
    """Properties that a member has declared in its requests."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = 0
    process_id: str = ""
    """Identifies the process of the member: the threads of a process share its state directory."""
    endpoint: tuple[str, int] | None = None
    """Host and port of the application (application.server), for interactive queries."""
    client_tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_record(cls, value: StreamsGroupMemberMetadataValue) -> "Description":
        """Return the description of a logged record."""
        endpoint = value.user_endpoint
        return cls(
            value.instance_id,
            value.rack_id,
            value.client_id,
            value.client_host,
            value.rebalance_timeout_ms,
            value.topology_epoch,
            value.process_id,
            None if endpoint is None else (endpoint.host, endpoint.port),
            tuple((tag.key, tag.value) for tag in value.client_tags),
        )


class Current(NamedTuple):
    """The current assignment of a member.

    epoch             the member epoch, under which it commits offsets
    previous_epoch    the epoch before, which the member may still send when a response was lost
    active            active tasks, each with its assignment epoch
    standby, warmup   copies of state
    revoking_active   tasks that the member must give back first; so revoking_standby, revoking_warmup
    """

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    active: EpochTasks = {}  # noqa: RUF012 - never modified
    standby: Tasks = {}  # noqa: RUF012
    warmup: Tasks = {}  # noqa: RUF012
    revoking_active: EpochTasks = {}  # noqa: RUF012
    revoking_standby: Tasks = {}  # noqa: RUF012
    revoking_warmup: Tasks = {}  # noqa: RUF012

    @classmethod
    def from_record(cls, value: StreamsGroupCurrentMemberAssignmentValue) -> "Current":
        """Return the assignment of a logged record."""
        try:
            state = MemberState(value.state)
        except ValueError:
            state = MemberState.UNKNOWN
        return cls(
            value.member_epoch,
            value.previous_member_epoch,
            state,
            _with_epochs(value.active_tasks, value.member_epoch),
            tasks_of(value.standby_tasks),
            tasks_of(value.warmup_tasks),
            _with_epochs(value.active_tasks_pending_revocation, value.member_epoch),
            tasks_of(value.standby_tasks_pending_revocation),
            tasks_of(value.warmup_tasks_pending_revocation),
        )

    @property
    def assigned(self) -> TaskSet:
        """The tasks without those that are being revoked."""
        return TaskSet(without_epochs(self.active), self.standby, self.warmup)

    @property
    def is_revoking(self) -> bool:
        """True if the member has tasks to give back."""
        return bool(self.revoking_active or self.revoking_standby or self.revoking_warmup)

    def assignment_epoch(self, subtopology_id: str, partition: int) -> int | None:
        """Return the epoch in which an active task was assigned; None if the member does not have it."""
        epoch = self.active.get(subtopology_id, {}).get(partition)
        return self.revoking_active.get(subtopology_id, {}).get(partition) if epoch is None else epoch


def _with_epochs(rows: list[AssignedTasks], otherwise: int) -> EpochTasks:
    """Return active tasks with their epochs; records without epochs get the member's (`otherwise`)."""
    return with_epochs(
        (row.subtopology_id, partition, epoch)
        for row in rows
        for partition, epoch in zip(
            row.partitions, row.assignment_epochs or [otherwise] * len(row.partitions), strict=True
        )
    )


class StreamsMember:
    """Member of a streams group; replay replaces both halves.

    offsets, end_offsets  sums of changelog offsets as last reported: in memory only
    """

    __slots__ = ("current", "description", "end_offsets", "member_id", "offsets")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.description = Description()
        self.current = Current()
        self.offsets: Offsets = ()
        self.end_offsets: Offsets = ()
