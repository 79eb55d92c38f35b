"""The queue of completions, run by the tests themselves."""

from collections.abc import Callable
from typing import TypeVar

from ottla.environment import Cancellable, Timers
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.queue import CallbackQueue
from ottla.tasks.scheduler import Scheduler

T = TypeVar("T")


class _NoTime:
    """Clock that stands still."""

    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return 0


class _Call:
    """Scheduled call that can be cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class _DueNow:
    """Timers that are due at once are run by `run`; others are set in `later`, or never ring without it."""

    def __init__(self, later: Timers | None) -> None:
        self._due: list[_Call] = []
        self._later = later

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        if delay_ms > 0 and self._later is not None:
            return self._later.call_later(delay_ms, callback)
        call = _Call(callback)
        if delay_ms <= 0:
            self._due.append(call)
        return call

    def run(self) -> None:
        while self._due:
            callback = self._due.pop(0).callback
            if callback is not None:
                callback()


class ImmediateTimers:
    """Timers that are due at once run at once; others are set in `later`, or never ring without it."""

    def __init__(self, later: Timers | None = None) -> None:
        self._later = later

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        if delay_ms > 0 and self._later is not None:
            return self._later.call_later(delay_ms, callback)
        if delay_ms <= 0:
            callback()
        return _Call(callback)


def manual_queue(later: Timers | None = None) -> Scheduler:
    """Return a scheduler, on which no time passes, whose callbacks run in `run_queue`; an exception of one ends the test.

    later  timers for calls that are not due at once
    """
    return Scheduler(_NoTime(), _DueNow(later), _raise)


def run_queue(queue: CallbackQueue) -> None:
    """Run all callbacks of a `manual_queue`, and what they queue."""
    timers = queue._timers
    assert isinstance(timers, _DueNow)
    timers.run()


def drain(queue: CallbackQueue) -> None:
    """Run all callbacks of any queue, before its timer does: a test goes on when what it has changed has taken effect."""
    while not queue.is_empty:
        queue._drain()


def immediate_queue(later: Timers | None = None) -> Scheduler:
    """Return a scheduler that runs at once what is completed outside of its callbacks: for tests in which nothing is completed
    in the middle of the work of another.
    """
    return Scheduler(_NoTime(), ImmediateTimers(later), _raise)


def _raise(name: str, error: BaseException) -> None:
    del name
    raise error


def outcomes(answer: Answer[T]) -> list[T | BaseException]:
    """Return a list that will have the value or the error of an answer."""
    results: list[T | BaseException] = []
    if isinstance(answer, Deferred):
        answer.listen(lambda ended: results.append(ended.result() if ended.error is None else ended.error))
    else:
        results.append(answer)
    return results


def unexpected() -> None:
    """Fail the test: an answer that was to be completed has failed."""
    raise AssertionError("the answer failed")
