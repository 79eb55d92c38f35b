"""The environment of a process with an asyncio loop."""

import asyncio
import time
from collections.abc import Callable

from ottla.environment import Cancellable, Clock, Environment, Random, Timers
from ottla.environment.disk import DiskStore
from ottla.environment.files import Store
from ottla.environment.listening import SocketListen
from ottla.environment.system import SystemClock, SystemRandom, resolved_address
from ottla.environment.workers import ThreadWorkers


class LoopTimers:
    """Timers of an asyncio loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        return self._loop.call_later(delay_ms / 1000, callback)


def process_environment(
    loop: asyncio.AbstractEventLoop,
    *,
    clock: Clock | None = None,
    random: Random | None = None,
    timers: Timers | None = None,
    files: Store | None = None,
) -> Environment:
    """Return the environment of this process on `loop`; parts of it are replaced by those that are given."""
    return Environment(
        clock or SystemClock(),
        time.perf_counter_ns,
        random or SystemRandom(),
        timers or LoopTimers(loop),
        resolved_address,
        SocketListen(loop),
        ThreadWorkers(loop),
        files or DiskStore(),
    )
