"""Simulated machines: clock with drift and jumps, one process at a time, pauses, power.

A `Life` is one process on a host. Everything that a process has scheduled ends with its life: timers, background work and
callbacks of connections. While a host is paused (SIGSTOP), its callbacks are held and run in order when it resumes; the
kernel's part goes on: connections are accepted and bytes received.
"""

import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ottla.environment import Cancellable

from .world import MS_US, Callback, World

_EPOCH_MS: Final = 1_700_000_000_000
_MILLION: Final = 1_000_000


class HostClock:
    """Clock of a host. The monotonic clock may drift, the wall clock may also jump."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._local_us = _MILLION
        self._since_us = 0
        self._rate = _MILLION
        self._jumped_ms = 0

    def local_us(self) -> int:
        """Return the microseconds of the monotonic clock."""
        return self._local_us + (self._world.now_us - self._since_us) * self._rate // _MILLION

    def now_ms(self) -> int:
        return self.local_us() // MS_US

    def wall_ms(self) -> int:
        return _EPOCH_MS + self.local_us() // MS_US + self._jumped_ms

    def now_ns(self) -> int:
        """Return the nanoseconds of the monotonic clock."""
        return self.local_us() * 1_000

    def drift(self, parts_per_million: int) -> None:
        """Let the clock go faster or slower from now on."""
        self._local_us, self._since_us = self.local_us(), self._world.now_us
        self._rate = _MILLION + parts_per_million

    def set_wall(self, ahead_ms: int) -> None:
        """Set the wall clock to a difference from the monotonic clock."""
        self._jumped_ms = ahead_ms

    def world_us(self, delay_ms: int) -> int:
        """Return the real duration of a delay on this clock, rounded up."""
        return -(-max(delay_ms, 0) * MS_US * _MILLION // self._rate)


class Life:
    """One process on a host; the host's `Timers` for it. After `end` nothing of it runs any more."""

    def __init__(self, host: "Host", number: int) -> None:
        self.host = host
        self.number = number
        self.ended = False

    def call_later(self, delay_ms: int, callback: Callback) -> Cancellable:
        """See `Timers`."""
        return self.after_us(self.host.clock.world_us(delay_ms), callback)

    def after_us(self, delay_us: int, callback: Callback) -> Cancellable:
        """Run a callback on this process after a delay."""
        call = _Call(self, callback)
        self.host.world.call_after(delay_us, call.due)
        return call

    def run(self, callback: Callback) -> None:
        """Run a callback on this process now, or when its host resumes."""
        _Call(self, callback).due()

    def end(self) -> None:
        self.ended = True


class _Call:
    """Callback of a process, which is cancelled or held back if necessary."""

    __slots__ = ("_callback", "_life")

    def __init__(self, life: Life, callback: Callback) -> None:
        self._life = life
        self._callback: Callback | None = callback

    def cancel(self) -> None:
        self._callback = None

    def due(self) -> None:
        callback, host = self._callback, self._life.host
        if callback is None or self._life.ended:
            return
        if host.is_paused:
            host.held.append(self)
            return
        self._callback = None
        try:
            callback()
        except Exception:  # noqa: BLE001  (an event loop logs it and goes on; a run that has seen it fails)
            host.failed(traceback.format_exc())


class Host:
    """Machine with a name, a clock and at most one process.

    life       current process; None while nothing runs
    is_on      False after a loss of power, until the host is started again
    is_paused  True between SIGSTOP and SIGCONT
    held       calls that wait for the end of a pause
    """

    def __init__(self, world: World, name: str, failed: Callable[[str, str], None]) -> None:
        self.world = world
        self.name = name
        self.clock = HostClock(world)
        self.life: Life | None = None
        self.is_on = True
        self.is_paused = False
        self.held: deque[_Call] = deque()
        self._failed = failed
        self._lives = 0

    def begin_life(self) -> Life:
        """Start a process."""
        self._lives += 1
        self.is_on = True
        self.life = Life(self, self._lives)
        return self.life

    def end_life(self) -> None:
        """End the process, if there is one."""
        if self.life is not None:
            self.life.end()
            self.life = None
        self.is_paused = False
        self.held.clear()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """Run what was held back, in order."""
        self.is_paused = False
        while self.held and not self.is_paused:
            self.held.popleft().due()

    def failed(self, text: str) -> None:
        """Record an unexpected exception."""
        self._failed(self.name, text)


class HostRandom:
    """Implementation of `Random` for one process."""

    def __init__(self, life: Life) -> None:
        self._random = life.host.world.random(f"{life.host.name}/{life.number}")

    def bytes16(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


Done = Callable[[Any], object]
Job = tuple[Callable[[], Any], Done, Callable[[], object]]


class HostWorker:
    """Implementation of `Worker`: work takes effect after a delay, its result reaches the process a little later."""

    def __init__(self, life: Life, threads: int, fastest_us: int, slowest_us: int) -> None:
        self._life = life
        self._free = threads
        self._fastest_us = fastest_us
        self._slowest_us = slowest_us
        self._random = life.host.world.random(f"{life.host.name}/{life.number}/worker")
        self._queue: deque[Job] = deque()
        self._running: dict[int, Job] = {}
        self._number = 0
        self._closed = False

    def run(self, work: Callable[[], Any], done: Done, failed: Callable[[], object]) -> None:
        """See `Worker`."""
        if not self._closed:
            self._queue.append((work, done, failed))
            self._begin()

    def _begin(self) -> None:
        while self._free and self._queue:
            self._free -= 1
            self._number += 1
            number = self._number
            self._running[number] = self._queue.popleft()
            delay_us = self._random.randint(self._fastest_us, self._slowest_us)
            self._life.after_us(delay_us, lambda number=number: self._work(number))  # type: ignore[misc]

    def _work(self, number: int) -> None:
        job = self._running.pop(number, None)
        if job is None:
            return
        work, done, failed = job
        try:
            result = work()
        except Exception:  # noqa: BLE001  (as a thread does: it is logged, and `failed` called)
            self._life.host.failed(traceback.format_exc())
            self._life.after_us(self._fastest_us, lambda: self._report(failed))
        else:
            self._life.after_us(self._random.randint(5, 100), lambda: self._report(lambda: done(result)))

    def _report(self, callback: Callable[[], object]) -> None:
        self._free += 1
        if not self._closed:
            try:
                callback()
            finally:
                self._begin()

    def close(self, *, cancel: bool = False, wait: bool = True) -> None:
        """See `Worker`. Closing takes no virtual time; what is not waited for is done all the same."""
        del wait
        self._closed = True
        jobs = [*self._running.values(), *(() if cancel else self._queue)]
        self._running.clear()
        self._queue.clear()
        for work, _, _ in jobs:
            work()


class HostWorkers:
    """Implementation of `Workers` for one process."""

    def __init__(self, life: Life, *, fastest_us: int = 100, slowest_us: int = 8_000) -> None:
        self._life = life
        self._range_us = (fastest_us, slowest_us)

    def start(self, name: str, threads: int = 1) -> HostWorker:
        return HostWorker(self._life, threads, *self._range_us)
