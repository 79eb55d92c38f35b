"""Environment of a client in a process with an asyncio event loop: without files and listening sockets, so that a command loads
neither."""

import asyncio
from typing import NamedTuple

from ottla.environment import Clock, Random, Timers, Transport, Workers
from ottla.environment.asyncio_transport import AsyncioTimers, AsyncioTransport
from ottla.environment.busy_polling import CLIENT_GAP_NS, busy_polling
from ottla.environment.system import SystemClock, SystemRandom
from ottla.environment.timer_queues import TimerQueues
from ottla.environment.workers import ThreadWorkers


class ClientProcessEnvironment(NamedTuple):
    """Clock, random numbers, timers, transport and threads of a client."""

    clock: Clock
    random: Random
    timers: Timers
    transport: Transport
    workers: Workers


def client_process_environment(loop: asyncio.AbstractEventLoop) -> ClientProcessEnvironment:
    """Create the environment of the clients of this process on `loop`."""
    return ClientProcessEnvironment(
        SystemClock(),
        SystemRandom(),
        TimerQueues(AsyncioTimers(loop), SystemClock()),
        AsyncioTransport(loop, busy_polling(loop, CLIENT_GAP_NS)),
        ThreadWorkers(loop),
    )
