"""Coroutine scheduler without an event loop: the client's core uses `await`, but not asyncio.

Strategy. A future value is a `Promise`. A coroutine that awaits one passes it to the scheduler, which resumes the coroutine
when the promise has an outcome. Nothing in this file blocks: outcomes come from readable sockets and timers, which belong to
the environment (`environment/asyncio_transport.py`), or to a test with a virtual clock.

    caller --- spawn(coroutine) ---> Task ---- await promise ----> listens
                                      ^                              |
                                      +---- ready, in order <--------+

Everything runs on one thread. A task that becomes ready while another runs is queued, so code is never re-entered and the
stack stays flat. A task ends by returning, by raising, or by `cancel`, which raises Cancelled at its current `await`. The
caller of `spawn` handles the task's outcome; an error of a background task goes to `unheard`.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any, Generic, TypeVar

from ottla.environment import Cancellable, Clock, Timers
from ottla.protocol.answer import Answer, Pending

T = TypeVar("T")


class Cancelled(BaseException):
    """Raised at the current `await` of a task that is cancelled."""


class Promise(Generic[T]):
    """Future value, or the error in its place."""

    __slots__ = ("_error", "_listeners", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._listeners: list[Callable[[Promise[T]], object]] | None = None

    def keep(self, value: T) -> None:
        """Set the value. Only the first outcome counts."""
        if not self.done:
            self.done = True
            self._value = value
            self._notify()

    def fail(self, error: BaseException) -> None:
        """Set the error. Only the first outcome counts."""
        if not self.done:
            self.done = True
            self._error = error
            self._notify()

    def _notify(self) -> None:
        listeners, self._listeners = self._listeners, None
        for listener in listeners or ():
            listener(self)

    def listen(self, listener: Callable[["Promise[T]"], object]) -> None:
        """Call `listener(promise)` once there is an outcome; at once if there is one already."""
        if self.done:
            listener(self)
        elif self._listeners is None:
            self._listeners = [listener]
        else:
            self._listeners.append(listener)

    @property
    def is_awaited(self) -> bool:
        """True if there are listeners and no outcome yet."""
        return bool(self._listeners)

    def ignore(self, listener: Callable[["Promise[T]"], object]) -> None:
        """Remove a listener."""
        if self._listeners is not None and listener in self._listeners:
            self._listeners.remove(listener)

    @property
    def error(self) -> BaseException | None:
        """Return the error of the promise; None before the outcome, and after a value."""
        return self._error

    def result(self) -> T:
        """Return the value, or raise the error. Only for a promise with an outcome."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def __await__(self) -> Generator["Promise[Any]", BaseException | None, T]:
        """Wait. What is sent instead of None is raised here: all awaits of tasks end in this one.

        `throw` would do the same, but compiled coroutines hand it on with three arguments, which Python 3.12 warns of.
        """
        if not self.done:
            interrupt = yield self
            if interrupt is not None:
                raise interrupt
        return self.result()


def kept(value: T) -> Promise[T]:
    """Return a promise that already has this value."""
    promise: Promise[T] = Promise()
    promise.keep(value)
    return promise


def awaited(answer: Answer[T]) -> Promise[T]:
    """Return a promise of an answer; its error is RuntimeError if the answer is abandoned."""
    promise: Promise[T] = Promise()
    if isinstance(answer, Pending):
        answer.listen(promise.keep, lambda: promise.fail(RuntimeError("the request was abandoned")))
    else:
        promise.keep(answer)
    return promise


class Task(Promise[T]):
    """Running coroutine; as a promise its outcome is the result of the coroutine."""

    __slots__ = ("_coroutine", "_has_begun", "_scheduler", "_waits_for", "name")

    def __init__(self, scheduler: "Scheduler", coroutine: Coroutine[Promise[Any], Any, T], name: str) -> None:
        super().__init__()
        self.name = name
        self._scheduler = scheduler
        self._coroutine = coroutine
        self._waits_for: Promise[Any] | None = None
        self._has_begun = False

    def cancel(self) -> None:
        """Cancel the task: Cancelled is raised at its current `await` in a later step."""
        if self.done:
            return
        if self._waits_for is not None:
            self._waits_for.ignore(self._wake)
            self._waits_for = None
        self._scheduler.ready(self, Cancelled(self.name))

    def _wake(self, promise: Promise[Any]) -> None:
        del promise
        self._waits_for = None
        self._scheduler.ready(self, None)

    def step(self, interrupt: BaseException | None) -> None:
        """Run the coroutine up to its next wait, or to its end."""
        if self.done:
            return
        if interrupt is not None and not self._has_begun:
            self._coroutine.close()
            self.fail(interrupt)
            return
        self._has_begun = True
        try:
            waits_for = self._coroutine.send(interrupt)
        except StopIteration as end:
            self.keep(end.value)
        except Cancelled as cancelled:
            self.fail(cancelled)
        except Exception as error:  # noqa: BLE001  (it is handed to whoever waits for the task)
            self.fail(error)
        else:
            self._waits_for = waits_for
            waits_for.listen(self._wake)


