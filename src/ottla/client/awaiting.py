"""Shared base of the asyncio clients: runs the core on the caller's event loop."""

import asyncio
import sys
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.client.calls import checked
from ottla.client.config import config_of
from ottla.client.core import Core
from ottla.client.ended import end
from ottla.client.errors import IllegalState
from ottla.client.forking import register
from ottla.client.loop import Calls, wait
from ottla.client.waiting import DROPPED_MS, Timeout, closed_message, finish, milliseconds, warn_of_dropped
from ottla.environment.client_process import client_process_environment
from ottla.tasks.deferred import Deferred

T = TypeVar("T")


class Asynchronous:
    """Client that is open until `close` or the end of its `async with` block. It is used in the event loop that it was made in.

    A client that is dropped while it is open ends in the background, with a ResourceWarning.

    config   configs by Kafka's names: {"bootstrap.servers": "localhost:9092"}
    options  configs as keyword arguments: bootstrap_servers="localhost:9092"
    """

    _ends_waits_first = False
    """True if calls that wait for records in other tasks end before the client closes, not after."""
    _released = True  # until the client is open: `__del__` runs for one that could not be made, too

    def __init__(self, config: Mapping[str, Any] | None, options: Mapping[str, Any]) -> None:
        self.config = config_of(config, options)
        self._loop = asyncio.get_running_loop()
        self._calls = Calls()
        self._core = Core(self.config, client_process_environment(self._loop))
        self._released = False  # True in a forked process, too, where there is nothing to close
        register(self)

    def _check(self) -> None:
        """Raise IllegalState if the client is closed, or used in another event loop than its own."""
        running = _get_running_loop()
        if running is not self._loop:
            self._refuse(running)

    def _refuse(self, running: asyncio.AbstractEventLoop | None) -> None:
        loop = self._loop
        if loop.is_closed() or running is not None:  # that of a closed client raises IllegalState
            name = type(self).__name__
            raise IllegalState(f"this {name} was made in another event loop: make one in each event loop that uses it")

    async def _run(self, coroutine: Coroutine[Deferred[Any], Any, T]) -> T:
        """Run a coroutine of the core and wait for it."""
        try:
            self._check()
            scheduler = self._core.scheduler
        except IllegalState:
            coroutine.close()
            raise
        return await wait(scheduler, coroutine, self._calls)

    def _make_part(self, make: Callable[[], T]) -> T:
        """Make a part of the client; release the client if that fails."""
        try:
            return make()
        except BaseException:
            self._release()
            raise

    async def client_instance_id(self, timeout: Timeout = 30.0) -> str | None:
        """Return the id under which this client pushes its metrics (KIP-714), which a broker has chosen.

        None if no broker did within `timeout` seconds: it takes no metrics. Raises IllegalState with
        enable.metrics.push=false, BrokersUnreachable.
        """
        from ottla.client.telemetry.instance import client_instance_id

        return await self._run(client_instance_id(self._core, milliseconds(timeout)))

    def _closing(self, timeout_ms: int) -> Coroutine[Deferred[Any], Any, object] | None:
        """Return the coroutine that ends the work of the client before its connections are closed; None without any."""
        del timeout_ms
        return None

    async def _unless_closed(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """Call a method of the client; return None if another task closes the client meanwhile."""
        try:
            return await function()
        except IllegalState:
            if not self._calls.is_ended:
                raise
            return None

    async def _close(self, timeout_ms: int) -> None:
        """End the work of the client, and release what it holds; does nothing for a closed client."""
        if self._released:
            return
        self._check()
        try:
            if self._ends_waits_first:
                self._calls.end(IllegalState(closed_message(self)))
            closing = self._closing(timeout_ms)
            if closing is not None:
                await self._run(closing)
        except IllegalState:
            if not self._released:  # else another task has closed it meanwhile
                raise
        finally:
            self._release()

    def _release(self) -> None:
        """Close the connections, and end calls that wait in other tasks."""
        if self._released:
            return
        self._released = True
        message = closed_message(self)
        self._calls.end(IllegalState(message), for_good=True)
        self._core.close()
        end(self, message)

    @checked
    def call_from_thread(self, function: Callable[[], T], timeout_s: float) -> T:
        """Call a function on the client's event loop, from any thread, and wait for it.

        Raises IllegalState if the client is closed, RuntimeError if its loop is, TimeoutError if that is busy for longer than
        `timeout_s`.
        """
        if _get_running_loop() is self._loop:
            return function()

        async def call() -> T:
            return function()

        coroutine = call()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._released

    async def close(self) -> None:
        """Close the client."""
        await self._close(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self._released or sys.is_finalizing():
            return
        self._released = True
        if not self._loop.is_closed():
            core = self._core
            closing = self._closing(DROPPED_MS)
            # Only queued, whatever thread collects garbage.
            self._loop.call_soon_threadsafe(lambda: core.scheduler.background(finish(closing, core), "close"))
        warn_of_dropped(self, self.config)
