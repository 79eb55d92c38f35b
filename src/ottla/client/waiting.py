"""Shared base of the blocking clients: runs the core on an event loop in a shared thread, and waits for its results.

A file of its own, so that a command that sends one admin request does not load the producer and consumer.
"""

import math
import operator
import sys
import warnings
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ottla.client.config import ClientConfig, config_of
from ottla.client.core import Core
from ottla.client.ended import end
from ottla.client.errors import IllegalState
from ottla.client.forking import register
from ottla.client.loop import Calls, call, check_thread, run
from ottla.environment.thread import LoopThread
from ottla.tasks.deferred import Deferred

T = TypeVar("T")
Timeout = float | timedelta | None
"""Seconds, or a timedelta; infinite is no limit. None is no limit, or that of the configs, as the method says."""
_FOREVER_MS: Final = 2**40
DROPPED_MS: Final = 30_000
"""Time in which a client that was dropped without `close` sends its records and leaves its group."""


def seconds(timeout: Timeout) -> float | None:
    """Convert a timeout to seconds; None is no limit. Raises TypeError, ValueError for NaN."""
    if timeout is None:
        return None
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    try:
        if math.isnan(timeout):
            raise ValueError("a timeout is a number of seconds or a timedelta, not NaN")
    except TypeError:
        raise TypeError(f"a timeout is a number of seconds, a timedelta or None, not {timeout!r}") from None
    return None if timeout == math.inf else timeout


def milliseconds(timeout: Timeout) -> int:
    """Convert a timeout to ms; None is no limit. Raises TypeError, ValueError for NaN."""
    limit = seconds(timeout)
    return _FOREVER_MS if limit is None else int(min(max(limit * 1000, 0), _FOREVER_MS))


def limit_ms(timeout: Timeout) -> int | None:
    """Convert a timeout to ms; None selects the limit of the configs. Raises TypeError, ValueError for NaN."""
    return None if timeout is None else milliseconds(timeout)


def deadline_of(timeout: Timeout, now: float) -> float | None:
    """Return the end of a timeout that begins `now`, by the same clock in seconds; None without one."""
    limit = seconds(timeout)
    return None if limit is None else now + limit


def records_wanted(num_messages: int | None, default: int) -> int:
    """Return how many records a call may return. Raises TypeError, and ValueError for a negative number."""
    try:
        most = default if num_messages is None else operator.index(num_messages)
    except TypeError:
        raise TypeError(f"num_messages must be int or None, not {type(num_messages).__name__}") from None
    if most < 0:
        raise ValueError(f"the number of records is 0 or more, not {most}")
    return most


_PATCHERS: Final = (
    ("gevent", "gevent.monkey", "is_module_patched"),
    ("eventlet", "eventlet.patcher", "is_monkey_patched"),
)
"""Names of the libraries that replace threads, of their modules, and of the functions that say so."""


def check_threads() -> None:
    """Raise IllegalState where threads are replaced by greenlets: a call would wait for ever for the thread of the clients."""
    for library, module, is_patched in _PATCHERS:
        patcher = sys.modules.get(module)
        if patcher is not None and getattr(patcher, is_patched)("threading" if library == "gevent" else "thread"):
            raise IllegalState(
                f"{library} has replaced threads, of which a client needs one: patch with thread=False, "
                "after which a call of a client holds all greenlets up, or use ottla.aio"
            )


def closed_message(client: object) -> str:
    """Return the message of the error of a call of a closed client."""
    return f"this {type(client).__name__} is closed"


def warn_of_dropped(client: object, config: ClientConfig) -> None:
    """Warn that a client was dropped without `close`."""
    name = f"{type(client).__name__} {config['client.id']}".rstrip()
    message = f"unclosed {name}: call close(), or use it in a with block"
    warnings.warn(message, ResourceWarning, stacklevel=3, source=client)


async def finish(closing: Coroutine[Deferred[Any], Any, object] | None, core: Core) -> None:
    """Close the core of a client that was dropped, after what its `close` would have done."""
    try:
        if closing is not None:
            await closing
    finally:
        core.close()


