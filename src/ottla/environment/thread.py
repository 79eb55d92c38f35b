"""Asyncio event loop in a background thread, for blocking code.

All users in a process share one thread: it starts with the first user and ends with the last. A forked process starts its
own thread with its first user.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, TypeVar

from mypy_extensions import mypyc_attr

from ottla.environment.client_process import client_process_environment

T = TypeVar("T")
_LOOP_ENDED: Final = "the event loop of the thread has ended"
_LONGEST_STOP_S: Final = 2.0
"""Time that the end of the program waits for a loop, which may be in a callback of the application."""
_never: Final = threading.Lock()
_never.acquire()


@mypyc_attr(native_class=False)  # native classes derive from no exception
class OwnThread(RuntimeError):
    """A call on the loop's thread would wait for that thread, and block for ever."""


@mypyc_attr(native_class=False)
class LoopEnded(RuntimeError):
    """The event loop has ended before a call was made there."""


class Outcome(Generic[T]):
    """Result or exception of work on another thread, which one thread waits for.

    A lock in place of the condition of a `concurrent.futures.Future` saves some 3 µs of each wait.
    """

    __slots__ = ("_error", "_lock", "_result")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._error: BaseException | None = None
        self._result: Any = None

    def set_result(self, result: T) -> None:
        """Set the result. Called once, or `set_exception` is."""
        self._result = result
        self._lock.release()

    def set_exception(self, error: BaseException) -> None:
        """Set an exception."""
        self._error = error
        self._lock.release()

    def done(self) -> bool:
        """Return True if there is a result or an exception."""
        return not self._lock.locked()

    def result(self, timeout: float | None = None) -> T:
        """Wait; return the result or raise the exception. Raises TimeoutError after `timeout` seconds."""
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise TimeoutError
        self._lock.release()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # its traceback refers to this object
        result: T = self._result
        return result


class LoopThread:
    """Event loop in a thread.

    `acquire` and `release` count its users: the first starts the thread, the last ends it.

    has_ended  True from the end of the program on, for a loop that still has users then
    """

    _running: ClassVar["set[LoopThread]"] = set()
    _shared: "ClassVar[LoopThread | None]" = None
    _guard: ClassVar[threading.Lock] = threading.Lock()
    _parents: ClassVar["set[LoopThread]"] = set()
    """Loop threads of the parent, in a forked process: kept, as a finalizer would close descriptors that the parent uses."""

    def __init__(self, name: str) -> None:
        self.loop = _new_loop()
        self.environment = client_process_environment(self.loop)
        self._users = 0
        self._waiting: set[Outcome[Any]] = set()
        self.has_ended = False
        self._stopped = threading.Event()
        LoopThread._running.add(self)
        self._runner = threading.Thread(target=self._run, name=name, daemon=True)
        self._runner.start()
        self._ident = self._runner.ident

    @classmethod
    def acquire(cls, name: str) -> "LoopThread":
        """Add a user and return the loop of this process. `name` is the name of the thread if it is started now."""
        with cls._guard:
            if cls._shared is None:
                cls._shared = LoopThread(name)
            cls._shared._users += 1
            return cls._shared

    @classmethod
    def own(cls, name: str) -> "LoopThread":
        """Start a thread with one user, which no other one shares."""
        thread = LoopThread(name)
        thread._users = 1
        return thread

    def release(self) -> None:
        """Remove a user; the last one ends the thread."""
        if self.has_ended:
            return
        with self._guard:
            self._users -= 1
            if self._users:
                return
            if LoopThread._shared is self:
                LoopThread._shared = None
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._runner:
            self._runner.join()

    @classmethod
    def forget(cls) -> None:
        """Reset the state in a forked process: its thread does not exist, and the lock may have been held during the fork."""
        cls._parents = cls._running
        cls._running = set()
        cls._shared = None
        cls._guard = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Return whether the calling thread ends the program: what it waited for here would never come."""
        return self.has_ended and threading.current_thread() is threading.main_thread()

    @classmethod
    def end_program(cls) -> None:
        """Stop the loops that still run, at the end of the program.

        uvloop calls Python where it has waited, which is a segmentation fault once the interpreter is gone. The threads stay,
        as those of daemons do: nothing is closed, and no thread that waits for a client is woken by an error.
        """
        with cls._guard:
            running = list(cls._running)
            for thread in running:
                if not thread._stopped.is_set():
                    thread.has_ended = True
                    thread.loop.call_soon_threadsafe(thread.loop.stop)
        for thread in running:
            if thread.has_ended:
                thread._stopped.wait(_LONGEST_STOP_S)
            else:  # its last user has just released it
                thread._runner.join(_LONGEST_STOP_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            with self._guard:
                self._stopped.set()
            if self.has_ended:
                _never.acquire()
            pending = asyncio.all_tasks(self.loop)
            for task in pending:
                task.cancel()
            if (
                pending
            ):  # without tasks gather asks for the thread's loop, which a policy that was set meanwhile does not know
                self.loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()
            LoopThread._running.discard(self)
            for outcome in list(self._waiting):  # posted while the loop ended, and never begun
                if not outcome.done():
                    outcome.set_exception(LoopEnded(_LOOP_ENDED))

    def call(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Run a function on the loop's thread; return its result or raise its exception. TimeoutError after `timeout` seconds.

        Raises OwnThread on the loop's own thread, LoopEnded.
        """
        self.check_thread()
        outcome: Outcome[T] = Outcome()

        def run() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:  # noqa: BLE001  (it is the caller's)
                outcome.set_exception(error)

        self._post_for(outcome, run)
        try:
            return outcome.result(timeout)
        finally:
            self._waiting.discard(outcome)

    def wait_for(self, begin: Callable[[Outcome[T]], Callable[[], None]]) -> T:
        """Run `begin(outcome)` on the loop's thread, and wait for the outcome; return its result, or raise its exception.

        begin  starts the work, which sets the outcome later, and returns a function that cancels it; that is called on the
               loop's thread when the wait is interrupted

        Not on the loop's own thread, see `check_thread`: the wait would have no end. Raises LoopEnded.
        """
        outcome: Outcome[T] = Outcome()
        cancels: list[Callable[[], None]] = []
        self._post_for(outcome, lambda: cancels.append(begin(outcome)))
        try:
            return outcome.result()
        except BaseException:
            if not outcome.done():
                self.post(lambda: cancels[0]() if cancels else None)
            raise
        finally:
            self._waiting.discard(outcome)

    def _post_for(self, outcome: Outcome[Any], function: Callable[[], object]) -> None:
        """Post a function for whose outcome a thread waits."""
        if self.is_over:
            raise LoopEnded(_LOOP_ENDED)
        self._waiting.add(outcome)
        try:
            self.post(function)
        except RuntimeError:
            self._waiting.discard(outcome)
            raise LoopEnded(_LOOP_ENDED) from None

    def post(self, function: Callable[[], object]) -> None:
        """Run a function on the loop's thread without waiting for it, in the order of the calls. Raises RuntimeError if the
        loop is closed.
        """
        self.loop.call_soon_threadsafe(function)

    def check_thread(self) -> None:
        """Raise OwnThread on the loop's own thread."""
        if threading.get_ident() == self._ident:
            raise OwnThread("a call from the thread of the event loop would wait for itself")


atexit.register(LoopThread.end_program)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LoopThread.forget)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Create an event loop, that of uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