class Scheduler:
    """Runs tasks and timers. One thread only.

    unheard  called with (name, error) when a background task raises
    """

    def __init__(
        self, clock: Clock, timers: Timers, unheard: Callable[[str, BaseException], None] | None = None
    ) -> None:
        self.clock = clock
        self.unheard = unheard or _pass_over
        self._timers = timers
        self._ready: deque[tuple[Task[Any], BaseException | None]] = deque()
        self._running = False

    def spawn(self, coroutine: Coroutine[Promise[Any], Any, T], name: str = "") -> Task[T]:
        """Start a coroutine; it runs at once up to its first wait, unless another task is running."""
        task = Task(self, coroutine, name)
        self.ready(task, None)
        return task

    def background(self, coroutine: Coroutine[Promise[Any], Any, T], name: str) -> Task[T]:
        """Start a coroutine without a waiter; its error goes to `unheard`."""

        def ended(promise: Promise[Any]) -> None:
            if isinstance(promise.error, Exception):
                self.unheard(name, promise.error)

        task = Task(self, coroutine, name)
        task.listen(ended)
        self.ready(task, None)
        return task

    def ready(self, task: Task[Any], interrupt: BaseException | None) -> None:
        """Queue a task for its next step."""
        self._ready.append((task, interrupt))
        if self._running:
            return
        self._running = True
        try:
            while self._ready:
                following, raised = self._ready.popleft()
                following.step(raised)
        finally:
            self._running = False

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        """Call `callback` once, after `delay_ms`."""
        return self._timers.call_later(max(delay_ms, 0), callback)

    async def sleep(self, delay_ms: int) -> None:
        """Wait for `delay_ms`."""
        promise: Promise[None] = Promise()
        timer = self._timers.call_later(max(delay_ms, 0), lambda: promise.keep(None))
        try:
            await promise
        finally:
            timer.cancel()

    async def within(self, promise: Promise[Any], delay_ms: int, *others: Promise[Any]) -> bool:
        """Wait up to `delay_ms` for an outcome of any of these promises. Return True if `promise` has one."""
        either: Promise[None] = Promise()

        def arrived(_: object = None) -> None:
            either.keep(None)

        awaited = (promise, *others)
        for candidate in awaited:
            if candidate.done:
                return promise.done
        for candidate in awaited:
            candidate.listen(arrived)
        timer = self._timers.call_later(max(delay_ms, 0), arrived)
        try:
            await either
        finally:
            timer.cancel()
            for candidate in awaited:
                candidate.ignore(arrived)
        return promise.done

    async def every(self, coroutines: Iterable[Coroutine[Promise[Any], Any, T]]) -> list[T]:
        """Run coroutines concurrently; return their results in order. Raises the first error once all have ended."""
        tasks = [self.spawn(coroutine) for coroutine in coroutines]
        try:
            for task in tasks:
                if not task.done:
                    await _outcome(task)
        except Cancelled:
            for task in tasks:
                task.cancel()
            raise
        return [task.result() for task in tasks]


def _pass_over(name: str, error: BaseException) -> None:
    """Ignore an error."""


async def _outcome(promise: Promise[Any]) -> None:
    """Wait for an outcome of any kind."""
    done: Promise[None] = Promise()
    promise.listen(lambda _: done.keep(None))
    await done


class Signal:
    """Recurring event; a waiter waits for the next occurrence."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: Promise[None] = Promise()

    def wait(self) -> Promise[None]:
        """Return a promise that is kept at the next occurrence."""
        return self._next

    @property
    def is_awaited(self) -> bool:
        """True if a waiter waits for the next occurrence."""
        return self._next.is_awaited

    def happen(self) -> None:
        """Keep the promises of all waiters."""
        happened, self._next = self._next, Promise()
        happened.keep(None)
