"""Assignors of streams groups that group.streams.assignors names (KIP-1357): `sticky`, and Python classes as `module:Name`.

An assignor has a `name` and `assign(group)`, see `ottla.coordinators.groups.streams.assignors`. It is created once, and runs on
the thread that serves all clients: it must return soon.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from ottla.broker.config import STICKY_ASSIGNORS, BrokerConfig
from ottla.broker.plugins import load_class
from ottla.coordinators.groups.streams.assignor import STICKY
from ottla.coordinators.groups.streams.assignors import Assign, AssignorFailed, GroupSpec
from ottla.coordinators.groups.streams.tasks import Tasks, TaskSet
from ottla.metadata.configs import TASK_ASSIGNORS, InvalidConfig

_logger = logging.getLogger("ottla.broker")
_PREFIX: Final = f"Invalid value {{}} for configuration {TASK_ASSIGNORS}: "


class TaskAssignors(NamedTuple):
    """Assignors of a broker.

    names    their names by the entries of group.streams.assignors, in its order
    by_name  None for the broker's own one, "sticky"; the first one is the default
    """

    names: Mapping[str, str]
    by_name: Mapping[str, Assign | None]


def load_task_assignors(config: BrokerConfig) -> TaskAssignors:
    """Create the assignors that a broker's configs name. Raises InvalidConfig."""
    names: dict[str, str] = {}
    by_name: dict[str, Assign | None] = {}
    for entry in config.items_of(TASK_ASSIGNORS):
        name, assign = (STICKY, None) if entry in STICKY_ASSIGNORS else _load(entry)
        if name in by_name:
            raise InvalidConfig(
                f"{_PREFIX.format(entry)}Assignor name '{name}' is already registered by another configured assignor. "
                "Assignor names, whether built-in or custom, must be unique"
            )
        names[entry], by_name[name] = name, assign
    return TaskAssignors(names, by_name)


def _load(entry: str) -> tuple[str, Assign]:
    assignor: Any = load_class(TASK_ASSIGNORS, entry, "assign")()
    name = getattr(assignor, "name", None)
    if not isinstance(name, str) or not name:
        raise InvalidConfig(f"{_PREFIX.format(entry)}the class has no attribute name with a text")
    if name == STICKY:
        raise InvalidConfig(
            f"{_PREFIX.format(entry)}Assignor name '{name}' is reserved by a built-in assignor. "
            "A custom assignor must not reuse the name of a built-in assignor"
        )
    return name, guard(name, assignor.assign)


def guard(name: str, assign: Callable[[GroupSpec], Mapping[str, Any]]) -> Assign:
    """Return an assignor that raises AssignorFailed for whatever goes wrong in `assign`, and logs what is not its own text."""

    def assign_tasks(group: GroupSpec) -> dict[str, TaskSet]:
        try:
            rows = assign(group).items()
            return {
                member_id: TaskSet(_tasks(row.active_tasks), _tasks(row.standby_tasks))
                for member_id, row in rows
                if member_id in group.members
            }
        except AssignorFailed as refused:
            _logger.warning("the task assignor %s failed: %s", name, refused)
            raise
        except Exception as bug:
            _logger.exception("the task assignor %s failed", name)
            raise AssignorFailed(str(bug)) from bug

    return assign_tasks


def _tasks(tasks: Mapping[str, Collection[int]]) -> Tasks:
    """Return tasks by subtopology, without empty ones. Raises TypeError for anything else."""
    for subtopology_id, partitions in tasks.items():
        if not isinstance(subtopology_id, str) or not all(isinstance(partition, int) for partition in partitions):
            raise TypeError(f"{subtopology_id!r}: {partitions!r} is no subtopology with the numbers of its tasks")
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in tasks.items() if partitions}
