"""The alarm for the earliest deadline."""

import heapq
from collections.abc import Callable

import pytest

from ottla.tasks.due_work import DueWork


class Timer:
    """A call at `deadline_ms`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class World:
    """Virtual time."""

    def __init__(self) -> None:
        self.now = 0
        self._timers: list[tuple[int, int, Timer]] = []

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (self.now + delay_ms, id(timer), timer))
        return timer

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while self._timers and self._timers[0][0] <= end:
            self.now, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
        self.now = end


@pytest.fixture
def world() -> World:
    return World()


def test_an_alarm_rings_once_at_the_earliest_deadline(world: World) -> None:
    rings: list[int] = []
    alarm = DueWork("test", lambda: rings.append(world.now), world, world)
    alarm.set(50)
    alarm.set(20)
    alarm.set(30)
    world.advance(100)
    assert rings == [20]
    alarm.set(90)
    world.advance(0)
    assert rings == [20, 100]


def test_an_alarm_whose_work_fails_rings_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    rings: list[int] = []

    def work() -> None:
        rings.append(world.now)
        if len(rings) == 1:
            raise ArithmeticError("a bug")

    alarm = DueWork("a test", work, world, world)
    alarm.set(10)
    world.advance(1000)
    assert rings == [10, 110]
    assert "a test failed and will be retried" in caplog.text


def test_a_closed_alarm_does_not_ring(world: World) -> None:
    rings: list[int] = []
    alarm = DueWork("test", lambda: rings.append(world.now), world, world)
    alarm.set(10)
    alarm.close()
    alarm.set(20)
    world.advance(100)
    assert rings == []
