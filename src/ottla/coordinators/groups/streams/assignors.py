"""Assignors of streams groups that are not Kafka's: what they get and return (KIP-1357).

An assignor is called with all members of a group, whenever the group needs other targets. It is a function of its argument:
coordinators of several groups use the same one.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from ottla.coordinators.groups.streams.tasks import Tasks, TaskSet

Offsets = Mapping[str, Mapping[int, int]]
"""Subtopology id -> partition -> offset."""


class AssignorFailed(Exception):
    """An assignor has no assignment for a group; the text is for the broker's log, members get UNKNOWN_SERVER_ERROR."""


class MemberSpec(NamedTuple):
    """Member of a group, and the tasks that it has now.

    instance_id   of a static member, otherwise None
    rack_id       None if it is unknown
    process_id    members of one process share a state directory
    task_offsets  offsets of the state that the member has on its disk, as it reported them last
    """

    instance_id: str | None
    rack_id: str | None
    process_id: str
    client_tags: Mapping[str, str]
    active_tasks: Tasks
    standby_tasks: Tasks
    task_offsets: Offsets


class GroupSpec(NamedTuple):
    """Input of an assignor.

    members           by member id, in the order of joining
    subtopologies     number of tasks by subtopology id: its tasks are 0, 1, ...
    stateful          subtopologies with state, which may have standby tasks
    standby_replicas  number of standby tasks for each stateful task (streams.num.standby.replicas)
    tags              names of client tags over which standby tasks are to be spread (streams.rack.aware.assignment.tags)
    """

    members: Mapping[str, MemberSpec]
    subtopologies: Mapping[str, int]
    stateful: frozenset[str]
    standby_replicas: int
    tags: tuple[str, ...]


class MemberAssignment(NamedTuple):
    """Tasks of a member: partitions by subtopology id."""

    active_tasks: Mapping[str, Collection[int]] = {}
    standby_tasks: Mapping[str, Collection[int]] = {}


class TaskAssignor(Protocol):
    """Interface of an assignor.

    name  its name in streams.assignor.name and in descriptions of groups
    """

    name: str

    def assign(self, group: GroupSpec) -> Mapping[str, MemberAssignment]:
        """Return the tasks by member id; members that are left out get none. Raises AssignorFailed if there is
        no assignment; other errors count as bugs, and are logged as such."""


Assign = Callable[[GroupSpec], Mapping[str, TaskSet]]
"""A checked assignor: it raises AssignorFailed only."""
