"""Drivers of the client's core: run a coroutine of its scheduler, and wait for the result on an asyncio loop or in a thread.

`ottla.aio` runs the core on the caller's event loop (`wait`). The blocking classes run it on a `LoopThread` that all clients
of the process share (`call`, `run`). Sockets and threads come from `ottla.environment`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from ottla.client.errors import IllegalState
from ottla.environment.thread import LoopThread, Outcome, OwnThread
from ottla.net.scheduler import Promise, Scheduler

T = TypeVar("T")
_OWN_THREAD: Final = (
    "a callback of a client runs in the client's own thread, which cannot wait for itself: "
    "call from another thread, or use ottla.aio"
)


def call(thread: LoopThread, function: Callable[[], T]) -> T:
    """Run a function on the core's thread; return its result, or raise its exception.

    Raises IllegalState on the core's own thread, which would wait for itself.
    """
    _check_thread(thread)
    return thread.call(function)


def run(thread: LoopThread, scheduler: Scheduler, coroutine: Coroutine[Promise[Any], None, T]) -> T:
    """Run a coroutine on the core's thread; return its result, or raise its exception. Cancel it when the wait is interrupted.

    Raises IllegalState on the core's own thread, which would wait for itself.
    """
    try:
        _check_thread(thread)
    except IllegalState:
        coroutine.close()
        raise

    return thread.wait_for(lambda outcome: _begin(scheduler, coroutine, outcome))


def _begin(
    scheduler: Scheduler, coroutine: Coroutine[Promise[Any], None, T], outcome: Outcome[T]
) -> Callable[[], None]:
    """Start a coroutine; return a function that cancels it."""
    task = scheduler.spawn(coroutine)
    task.listen(partial(_settle, outcome))
    return task.cancel


async def wait(scheduler: Scheduler, coroutine: Coroutine[Promise[Any], None, T]) -> T:
    """Run a coroutine of the core on the running asyncio loop. Cancel it when the caller is cancelled."""
    outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    task = scheduler.spawn(coroutine)
    task.listen(partial(_settle_future, outcome))
    try:
        return await outcome
    except asyncio.CancelledError:
        task.cancel()
        raise


def _settle_future(outcome: "asyncio.Future[T]", promise: Promise[T]) -> None:
    if not outcome.cancelled():
        _settle(outcome, promise)


def _settle(outcome: "asyncio.Future[T] | Outcome[T]", promise: Promise[T]) -> None:
    if promise.error is not None:
        outcome.set_exception(promise.error)
    else:
        outcome.set_result(promise.result())


def _check_thread(thread: LoopThread) -> None:
    try:
        thread.check_thread()
    except OwnThread:
        raise IllegalState(_OWN_THREAD) from None
