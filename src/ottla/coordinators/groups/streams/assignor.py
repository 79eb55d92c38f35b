"""The assignor of tasks, "sticky": a pure function of members, the sizes of subtopologies and the tasks that members have now.

A process is all members with one process id: they share a state directory, so that a copy of state beside the task itself is
useless. The load of a process is its number of tasks by member. No member gets more than its quota while another one has
fewer:

    active quota   active tasks that are left / members that have not reached theirs, rounded up
    total quota    so with standbys

    1 active tasks stay where they are, within the active quota
    2 others go to a member that keeps a copy of their state, within the quota
    3 the rest goes to the process with the least load, and in it to the member with the fewest tasks
    4 standbys likewise: where the task was active before, where a copy was before, then to the least load; never twice in one
      process

Kafka's text of it is a class; this is written from its observed assignments. Ties are in the order of joining here, and in that
of hash tables there.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.coordinators.groups.streams.tasks import Tasks, TaskSet, group_tasks, pairs

Task = tuple[str, int]
"""Subtopology id and partition."""


class TaskMember(NamedTuple):
    """Input of the assignor for one member: its process, the tasks that it has now, and offsets of the state it holds."""

    process_id: str
    active: Tasks
    standby: Tasks
    offsets: Mapping[Task, int]


class Workload(NamedTuple):
    """Tasks to assign: number by subtopology, the subtopologies with state, and the number of copies of their tasks."""

    tasks: Mapping[str, int]
    stateful: frozenset[str]
    standby_replicas: int


class _Process:
    """Tasks of a process while they are assigned.

    The heap has an entry with the current count of each member; entries with other counts are void.
    """

    __slots__ = ("_heap", "_places", "counts", "number", "tasks", "total")

    def __init__(self, number: int) -> None:
        self.number = number
        self.counts: dict[str, int] = {}
        """Number of tasks by member, in the order of joining."""
        self.tasks: set[Task] = set()
        self.total = 0
        self._places: dict[str, int] = {}
        self._heap: list[tuple[int, int, str]] = []

    @property
    def load(self) -> float:
        return self.total / len(self.counts)

    def join(self, member_id: str) -> None:
        """Add a member without tasks."""
        self.counts[member_id] = 0
        self._places[member_id] = len(self._places)
        self._heap.append((0, self._places[member_id], member_id))

    def add(self, member_id: str, task: Task) -> None:
        """Count a task of a member."""
        self.counts[member_id] += 1
        self.total += 1
        self.tasks.add(task)
        heapq.heappush(self._heap, (self.counts[member_id], self._places[member_id], member_id))

    def least_loaded(self) -> str:
        """Return the member with the fewest tasks, the first one among equals."""
        while self._heap[0][0] != self.counts[self._heap[0][2]]:
            heapq.heappop(self._heap)
        return self._heap[0][2]


class _Quota:
    """Number of tasks that a member may have, while the members that have reached it are taken out."""

    __slots__ = ("_members", "_tasks", "limit")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.limit = 0
        self._compute()

    def _compute(self) -> None:
        self.limit = -(-self._tasks // self._members) if self._members else 0

    def take_out_if_full(self, count: int) -> None:
        """Take a member out if its number of tasks is just the limit."""
        if count == self.limit:
            self._tasks -= count
            self._members -= 1
            self._compute()


class _Assignment:
    """An assignment under construction."""

    def __init__(self, members: Mapping[str, TaskMember], work: Workload) -> None:
        self.members = members
        self.work = work
        self.processes: dict[str, _Process] = {}
        for member_id, member in members.items():
            process = self.processes.get(member.process_id)
            if process is None:
                process = self.processes[member.process_id] = _Process(len(self.processes))
            process.join(member_id)
        self._heap = [(process.load, process.number, process) for process in self.processes.values()]
        everything = sum(work.tasks.values())
        copied = work.standby_replicas * sum(count for name, count in work.tasks.items() if name in work.stateful)
        self.active_quota = _Quota(everything, len(members))
        self.total_quota = _Quota(everything + copied, len(members))
        self.active: dict[str, list[Task]] = {member_id: [] for member_id in members}
        self.standby: dict[str, list[Task]] = {member_id: [] for member_id in members}
        self.owners = {task: member_id for member_id, member in members.items() for task in pairs(member.active)}
        self.holders = _holders(members)

    def process_of(self, member_id: str) -> _Process:
        return self.processes[self.members[member_id].process_id]

    def count(self, member_id: str) -> int:
        return self.process_of(member_id).counts[member_id]

    def add(self, member_id: str, task: Task, tasks: Mapping[str, list[Task]]) -> None:
        """Assign a task to a member, in the role of `tasks`."""
        process = self.process_of(member_id)
        process.add(member_id, task)
        heapq.heappush(self._heap, (process.load, process.number, process))
        tasks[member_id].append(task)
        if tasks is self.active:
            self.active_quota.take_out_if_full(len(self.active[member_id]))
        self.total_quota.take_out_if_full(process.counts[member_id])

    def least_loaded(self, without: Task | None = None) -> str | None:
        """Return the member with the fewest tasks in the process with the least load; None if all processes have a task."""
        passed = []
        chosen = None
        while self._heap and chosen is None:
            entry = self._heap[0]
            if entry[0] != entry[2].load:
                heapq.heappop(self._heap)  # the process has got tasks since
            elif without is not None and without in entry[2].tasks:
                passed.append(heapq.heappop(self._heap))
            else:
                chosen = entry[2]
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return None if chosen is None else chosen.least_loaded()

    def best_holder(self, task: Task, *, outside: bool) -> str | None:
        """Return the member that is best for a task among those that hold its state.

        outside  leave out members whose process has the task
        """
        best: str | None = None
        for member_id in self.holders.get(task, ()):
            if outside and task in self.process_of(member_id).tasks:
                continue
            if best is None or (
                self.process_of(member_id).load < self.process_of(best).load
                and self.count(member_id) < self.count(best)
            ):
                best = member_id
        return best

    def assign_active(self) -> None:
        """Assign every task to a member that processes it."""
        everything = [(name, partition) for name, count in self.work.tasks.items() for partition in range(count)]
        left = []
        for task in sorted(everything, key=_by_partition):
            owner = self.owners.get(task)
            if owner is not None and self.count(owner) < self.active_quota.limit:
                self.add(owner, task, self.active)
            else:
                left.append(task)
        unplaced = []
        for task in left:
            holder = self.best_holder(task, outside=False)
            if holder is not None and self.count(holder) < self.active_quota.limit:
                self.add(holder, task, self.active)
            else:
                unplaced.append(task)
        for task in sorted(unplaced):
            member_id = self.least_loaded()
            assert member_id is not None
            self.add(member_id, task, self.active)

    def assign_standbys(self) -> None:
        """Assign copies of the tasks with state."""
        replicas = self.work.standby_replicas
        copied = [
            (name, partition)
            for name, count in self.work.tasks.items()
            if name in self.work.stateful
            for partition in range(count)
        ]
        put_aside: list[tuple[Task, int]] = []
        for task in sorted(copied, key=_by_partition, reverse=True):
            for number in range(replicas):
                member_id = self._previous(task)
                if member_id is None:
                    put_aside.append((task, replicas - number))
                    break
                self.add(member_id, task, self.standby)
        for task, count in sorted(put_aside, key=lambda standby: standby[0], reverse=True):
            for _ in range(count):
                member_id = self.least_loaded(without=task)
                if member_id is None:  # fewer processes than copies
                    break
                self.add(member_id, task, self.standby)

    def _previous(self, task: Task) -> str | None:
        """Return a member that had the task before, in any role, and may get its copy."""
        owner = self.owners.get(task)
        if (
            owner is not None
            and task not in self.process_of(owner).tasks
            and self.count(owner) < self.total_quota.limit
        ):
            return owner
        holder = self.best_holder(task, outside=True)
        if holder is not None and self.count(holder) < self.total_quota.limit:
            return holder
        return None


def _by_partition(task: Task) -> tuple[int, str]:
    return task[1], task[0]


def _holders(members: Mapping[str, TaskMember]) -> dict[Task, Sequence[str]]:
    """Return the members that hold the state of each task: standbys first, then those with an offset, highest first."""
    standbys: dict[Task, list[str]] = {}
    others: dict[Task, list[str]] = {}
    for member_id, member in members.items():
        kept = set(pairs(member.standby))
        for task in sorted(kept):
            standbys.setdefault(task, []).append(member_id)
        for task in member.offsets:
            if task not in kept:
                others.setdefault(task, []).append(member_id)

    def by_offset(task: Task, ids: Iterable[str]) -> list[str]:
        return sorted(ids, key=lambda member_id: -members[member_id].offsets.get(task, -1))

    tasks = dict.fromkeys((*standbys, *others))
    return {task: by_offset(task, standbys.get(task, ())) + by_offset(task, others.get(task, ())) for task in tasks}


def assign_sticky(members: Mapping[str, TaskMember], work: Workload) -> dict[str, TaskSet]:
    """Return the tasks of each member; members are in the order of joining."""
    if not members:
        return {}
    assignment = _Assignment(members, work)
    assignment.assign_active()
    if work.standby_replicas > 0:
        assignment.assign_standbys()
    return {
        member_id: TaskSet(group_tasks(assignment.active[member_id]), group_tasks(assignment.standby[member_id]))
        for member_id in members
    }


STICKY: Final = "sticky"
