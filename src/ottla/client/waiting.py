"""Shared base of the blocking clients: runs the core on an event loop in a shared thread, and waits for its results.

A file of its own, so that a command that sends one admin request does not load the producer and consumer.
"""

from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from ottla.client.config import ClientConfig, config_of
from ottla.client.core import Core
from ottla.client.forking import register
from ottla.client.loop import call, run
from ottla.environment.thread import LoopThread
from ottla.net.scheduler import Promise

T = TypeVar("T")
_FOREVER_MS = 2**40


def milliseconds(seconds: float | None) -> int:
    """Convert a timeout from seconds to ms; None is no limit."""
    return _FOREVER_MS if seconds is None else max(int(seconds * 1000), 0)


def limit_ms(seconds: float | None) -> int | None:
    """Convert a timeout from seconds to ms; None selects the limit of the configs."""
    return None if seconds is None else milliseconds(seconds)


class Blocking:
    """Client that is open until `close` or the end of its `with` block.

    config   configs by Kafka's names: {"bootstrap.servers": "localhost:9092"}; or a ClientConfig
    options  configs as keyword arguments: bootstrap_servers="localhost:9092"
    """

    def __init__(self, config: Mapping[str, Any] | ClientConfig | None, options: Mapping[str, Any]) -> None:
        self.config = config_of(config, options)
        self._thread = LoopThread.acquire("ottla-client")
        self._released = False
        self._core = self._call(lambda: Core(self.config, self._thread.environment))
        register(self)

    def _call(self, function: Callable[[], T]) -> T:
        """Run a function on the core's thread."""
        return call(self._thread, function)

    def _run(self, coroutine: Coroutine[Promise[Any], None, T]) -> T:
        """Run a coroutine of the core and wait for it."""
        return run(self._thread, self._core.scheduler, coroutine)

    def _release(self) -> None:
        """Close the connections and release the shared thread."""
        if not self._released:
            self._released = True
            self._call(self._core.close)
            self._thread.release()

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._released

    def close(self) -> None:
        """Close the client."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
