"""Blocking calls of a client on threads, for asyncio.

Calls of a client run one after another: a call that waits long is made in slices, between which others have their turn. A
callback is a coroutine of the event loop; the thread that runs the call waits for it, and meanwhile makes the calls that the
callback awaits, so that a callback may use its client.
"""

import asyncio
import queue
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from typing import Any, Final, TypeVar

T = TypeVar("T")
_CALLBACKS: Final = ("error_cb", "stats_cb", "throttle_cb", "on_commit")


class _Inbox:
    """Calls that a thread makes while it waits for a callback.

    calls  the calls of the client whose callback it is
    """

    def __init__(self, calls: "Calls") -> None:
        self.calls = calls
        self.is_open = True
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    async def run(self, function: Callable[[], T]) -> T:
        """Have the thread call a function; return its result."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001  (the callback gets it)
                loop.call_soon_threadsafe(done.set_exception, error)
            else:
                loop.call_soon_threadsafe(done.set_result, result)

        self._waiting.put(call)
        return await done

    def close(self) -> None:
        """End the wait of the thread."""
        self.is_open = False
        self._waiting.put(None)

    def serve(self) -> None:
        """Make calls until the callback has ended. Called by the thread."""
        while (call := self._waiting.get()) is not None:
            call()


_inbox: ContextVar[_Inbox | None] = ContextVar("ottla_compat_inbox", default=None)


class Calls:
    """Blocking calls of one client.

    executor  its threads; a new one with `max_workers` threads by default, which ends with the client
    """

    def __init__(self, executor: Executor | None, max_workers: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_own = executor is None
        self.executor = executor or ThreadPoolExecutor(max_workers, "ottla-aio")
        self._turn = asyncio.Lock()

    async def run(
        self, function: Callable[..., T], *args: Any, keep: Callable[[T], None] | None = None, **named: Any
    ) -> T:
        """Call a function on a thread, in its turn; return its result.

        keep  called with the result after the task was cancelled
        """
        call = partial(function, *args, **named)
        inbox = _inbox.get()
        if inbox is not None and inbox.calls is self and inbox.is_open:
            return await inbox.run(call)
        await self._turn.acquire()
        # The turn ends when the result is with the task, or kept: the next call may take what comes after it.
        is_over = True
        try:
            future = self.loop.run_in_executor(self.executor, call)
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                is_over = False
                future.add_done_callback(partial(self._keep, keep))
                raise
        finally:
            if is_over:
                self._turn.release()

    def _keep(self, keep: Callable[[Any], None] | None, future: "asyncio.Future[Any]") -> None:
        """Keep the result of a call after its task was cancelled; its error is dropped."""
        if not future.cancelled() and future.exception() is None and keep is not None:
            keep(future.result())
        self._turn.release()

    def wrap_callbacks(self, conf: dict[str, Any]) -> dict[str, Any]:
        """Return configs with callbacks that a thread may call."""
        return {
            name: self.callback(value) if name in _CALLBACKS and value is not None else value
            for name, value in conf.items()
        }

    def callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function for threads, which has a callback run on the event loop, and waits for it."""

        def call_on_loop(*args: Any) -> Any:
            inbox = _Inbox(self)

            async def run() -> Any:
                _inbox.set(inbox)
                try:
                    return await awaited(function(*args))
                finally:
                    inbox.close()

            future = asyncio.run_coroutine_threadsafe(run(), self.loop)
            inbox.serve()
            return future.result()

        return call_on_loop

    async def close(self) -> None:
        """End the threads, if they are the client's own."""
        if self.is_own:
            await self.loop.run_in_executor(None, self.executor.shutdown)


async def awaited(value: Awaitable[Any] | Any) -> Any:
    """Return a value, or what it returns when it is awaited."""
    return await value if isinstance(value, Awaitable) else value


def forwarded(name: str, client: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return a method that calls a blocking one on a thread.

    name    the method
    client  attribute with the blocking client
    """

    async def method(self: Any, *args: Any, **named: Any) -> Any:
        return await self._call(getattr(getattr(self, client), name), *args, **named)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"Call `{name}` of the blocking client."
    return method
