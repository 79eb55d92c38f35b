"""Process of a broker: signals, limit of open files, garbage collection, temporary data directory."""

import asyncio
import contextlib
import gc
import logging
import resource
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ottla.broker.config import BrokerConfig
from ottla.broker.lifecycle import BrokerServer
from ottla.environment.process import process_environment
from ottla.environment.watchdog import Watchdog
from ottla.metadata.image import Delta

_logger = logging.getLogger("ottla.broker")
_MANY_PARTITIONS: Final = 500


async def serve(config: BrokerConfig, announce: Callable[[BrokerServer], None]) -> None:
    """Run a broker until SIGTERM, SIGINT or SIGHUP. Calls `announce` once it listens. Raises CannotStart."""
    _allow_many_files()
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in _stop_signals():
        loop.add_signal_handler(number, stopped.set)
    server = BrokerServer(config, process_environment(loop))
    server.start()
    gc.freeze()
    server.broker.metadata.subscribe(_exempt_from_collection)
    watchdog = Watchdog(loop) if _logger.isEnabledFor(logging.DEBUG) else None
    try:
        if watchdog is not None:
            watchdog.start()
        announce(server)
        await stopped.wait()
    finally:
        if watchdog is not None:
            watchdog.stop()
        server.stop()


def _stop_signals() -> list[signal.Signals]:
    """Signals that stop a broker cleanly, as in Apache Kafka; SIGHUP only where it was not ignored at the start (nohup)."""
    signals = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


def _exempt_from_collection(delta: Delta) -> None:
    """Exempt the logs of many new partitions from garbage collection, like all objects of the start.

    They are not part of cycles: when they are closed their memory is freed nevertheless. A collection over those of
    20,000 partitions takes 80 ms, during which no request is served.
    """
    if sum(len(topic.partitions) for topic in delta.changed) >= _MANY_PARTITIONS:
        gc.freeze()


def _allow_many_files() -> None:
    """Raise the limit of open files to the system's maximum, for sockets and logs."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems name a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class EphemeralDirectory:
    """A data directory that is removed when the broker stops."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ottla-"))

    def remove(self) -> None:
        """Delete the directory."""
        shutil.rmtree(self.path, ignore_errors=True)
