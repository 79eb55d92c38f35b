"""Holds of the event loop, measured by a timer that comes late."""

from collections.abc import Callable

import pytest

from ottla.broker.metrics.loop_load import LoopLoad
from ottla.environment import Cancellable

MS = 1_000_000


class Loop:
    """Timers and clocks in the hands of a test."""

    def __init__(self) -> None:
        self.now = self.cpu = 0
        self.due: Callable[[], None] | None = None
        self.delay_ms = 0
        self.load = LoopLoad(self, lambda: self.now, lambda: self.cpu)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        self.due, self.delay_ms = callback, delay_ms
        return self

    def cancel(self) -> None:
        self.due = None

    def beat(self, late_ms: int = 0, cpu_ms: int = 0) -> None:
        assert self.due is not None
        self.now += (self.delay_ms + late_ms) * MS
        self.cpu += cpu_ms * MS
        self.due()


def test_the_longest_hold_is_that_of_the_last_minutes() -> None:
    loop = Loop()
    loop.load.begin()
    loop.beat()
    loop.beat(late_ms=130)
    loop.beat(late_ms=40)
    assert loop.load.longest_hold_seconds == pytest.approx(0.13)
    assert loop.load.held_seconds == pytest.approx(0.17)
    for _ in range(130):
        loop.beat(late_ms=980)
    assert loop.load.longest_hold_seconds == pytest.approx(0.98)
    for _ in range(130 * 50):
        loop.beat()
    assert loop.load.longest_hold_seconds == 0.0


def test_the_idle_fraction_is_the_time_without_cpu() -> None:
    loop = Loop()
    loop.load.begin()
    assert loop.load.idle_fraction() == 1.0
    for _ in range(500):
        loop.beat(cpu_ms=5)
    assert loop.load.idle_fraction() == pytest.approx(0.75, abs=0.01)


def test_nothing_is_measured_after_close() -> None:
    loop = Loop()
    loop.load.begin()
    loop.load.close()
    assert loop.due is None
