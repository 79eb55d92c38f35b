"""Requests that wait: a fetch for data, until there is enough or its time is over.

A waiting fetch costs one object, one timer and one entry in the watchers of each of its partitions. It is woken by an
append, looks again, and answers or goes on waiting; nothing polls.
"""

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from ottla.environment import Cancellable, Timers
from ottla.protocol.answer import Answer, Pending

R = TypeVar("R")


class Watchers(Protocol):
    """Who is called when something has changed."""

    def add(self, watcher: Callable[[], None], /) -> None: ...

    def discard(self, watcher: Callable[[], None], /) -> None: ...


class Watched(Protocol):
    """What a request may wait for: a partition, or a share partition."""

    @property
    def watchers(self) -> Watchers: ...


class DelayedAnswer(Generic[R]):
    """An answer that is tried again whenever one of `partitions` grows, and given anyway when the time is over.

    attempt(last)  the response, or None to go on waiting; with last=True it must answer
    """

    __slots__ = ("_attempt", "_partitions", "_pending", "_timer")

    def __init__(self, attempt: Callable[[bool], R | None], partitions: Iterable[Watched]) -> None:
        self._attempt = attempt
        self._partitions = list(partitions)
        self._pending: Pending[R] = Pending()
        self._timer: Cancellable | None = None

    def begin(self, timers: Timers, wait_ms: int) -> Answer[R]:
        """Start to wait, at most `wait_ms`."""
        for partition in self._partitions:
            partition.watchers.add(self._look_again)
        self._timer = timers.call_later(wait_ms, self._time_over)
        return self._pending

    def give_up(self, response: R) -> None:
        """Answer with `response`, whatever there may be."""
        self._finish(response)

    def _look_again(self) -> None:
        response = self._attempt(False)
        if response is not None:
            self._finish(response)

    def _time_over(self) -> None:
        response = self._attempt(True)
        assert response is not None
        self._finish(response)

    def _finish(self, response: R) -> None:
        for partition in self._partitions:
            partition.watchers.discard(self._look_again)
        if self._timer is not None:
            self._timer.cancel()
        if not self._pending.done:
            self._pending.complete(response)
