"""Timer queues: what fires when, and how few timers of the event loop they take."""

import random
from collections.abc import Callable

import pytest

from ottla.environment.timer_queues import MOST_QUEUES, SHORTEST_MS, TimerQueues


class LoopTimer:
    def __init__(self, due_ms: int, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """Timers and clock of an event loop; `count` is the number of timers that were set."""

    def __init__(self) -> None:
        self.now = 1_000
        self.count = 0
        self.timers: list[LoopTimer] = []
        self.queues = TimerQueues(self, self)
        self.fired: list[tuple[int, str]] = []

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> LoopTimer:
        self.count += 1
        timer = LoopTimer(self.now + delay_ms, callback)
        self.timers.append(timer)
        return timer

    def note(self, name: str) -> Callable[[], None]:
        return lambda: self.fired.append((self.now, name))

    def run(self, ms: int) -> None:
        """Let time pass, ms by ms; an exception of a callback ends nothing but this callback."""
        end = self.now + ms
        while True:
            while due := [timer for timer in self.timers if timer.due_ms <= self.now]:
                for timer in due:
                    self.timers.remove(timer)
                    if timer.callback is not None:
                        try:
                            timer.callback()
                        except RuntimeError:
                            self.fired.append((self.now, "failed"))
            if self.now == end:
                return
            self.now += 1


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_timers_fire_at_their_time_in_order(loop: Loop) -> None:
    loop.queues.call_later(500, loop.note("a"))
    loop.run(100)
    loop.queues.call_later(500, loop.note("b"))
    loop.queues.call_later(500, loop.note("c"))
    loop.queues.call_later(200, loop.note("d"))
    loop.run(1_000)
    assert loop.fired == [(1_300, "d"), (1_500, "a"), (1_600, "b"), (1_600, "c")]


def test_a_cancelled_timer_does_not_fire(loop: Loop) -> None:
    timers = [loop.queues.call_later(500, loop.note(name)) for name in "abc"]
    timers[0].cancel()
    timers[2].cancel()
    timers[2].cancel()
    loop.run(1_000)
    assert loop.fired == [(1_500, "b")]
    timers[1].cancel()
    loop.queues.call_later(500, loop.note("later"))
    loop.run(500)
    assert loop.fired[1:] == [(2_500, "later")]


def test_a_timer_that_is_cancelled_by_one_of_the_same_time_does_not_fire(loop: Loop) -> None:
    loop.queues.call_later(500, lambda: second.cancel())
    second = loop.queues.call_later(500, loop.note("second"))
    loop.run(1_000)
    assert loop.fired == []


def test_an_exception_keeps_no_other_timer_from_firing(loop: Loop) -> None:
    def fail() -> None:
        raise RuntimeError

    loop.queues.call_later(500, fail)
    loop.queues.call_later(500, loop.note("b"))
    loop.run(100)
    loop.queues.call_later(500, loop.note("c"))
    loop.run(1_000)
    assert loop.fired == [(1_500, "failed"), (1_500, "b"), (1_600, "c")]


def test_requests_that_are_answered_in_time_share_one_timer(loop: Loop) -> None:
    for _ in range(10_000):
        loop.queues.call_later(30_000, loop.note("late")).cancel()
    assert loop.count == 1
    for _ in range(1_000):
        loop.queues.call_later(30_000, loop.note("late")).cancel()
        loop.run(1)
    assert loop.count == 1
    loop.run(60_000)
    assert loop.fired == []
    assert loop.timers == []


def test_cancelled_timers_behind_one_that_waits_are_removed(loop: Loop) -> None:
    waiting = loop.queues.call_later(30_000, loop.note("waiting"))
    for _ in range(10_000):
        loop.queues.call_later(30_000, loop.note("late")).cancel()
    assert len(loop.queues._queues[30_000]._waiting) < 200
    loop.run(30_000)
    assert loop.fired == [(31_000, "waiting")]
    waiting.cancel()


def test_short_timers_and_those_of_many_delays_are_set_in_the_loop(loop: Loop) -> None:
    loop.queues.call_later(0, loop.note("now"))
    loop.queues.call_later(SHORTEST_MS - 1, loop.note("soon"))
    for delay in range(MOST_QUEUES + 10):
        loop.queues.call_later(1_000 + delay, loop.note(str(delay)))
    assert len(loop.queues._queues) == MOST_QUEUES
    loop.run(2_000)
    assert loop.fired == [(1_000, "now"), (1_000 + SHORTEST_MS - 1, "soon")] + [
        (2_000 + delay, str(delay)) for delay in range(MOST_QUEUES + 10)
    ]
    assert not loop.queues._queues  # client-chosen delays leave nothing behind


@pytest.mark.parametrize("seed", range(20))
def test_any_order_is_that_of_single_timers(loop: Loop, seed: int) -> None:
    dice = random.Random(seed)
    expected: list[tuple[int, str]] = []
    timers = []
    for number in range(300):
        delay = dice.choice([100, 100, 250, 500])
        timer = loop.queues.call_later(delay, loop.note(str(number)))
        timers.append((loop.now + delay, str(number), timer))
        loop.run(dice.choice([0, 0, 1, 7, 60]))
        if dice.random() < 0.6:
            due, name, cancelled = timers.pop(dice.randrange(len(timers)))
            cancelled.cancel()
            if due <= loop.now:
                expected.append((due, name))
    loop.run(1_000)
    expected += [(due, name) for due, name, _ in timers]
    assert sorted(loop.fired) == sorted(expected)
