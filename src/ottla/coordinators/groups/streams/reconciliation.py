"""The next step of a member of a streams group towards its target (KIP-1071).

                     must give back nothing, or has confirmed it
      Stable ---------------------------------------------------------> Stable, or UnreleasedTasks
        |                                                                 ^      while others have what it should get
        |  its target takes tasks away                                    |
        +-----------------> UnrevokedTasks -------------------------------+
                            stays in its epoch until its heartbeat no longer names what it must give back

An active task has one owner at any time, in the whole group. A process has a task once, in whatever role: its threads share the
directory with the state. A member may turn its own active task into a standby at once; its standby becomes active in one step
when the active task is free.
"""

from collections.abc import Callable
from typing import NamedTuple

from ottla.coordinators.groups.streams.member import Current, MemberState
from ottla.coordinators.groups.streams.tasks import (
    EpochTasks,
    TaskSet,
    group_tasks,
    is_subset,
    overlap,
    pairs,
    with_epochs,
)
from ottla.metadata.refusal import Refused
from ottla.protocol import errors

Task = tuple[str, int]


class Goal(NamedTuple):
    """Target of a member, and the data needed to move towards it.

    epoch, target    target tasks, and the epoch they were computed for
    is_active_taken  whether the active task is not free: some member has it, or another one of this process has a copy
    is_copy_taken    whether another member of this process has the task in any role
    """

    epoch: int
    target: TaskSet
    is_active_taken: Callable[[Task], bool]
    is_copy_taken: Callable[[Task], bool]


def is_within(owned: TaskSet | None, current: Current) -> bool:
    """Return whether a member owns only tasks that it was assigned; False when it does not report them."""
    return (
        owned is not None
        and is_subset(owned.active, current.active)
        and is_subset(owned.standby, current.standby)
        and is_subset(owned.warmup, current.warmup)
    )


def _still_has(owned: TaskSet | None, current: Current) -> bool:
    """Return whether a member owns tasks that it must give back; assumed without reported tasks."""
    if owned is None:
        return True
    return (
        overlap(owned.active, current.revoking_active)
        or overlap(owned.standby, current.revoking_standby)
        or overlap(owned.warmup, current.revoking_warmup)
    )


def next_step(current: Current, goal: Goal, owned: TaskSet | None) -> Current:
    """Return the member's state after its heartbeat; `current` itself if nothing changes.

    owned  tasks reported by the heartbeat; None when it does not report them

    Raises Refused (FENCED_MEMBER_EPOCH) for a member in a state that only a newer release knows.
    """
    state = current.state
    if state is MemberState.STABLE and current.epoch == goal.epoch:
        return current
    if state is MemberState.UNREVOKED_TASKS:
        if _still_has(owned, current):
            return current
        return _towards(current, goal, owned, current.epoch + 1)
    if state is MemberState.UNKNOWN:
        if owned is None or owned.size:
            raise Refused(
                errors.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its partitions and rejoin.",
            )
        return _towards(current, goal, owned, goal.epoch)
    return _towards(current, goal, owned, current.epoch)


def _towards(current: Current, goal: Goal, owned: TaskSet | None, epoch: int) -> Current:
    """Return the next state; `epoch` is that of a member that must give back tasks first."""
    target = goal.target
    target_active = set(pairs(target.active))
    # What its heartbeat no longer names is free for the others at once, for itself from its next heartbeat on.
    returned = {*pairs(current.revoking_active), *pairs(current.revoking_standby), *pairs(current.revoking_warmup)}
    had = {(name, number): since for name, numbers in current.active.items() for number, since in numbers.items()}
    kept = {task: since for task, since in had.items() if task in target_active}
    freed = {task: since for task, since in had.items() if task not in target_active}
    new = {task for task in target_active if task not in had}
    granted = {task for task in new - returned if not goal.is_active_taken(task)}
    waits = granted != new

    # A copy of a task that will be active here stays until then.
    copies = set(pairs(current.standby))
    target_copies = set(pairs(target.standby))
    kept_copies = copies & (target_copies | (new - granted))
    freed_copies = copies - kept_copies - granted
    own = {task for task in target_copies - copies if task in freed}
    new_copies = {task for task in target_copies - copies - own - returned if not goal.is_copy_taken(task)}
    waits = waits or len(new_copies) + len(own) < len(target_copies - copies)

    warm = set(pairs(current.warmup))
    kept_warm = warm & set(pairs(target.warmup))
    giving = current._replace(
        epoch=epoch,
        previous_epoch=current.epoch,
        state=MemberState.UNREVOKED_TASKS,
        active=_to_epoch_tasks(kept),
        standby=group_tasks(kept_copies | own | (copies & granted)),
        warmup=group_tasks(kept_warm),
        revoking_active=_to_epoch_tasks(freed),
        revoking_standby=group_tasks(freed_copies),
        revoking_warmup=group_tasks(warm - kept_warm),
    )
    if giving.is_revoking and _still_has(owned, giving):
        return giving
    return Current(
        goal.epoch,
        current.epoch,
        MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE,
        _to_epoch_tasks({**kept, **dict.fromkeys(granted, goal.epoch)}),
        group_tasks(kept_copies | own | new_copies),
        group_tasks(kept_warm),
    )


def _to_epoch_tasks(tasks: dict[Task, int]) -> EpochTasks:
    return with_epochs((name, number, since) for (name, number), since in tasks.items())
