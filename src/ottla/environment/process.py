"""Environment of a process with an asyncio event loop."""

import asyncio
import time

from ottla.environment import Clock, Environment, Random, Timers
from ottla.environment.asyncio_transport import AsyncioTimers, AsyncioTransport
from ottla.environment.busy_polling import busy_polling
from ottla.environment.collector import COLLECTOR
from ottla.environment.disk import DiskStore
from ottla.environment.files import Store
from ottla.environment.listening import SocketListen
from ottla.environment.system import SystemClock, SystemRandom, resolve_address, thread_cpu_ns
from ottla.environment.workers import ThreadWorkers


def process_environment(
    loop: asyncio.AbstractEventLoop,
    *,
    clock: Clock | None = None,
    random: Random | None = None,
    timers: Timers | None = None,
    files: Store | None = None,
    polls_busily: bool = False,
) -> Environment:
    """Create the environment of this process on `loop`; arguments replace parts of it.

    polls_busily  whether the loop waits for messages without sleeping where that pays, see `busy_polling`; not for a broker in
                  the process of its clients, whose threads run Python code and would wait for the interpreter
    """
    return Environment(
        clock or SystemClock(),
        time.perf_counter_ns,
        random or SystemRandom(),
        timers or AsyncioTimers(loop),
        resolve_address,
        AsyncioTransport(loop, busy_polling(loop) if polls_busily else None),
        SocketListen(loop, busy_polling(loop) if polls_busily else None),
        ThreadWorkers(loop),
        files or DiskStore(),
        thread_cpu_ns,
        COLLECTOR.without_full_collections,
    )
