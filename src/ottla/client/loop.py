"""Drivers of the client's core: run a coroutine of its scheduler, and wait for the result on an asyncio loop or in a thread.

`ottla.aio` runs the core on the caller's event loop (`wait`). The blocking classes run it on a `LoopThread` that all clients
of the process share (`call`, `run`). Sockets and threads come from `ottla.environment`.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from ottla.client.errors import IllegalState, KafkaError
from ottla.environment.thread import LoopEnded, LoopThread, Outcome, OwnThread
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Cancelled, Scheduler, Task

T = TypeVar("T")
_OWN_THREAD: Final = (
    "a callback of a client runs in the client's own thread, which cannot wait for itself: "
    "call from another thread, or use ottla.aio"
)


_CLOSED: Final = "the client is closed"
_FINALIZING: Final = (
    "the interpreter is ending, and with it the thread of the clients: close a client before the program ends, "
    "for example in a with block"
)


class Calls:
    """Calls of one client that wait for its core. They end with the client."""

    def __init__(self) -> None:
        self._tasks: dict[Deferred[Any], None] = {}  # in the order of their begin, in which they end, too
        self._ended: KafkaError | None = None
        self._is_over = False

    @property
    def is_ended(self) -> bool:
        """True once the client is closed, or being closed."""
        return self._ended is not None

    def start(self, scheduler: Scheduler, coroutine: Coroutine[Deferred[Any], Any, T]) -> Task[T]:
        """Start a coroutine for which a caller waits. On the core's thread."""
        task = scheduler.start(coroutine)
        if not task.done:
            self._tasks[task] = None
            if self._is_over:
                task.cancel()
        return task

    def settle(self, outcome: "asyncio.Future[T] | Outcome[T]", promise: Deferred[T]) -> None:
        """Set what a caller waits for to the outcome of its coroutine."""
        self._tasks.pop(promise, None)
        error = promise.error
        if error is None:
            outcome.set_result(promise.result())
        elif isinstance(error, Cancelled) and self._ended is not None:
            outcome.set_exception(self._ended)
        else:
            outcome.set_exception(error)

    def end(self, error: KafkaError, *, for_good: bool = False) -> None:
        """Cancel all, and with `for_good` those that start later; their callers get this error. On the core's thread."""
        self._ended = error
        self._is_over = self._is_over or for_good
        for task in list(self._tasks):
            if isinstance(task, Task):
                task.cancel()


def call(thread: LoopThread, function: Callable[[], T]) -> T:
    """Run a function on the core's thread; return its result, or raise its exception.

    Raises IllegalState on the core's own thread, which would wait for itself, and while the interpreter ends.
    """
    check_thread(thread)
    try:
        return thread.call(function)
    except LoopEnded:
        raise IllegalState(_CLOSED) from None


def run(thread: LoopThread, scheduler: Scheduler, coroutine: Coroutine[Deferred[Any], Any, T], calls: Calls) -> T:
    """Run a coroutine on the core's thread; return its result, or raise its exception. Cancel it when the wait is interrupted.

    Raises IllegalState on the core's own thread, which would wait for itself, and while the interpreter ends.
    """
    try:
        check_thread(thread)
    except IllegalState:
        coroutine.close()
        raise
    try:
        return thread.wait_for(
            lambda outcome: scheduler.run_event(lambda: _begin(scheduler, coroutine, calls, outcome))
        )
    except LoopEnded:
        coroutine.close()
        raise IllegalState(_CLOSED) from None


def _begin(
    scheduler: Scheduler, coroutine: Coroutine[Deferred[Any], Any, T], calls: Calls, outcome: Outcome[T]
) -> Callable[[], None]:
    """Start a coroutine; return a function that cancels it."""
    task = calls.start(scheduler, coroutine)
    if task.done:
        calls.settle(outcome, task)
    else:
        task.listen(partial(calls.settle, outcome))
    return task.cancel


async def wait(scheduler: Scheduler, coroutine: Coroutine[Deferred[Any], Any, T], calls: Calls) -> T:
    """Run a coroutine of the core on the running asyncio loop. Cancel it when the caller is cancelled."""
    task = calls.start(scheduler, coroutine)
    if task.done:
        return task.result()
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    task.listen(partial(_settle_future, calls, outcome))
    try:
        return await outcome
    except asyncio.CancelledError:
        task.cancel()
        raise


def _settle_future(calls: Calls, outcome: "asyncio.Future[T]", promise: Deferred[T]) -> None:
    if not outcome.cancelled():
        calls.settle(outcome, promise)


def check_thread(thread: LoopThread) -> None:
    """Raise IllegalState on the core's own thread, and while the interpreter ends: the core's thread does not run any more."""
    if sys.is_finalizing() or thread.is_over:
        raise IllegalState(_FINALIZING)
    try:
        thread.check_thread()
    except OwnThread:
        raise IllegalState(_OWN_THREAD) from None
