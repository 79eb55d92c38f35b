"""Shared base of the asyncio clients: runs the core on the caller's event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.client.config import config_of
from ottla.client.core import Core
from ottla.client.forking import register
from ottla.client.loop import wait
from ottla.environment.client_process import client_process_environment
from ottla.net.scheduler import Promise

T = TypeVar("T")


class Asynchronous:
    """Client that is open until `close` or the end of its `async with` block.

    config   configs by Kafka's names: {"bootstrap.servers": "localhost:9092"}
    options  configs as keyword arguments: bootstrap_servers="localhost:9092"
    """

    def __init__(self, config: Mapping[str, Any] | None, options: Mapping[str, Any]) -> None:
        self.config = config_of(config, options)
        self._loop = asyncio.get_running_loop()
        self._core = Core(self.config, client_process_environment(self._loop))
        self._released = False  # True in a forked process, where there is nothing to close
        register(self)

    async def _run(self, coroutine: Coroutine[Promise[Any], None, T]) -> T:
        """Run a coroutine of the core and wait for it."""
        return await wait(self._core.scheduler, coroutine)

    def call_from_thread(self, function: Callable[[], T], timeout_s: float) -> T:
        """Call a function on the client's event loop, from any thread, and wait for it.

        Raises RuntimeError if the loop is closed, TimeoutError if it is busy for longer than `timeout_s`.
        """
        if _running_loop() is self._loop:
            return function()

        async def called() -> T:
            return function()

        coroutine = called()
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
        return self._released or self._core.network.closed

    async def close(self) -> None:
        """Close the client."""
        if not self._released:
            self._core.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs on this thread, None without one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
