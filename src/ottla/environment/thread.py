"""An asyncio event loop in a thread of its own, for code that blocks.

All users in a process share one thread: it is started with the first user and ends with the last. A forked process starts one
of its own with its first user.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.environment.process import process_environment

T = TypeVar("T")


class OwnThread(RuntimeError):
    """A call from the loop's thread that would wait for that thread."""


class LoopThread:
    """An event loop in a thread.

    `acquire` and `release` count its users: the first starts the thread, the last ends it.
    """

    _shared: "LoopThread | None" = None
    _guard = threading.Lock()
    _parents: "LoopThread | None" = None
    """The parent's, in a forked process: kept, because its finalizer would close what the parent uses."""

    def __init__(self, name: str) -> None:
        self.loop = _new_loop()
        self.environment = process_environment(self.loop)
        self._users = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls, name: str) -> "LoopThread":
        """Return the loop of this process, with one more user. `name` is that of the thread if it is started now."""
        with cls._guard:
            if cls._shared is None:
                cls._shared = LoopThread(name)
            cls._shared._users += 1
            return cls._shared

    def release(self) -> None:
        """Remove a user; the last one ends the thread."""
        with self._guard:
            self._users -= 1
            if self._users:
                return
            if LoopThread._shared is self:
                LoopThread._shared = None
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @classmethod
    def forget(cls) -> None:
        """In a forked process: the thread is the parent's, and so is the lock if another thread held it during the fork."""
        cls._parents = cls._shared
        cls._shared = None
        cls._guard = threading.Lock()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()

    def call(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Run a function on the loop's thread; what it returns or raises. TimeoutError after `timeout` seconds.

        Raises OwnThread on the loop's own thread, which would wait for itself.
        """
        self.check_thread()
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:  # noqa: BLE001  (it is the caller's)
                outcome.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return outcome.result(timeout)

    def wait_for(self, begin: Callable[["concurrent.futures.Future[T]"], Callable[[], None]]) -> T:
        """Run `begin(outcome)` on the loop's thread, and wait for the outcome; return its result, or raise its exception.

        begin  starts the work, which sets the outcome later, and returns a function that cancels it; that is called on the
               loop's thread when the wait is interrupted

        Raises OwnThread on the loop's own thread, which would wait for itself.
        """
        self.check_thread()
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        cancels: list[Callable[[], None]] = []
        self.loop.call_soon_threadsafe(lambda: cancels.append(begin(outcome)))
        try:
            return outcome.result()
        except BaseException:
            if not outcome.done():
                self.loop.call_soon_threadsafe(lambda: cancels[0]() if cancels else None)
            raise

    def post(self, function: Callable[..., object], *arguments: Any) -> None:
        """Run a function on the loop's thread, and do not wait for it. Raises RuntimeError when the loop is closed."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def check_thread(self) -> None:
        """Raise OwnThread on the loop's own thread."""
        if threading.get_ident() == self._thread.ident:
            raise OwnThread("a call from the thread of the event loop would wait for itself")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LoopThread.forget)


def _new_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
