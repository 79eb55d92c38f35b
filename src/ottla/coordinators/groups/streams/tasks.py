"""Tasks of a streams group: (subtopology id, partition), in the three roles that a member may have them in.

Sets of tasks are never modified: a decision creates a new one. Subtopologies and partitions are in ascending order wherever
they leave this process, subtopology ids as text ("10" before "2"), as in Kafka.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Tasks = Mapping[str, frozenset[int]]
"""Subtopology id -> partitions."""
EpochTasks = Mapping[str, Mapping[int, int]]
"""Subtopology id -> partition -> assignment epoch: that of the group when the task was assigned to the member."""


class TaskSet(NamedTuple):
    """Tasks of a member by role: those it processes, the copies of state it keeps, and the copies it warms up."""

    active: Tasks = {}  # noqa: RUF012 - never modified
    standby: Tasks = {}  # noqa: RUF012
    warmup: Tasks = {}  # noqa: RUF012

    @property
    def size(self) -> int:
        """Number of tasks."""
        return sum(len(partitions) for tasks in self for partitions in tasks.values())


def tasks_of(rows: Iterable[Any]) -> Tasks:
    """Return the tasks in rows of a request or record (`subtopology_id`, `partitions`); a subtopology may occur twice."""
    tasks: dict[str, frozenset[int]] = {}
    for row in rows:
        if row.partitions:
            tasks[row.subtopology_id] = tasks.get(row.subtopology_id, frozenset()) | frozenset(row.partitions)
    return tasks


def in_order(tasks: Tasks | EpochTasks) -> Iterator[tuple[str, list[int]]]:
    """Iterate over the subtopologies with their partitions, both ascending."""
    for subtopology_id in sorted(tasks):
        yield subtopology_id, sorted(tasks[subtopology_id])


def pairs(tasks: Tasks | EpochTasks) -> Iterator[tuple[str, int]]:
    """Iterate over the tasks as (subtopology id, partition)."""
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield subtopology_id, partition


def group_tasks(tasks: Iterable[tuple[str, int]]) -> Tasks:
    """Return tasks that are given as (subtopology id, partition)."""
    by_subtopology: dict[str, set[int]] = {}
    for subtopology_id, partition in tasks:
        by_subtopology.setdefault(subtopology_id, set()).add(partition)
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in sorted(by_subtopology.items())}


def with_epochs(tasks: Iterable[tuple[str, int, int]]) -> EpochTasks:
    """Return tasks that are given as (subtopology id, partition, assignment epoch)."""
    by_subtopology: dict[str, dict[int, int]] = {}
    for subtopology_id, partition, epoch in sorted(tasks):
        by_subtopology.setdefault(subtopology_id, {})[partition] = epoch
    return by_subtopology


def without_epochs(tasks: EpochTasks) -> Tasks:
    """Return the tasks alone."""
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in tasks.items()}


def overlap(one: Tasks | EpochTasks, other: Tasks | EpochTasks) -> bool:
    """Return whether two sets have a task in common."""
    return any(
        subtopology_id in other and any(partition in other[subtopology_id] for partition in partitions)
        for subtopology_id, partitions in one.items()
    )


def is_subset(part: Tasks, whole: Tasks | EpochTasks) -> bool:
    """Return whether all tasks of `part` are in `whole`."""
    return all(
        partition in whole.get(subtopology_id, {})
        for subtopology_id, partitions in part.items()
        for partition in partitions
    )
