"""Coroutines without an event loop."""

import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from ottla.tasks.alarm import Alarm
from ottla.tasks.deferred import Deferred, Failed, completed
from ottla.tasks.scheduler import Cancelled, Scheduler
from ottla.tasks.signal import Signal
from tests.unit.client.world import World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def scheduler(world: World) -> Scheduler:
    return Scheduler(world, world)


def test_a_task_returns_raises_and_waits(world: World, scheduler: Scheduler) -> None:
    promise = Deferred[int](scheduler)

    async def double() -> int:
        return 2 * await promise

    task = scheduler.start(double())
    assert not task.done
    promise.complete(21)
    world.advance(0)
    assert task.result() == 42

    async def fail() -> None:
        raise ValueError("no")

    failed = scheduler.start(fail())
    with pytest.raises(ValueError, match="no"):
        failed.result()
    assert isinstance(failed.error, ValueError)


def test_run_returns_the_result_of_a_coroutine_that_does_not_wait(scheduler: Scheduler) -> None:
    async def double(number: int) -> int:
        return 2 * number

    async def fail() -> None:
        raise ValueError("no")

    assert scheduler.run(double(21), "double") == 42
    with pytest.raises(ValueError, match="no"):
        scheduler.run(fail(), "fail")


@pytest.mark.parametrize("starts", ["run", "background"])
def test_an_exception_of_a_task_that_no_code_awaits_is_reported_once(world: World, starts: str) -> None:
    errors: list[tuple[str, str]] = []
    scheduler = Scheduler(world, world, lambda name, error: errors.append((name, str(error))))
    promise = Deferred[None](scheduler)

    async def fail() -> None:
        await promise
        raise ValueError("no")

    task = getattr(scheduler, starts)(fail(), "inner")

    async def wait_for_it() -> None:
        await task

    waiting = scheduler.background(wait_for_it(), "outer")
    promise.complete(None)
    world.advance(0)
    assert errors == [("inner", "no")]
    assert isinstance(task.error, Failed)
    assert isinstance(waiting.error, Failed)


def test_only_the_first_outcome_counts(scheduler: Scheduler) -> None:
    promise = completed(1, scheduler)
    promise.complete(2)
    promise.fail(ValueError())
    assert promise.result() == 1


def test_a_task_is_resumed_after_the_running_one(world: World, scheduler: Scheduler) -> None:
    """A promise that is kept by a running task wakes the waiting one afterwards."""
    order: list[str] = []
    promise = Deferred[None](scheduler)

    async def waits() -> None:
        await promise
        order.append("woken")

    async def keeps() -> None:
        promise.complete(None)
        order.append("kept")

    scheduler.start(waits())
    scheduler.start(keeps())
    assert order == ["kept"]
    world.advance(0)
    assert order == ["kept", "woken"]


def test_a_long_chain_of_tasks_does_not_recurse(world: World, scheduler: Scheduler) -> None:
    first = previous = Deferred[int](scheduler)

    async def follow(before: Deferred[int]) -> int:
        return await before + 1

    for _ in range(5000):
        previous = scheduler.start(follow(previous))
    first.complete(0)
    world.advance(0)
    assert previous.result() == 5000


def test_sleep_and_within_take_virtual_time(world: World, scheduler: Scheduler) -> None:
    never = Deferred[None](scheduler)

    async def wait() -> tuple[bool, int]:
        await scheduler.sleep(100)
        return await scheduler.within(never, 50), world.now

    task = scheduler.start(wait())
    world.advance(149)
    assert not task.done
    world.advance(1)
    assert task.result() == (False, 1150)


def test_within_ends_with_the_first_of_several(world: World, scheduler: Scheduler) -> None:
    mine, other = Deferred[None](scheduler), Deferred[None](scheduler)

    async def wait() -> bool:
        return await scheduler.within(mine, 1000, other)

    task = scheduler.start(wait())
    other.complete(None)
    world.advance(0)
    assert task.result() is False
    assert scheduler.start(wait()).result() is False
    mine.complete(None)
    assert scheduler.start(wait()).result() is True


def test_cancel_raises_where_it_waits(world: World, scheduler: Scheduler) -> None:
    cleaned: list[str] = []

    async def wait() -> None:
        try:
            await scheduler.sleep(1000)
        finally:
            cleaned.append("yes")

    task = scheduler.start(wait())
    task.cancel()
    world.advance(0)
    assert (task.done, cleaned) == (True, ["yes"])
    with pytest.raises(Cancelled):
        task.result()
    world.advance(2000)  # the timer is gone
    task.cancel()


def test_every_runs_coroutines_concurrently(world: World, scheduler: Scheduler) -> None:
    async def after(delay: int, value: int) -> int:
        await scheduler.sleep(delay)
        if value < 0:
            raise ValueError(str(value))
        return value

    def run(*values: int) -> Coroutine[Deferred[Any], Any, list[int]]:
        return scheduler.every([after(30 - value, value) for value in values])

    task = scheduler.start(run(1, 2, 3))
    world.advance(29)
    assert task.result() == [1, 2, 3]
    failing = scheduler.start(run(1, -2, 3))
    world.advance(31)
    assert not failing.done
    world.advance(1)
    with pytest.raises(ValueError, match="-2"):
        failing.result()


def test_failures_of_background_tasks_are_reported(world: World) -> None:
    failures: list[tuple[str, str]] = []
    scheduler = Scheduler(world, world, lambda name, error: failures.append((name, str(error))))

    async def fail() -> None:
        raise ValueError("no")

    scheduler.background(fail(), "work")
    scheduler.background(scheduler.sleep(10), "sleep").cancel()
    world.advance(0)
    assert failures == [("work", "no")]


def test_a_signal_can_be_set_repeatedly(scheduler: Scheduler) -> None:
    signal = Signal(scheduler)
    first = signal.wait()
    signal.happen()
    assert first.done
    assert not signal.wait().done


def test_an_alarm_calls_at_the_earliest_of_its_times(world: World, scheduler: Scheduler) -> None:
    rung: list[int] = []
    alarm = Alarm(lambda: rung.append(world.now - 1000), scheduler.clock, scheduler)
    alarm.set(1300)
    alarm.set(1100)
    alarm.set(1200)
    world.advance(500)
    assert rung == [100]
    alarm.set(1600)
    alarm.cancel()
    alarm.set(1700)
    world.advance(500)
    assert rung == [100, 700]


def test_a_task_that_has_not_begun_is_dropped_by_a_close(world: World, scheduler: Scheduler) -> None:
    """Python warns of a coroutine that was never awaited."""
    begun: list[str] = []

    async def inner() -> None:
        begun.append("inner")

    coroutine = inner()

    async def outer() -> None:
        scheduler.background(coroutine, "inner")
        scheduler.close()

    scheduler.start(outer())
    world.advance(0)
    assert (begun, inspect.getcoroutinestate(coroutine)) == ([], inspect.CORO_CLOSED)