class Blocking:
    """Client that is open until `close` or the end of its `with` block.

    A client that is dropped while it is open ends in the background, with a ResourceWarning.

    config   configs by Kafka's names: {"bootstrap.servers": "localhost:9092"}; or a ClientConfig
    options  configs as keyword arguments: bootstrap_servers="localhost:9092"
    """

    _ends_waits_first = False
    """True if calls that wait for records in other threads end before the client closes, not after."""
    _released = True  # until the client is open: `__del__` runs for one that could not be made, too

    def __init__(self, config: Mapping[str, Any] | ClientConfig | None, options: Mapping[str, Any]) -> None:
        self.config = config_of(config, options)
        check_threads()
        self._thread = LoopThread.acquire("ottla-client")
        self._calls = Calls()
        try:
            self._core = call(self._thread, lambda: Core(self.config, self._thread.environment))
        except BaseException:
            self._thread.release()
            raise
        self._scheduler = self._core.scheduler
        self._released = False
        self._is_closing = False
        register(self)

    def _call(self, function: Callable[[], T]) -> T:
        """Run a function on the core's thread."""
        event: Callable[[], T] = partial(self._scheduler.run_event, function)
        return call(self._thread, event)

    def _run(self, coroutine: Coroutine[Deferred[Any], Any, T]) -> T:
        """Run a coroutine of the core and wait for it."""
        try:
            thread, scheduler = self._thread, self._core.scheduler
        except IllegalState:  # another thread has closed the client
            coroutine.close()
            raise
        return run(thread, scheduler, coroutine, self._calls)

    def _make_part(self, make: Callable[[], T]) -> T:
        """Make a part of the client on the core's thread; release the client if that fails."""
        try:
            return self._call(make)
        except BaseException:
            self._release()
            raise

    def client_instance_id(self, timeout: Timeout = 30.0) -> str | None:
        """Return the id under which this client pushes its metrics (KIP-714), which a broker has chosen.

        None if no broker did within `timeout` seconds: it takes no metrics. Raises IllegalState with
        enable.metrics.push=false, BrokersUnreachable.
        """
        from ottla.client.telemetry.instance import client_instance_id

        return self._run(client_instance_id(self._core, milliseconds(timeout)))

    def _closing(self, timeout_ms: int) -> Coroutine[Deferred[Any], Any, object] | None:
        """Return the coroutine that ends the work of the client before its connections are closed; None without any."""
        del timeout_ms
        return None

    def _check(self) -> None:
        """Raise IllegalState if the client is closed."""
        if self._released:
            self._core.close()  # what has taken its place raises

    def _unless_closed(self, function: Callable[[], T]) -> T | None:
        """Call a method of the client; return None if another thread closes the client meanwhile."""
        try:
            return function()
        except IllegalState:
            if not self._calls.is_ended:
                raise
            return None

    def _close(self, timeout_ms: int) -> None:
        """End the work of the client, and release what it holds; does nothing for a closed client."""
        if self._released:
            return
        if sys.is_finalizing() or self._thread.has_ended:
            self._released = True  # its thread does not run any more, and the process ends
            return
        check_thread(self._thread)
        try:
            if self._ends_waits_first:
                self._call(self._end_waits)
            closing = self._closing(timeout_ms)
            if closing is not None:
                self._run(closing)
        except IllegalState:
            if not self._released:  # else another thread has closed it meanwhile
                raise
        finally:
            self._release()

    def _end_waits(self) -> None:
        """End the calls that wait, once: one that closes the client at the same time waits to its end."""
        if not self._is_closing:
            self._is_closing = True
            self._calls.end(IllegalState(closed_message(self)))

    def _release(self) -> None:
        """Close the connections, end calls that wait in other threads, and release the shared thread."""
        thread, core, message = self._thread, self._core, closed_message(self)

        def release() -> bool:
            """Return False if another thread has released the client."""
            if self._released:
                return False
            self._released = True
            self._calls.end(IllegalState(message), for_good=True)
            core.close()
            return True

        try:
            is_first = call(thread, release)
        except IllegalState:
            if not self._released:
                raise
            return
        if is_first:
            end(self, message)
            thread.release()

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._released

    def close(self) -> None:
        """Close the client."""
        self._close(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not (self._released or sys.is_finalizing() or self._thread.has_ended):
            self._drop()
            warn_of_dropped(self, self.config)

    def _drop(self) -> None:
        """End the client in the background."""
        self._released = True
        thread, core = self._thread, self._core
        # Only queued, whatever thread collects garbage: it may be that of the core.
        closing = self._closing(DROPPED_MS)

        def close() -> None:
            task = core.scheduler.background(finish(closing, core), "close")
            task.listen(lambda _: thread.release())

        thread.post(close)
