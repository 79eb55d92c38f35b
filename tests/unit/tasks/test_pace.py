"""Pauses of tasks that have much to do: in one queue, some milliseconds of each pass of the event loop."""

from collections.abc import Callable

import pytest

from ottla.tasks.scheduler import Scheduler

STEP_NS = 1_000_000
A_PASS = 10
"""Steps of a millisecond in the time of one pass."""


class Loop:
    """Event loop whose passes a test makes: a pass runs what was due when it began."""

    def __init__(self) -> None:
        self.cpu_ns = 0
        self.due: list[Callable[[], None]] = []
        self.tasks = Scheduler(self, self, cpu_ns=lambda: self.cpu_ns)  # type: ignore[arg-type]

    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        assert delay_ms == 0
        self.due.append(callback)

    def make_pass(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()

    async def work(self, name: str, steps: int, log: list[str]) -> None:
        """Use a millisecond of CPU time in each step."""
        for _ in range(steps):
            await self.tasks.pace()
            self.cpu_ns += STEP_NS
            log.append(name)


def longest_pass(loop: Loop, log: list[str]) -> int:
    """Make passes until nothing is due; return the largest number of steps in one."""
    longest = 0
    while loop.due:
        before = len(log)
        loop.make_pass()
        longest = max(longest, len(log) - before)
    return longest


def test_a_short_task_does_not_pause() -> None:
    loop, log = Loop(), list[str]()
    assert loop.tasks.start(loop.work("a", A_PASS, log)).done


def test_tasks_use_the_time_of_a_pass_together() -> None:
    loop, log = Loop(), list[str]()
    tasks = [loop.tasks.start(loop.work(name, 50, log)) for name in "abc"]
    assert len(log) == A_PASS
    assert longest_pass(loop, log) <= A_PASS + 1
    assert all(task.done for task in tasks)
    assert len(log) == 150


def test_no_task_is_favoured() -> None:
    """The first one would otherwise use every pass, as its turn comes first."""
    loop, log = Loop(), list[str]()
    for name in "abc":
        loop.tasks.start(loop.work(name, 1000, log))
    for _ in range(40):
        loop.make_pass()
    counts = [log.count(name) for name in "abc"]
    assert min(counts) > 0.7 * max(counts), counts


def test_an_error_of_one_task_does_not_keep_the_others_waiting() -> None:
    loop, log = Loop(), list[str]()

    async def fail() -> None:
        await loop.work("x", 20, log)
        raise ValueError("a bug")

    failing = loop.tasks.start(fail())
    other = loop.tasks.start(loop.work("a", 50, log))
    longest_pass(loop, log)
    assert other.done
    with pytest.raises(ValueError, match="a bug"):
        failing.result()


def test_a_measured_task_counts_later_steps_and_those_of_its_tasks() -> None:
    loop, log = Loop(), list[str]()

    async def divided() -> None:
        await loop.work("own", 2 * A_PASS, log)
        await loop.tasks.every([loop.work("part", A_PASS, log), loop.work("part", A_PASS, log)])

    measured = loop.tasks.start_measured(divided(), "measured")
    loop.tasks.background(loop.work("other", 3 * A_PASS, log), "other")
    first = log.count("own") * STEP_NS
    longest_pass(loop, log)
    assert measured.done
    assert first > 0
    assert measured.spent_ns == 4 * A_PASS * STEP_NS - first
