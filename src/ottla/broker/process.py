"""Process of a broker: signals, limit of open files, garbage collection, temporary data directory."""

import asyncio
import contextlib
import gc
import logging
import resource
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.broker.config import BrokerConfig
from ottla.broker.lifecycle import BrokerServer, CannotStart
from ottla.environment import Environment
from ottla.environment.process import process_environment
from ottla.environment.watchdog import Watchdog
from ottla.metadata.store import MetadataStore
from ottla.metadata.store.sqlite_file import METADATA_FILE, DamagedStore
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.scheduler import Scheduler

if TYPE_CHECKING:
    from ottla.metadata.store.shared_sqlite import SharedSqliteStore

_logger = logging.getLogger("ottla.broker")
R = TypeVar("R")

CHANGED: Final = "changed"
"""Message between a broker and its parent process: the shared metadata has changed."""
RENEWED: Final = "renewed "
"""Begin of a broker's message to its parent process with a lease and its time in ms, after a renewal; 0 ms after its end."""
LISTENING: Final = "listening "
"""Begin of a broker's message to its parent process with its listeners, when it serves requests."""


async def serve(
    config: BrokerConfig,
    announce: Callable[[BrokerServer], Callable[[], None] | None],
    channel_socket: socket.socket | None = None,
    open_store: Callable[[Environment, Scheduler], MetadataStore] | None = None,
    *,
    fences_quickly: bool = True,
    accepts_older_metadata: bool = False,
    waits_for_store_ms: int = 0,
) -> None:
    """Run a broker until SIGTERM, SIGINT or SIGHUP. Raises CannotStart.

    announce        called once the broker listens; returns a function that ends clients in this process before the broker stops
    channel_socket  connection to the process that started this broker as one of several; the broker stops when it breaks
    fences_quickly, accepts_older_metadata, waits_for_store_ms  see `BrokerServer`
    open_store      opens the metadata store of a cluster; a broker without it and without a channel is a single one
    """
    _allow_many_files()
    loop = asyncio.get_running_loop()
    end = _End()
    for number in stop_signals():
        loop.add_signal_handler(number, end.begun.set)
    environment = process_environment(loop, polls_busily=True)
    tasks = Scheduler(environment.clock, environment.timers, cpu_ns=environment.cpu_ns)
    parent = None if channel_socket is None else _Parent(loop, channel_socket, end.lose_parent)
    store: MetadataStore | None = None
    if parent is not None:
        store = parent.open_store(config, environment, tasks)
    elif open_store is not None:
        store = open_store(environment, tasks)
    server = BrokerServer(config, environment, store, tasks)
    server.fences_quickly = fences_quickly
    server.accepts_older_metadata = accepts_older_metadata
    server.waits_for_store_ms = waits_for_store_ms
    server.failed = end.fail
    if not await _start(server, end.begun):
        return
    if parent is not None:
        parent.report(server)
    # The logs of many partitions are exempt from garbage collection, like all objects of the start. They are not part
    # of cycles: when they are closed their memory is freed nevertheless. A collection over those of 20,000 partitions
    # takes 80 ms, during which no request is served. `announce` may import the libraries of the metrics.
    server.broker.replicas.opened_many = gc.freeze
    end_clients: Callable[[], None] | None = None
    watchdog = Watchdog(loop) if _logger.isEnabledFor(logging.DEBUG) else None
    try:
        if watchdog is not None:
            watchdog.start()
        end_clients = announce(server)
        gc.freeze()
        await end.begun.wait()
    finally:
        if watchdog is not None:
            watchdog.stop()
        if end_clients is not None:
            await asyncio.to_thread(end_clients)  # it waits for answers of this broker
        # All brokers of a parent stop with it: none of them goes on to take over what this one leads. After a failure, such as
        # a metadata store that was restored, the others take over without it.
        await wait_for_answer(server.stop(hands_over=not end.is_orphaned and end.failure is None))
        server.tasks.close()
    if end.failure is not None:
        raise CannotStart(end.failure)


class _End:
    """End of a broker, by a signal, a failure, or that of its parent process.

    begun        set when the broker is to stop
    failure      reason of the first failure, None without one
    is_orphaned  True if the parent process has ended
    """

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.failure: str | None = None
        self.is_orphaned = False

    def fail(self, reason: str) -> None:
        """Stop after a failure."""
        self.failure = self.failure or reason
        self.begun.set()

    def lose_parent(self) -> None:
        """Stop because the parent process has ended."""
        self.is_orphaned = True
        self.begun.set()


async def _start(server: BrokerServer, stopped: asyncio.Event) -> bool:
    """Start a broker, and return False if it was stopped meanwhile. Raises CannotStart."""
    answer = server.start()
    if isinstance(answer, Deferred):
        starting: asyncio.Task[None] = asyncio.create_task(wait_for_answer(answer))
        stopping = asyncio.ensure_future(stopped.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            server.kill()  # its epochs may not have begun yet: the next start must not take this for a clean stop
            return False
        starting.result()
    return True


async def wait_for_answer(answer: Answer[R]) -> R:
    """Wait for an answer. Raises CannotStart if it fails."""
    if not isinstance(answer, Deferred):
        return answer
    future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def on_end(answer: Deferred[R]) -> None:
        if future.done():
            return
        if answer.error is None:
            future.set_result(answer.result())
        elif isinstance(answer.error, CannotStart):
            future.set_exception(answer.error)
        else:
            future.set_exception(CannotStart("an unexpected error occurred, which is in the log"))

    answer.listen(on_end)
    return await future


class _Parent:
    """Connection of this process to the one that started it and other brokers, which share a metadata store.

    lost  called when the parent process has ended
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, channel_socket: socket.socket, lost: Callable[[], object]
    ) -> None:
        from ottla.environment.channel import Channel  # a single broker starts without it

        self._lost = lost
        self._store: SharedSqliteStore | None = None
        self._channel = Channel(loop, channel_socket, self._on_line, self._on_closed)

    def open_store(self, config: BrokerConfig, environment: Environment, tasks: Scheduler) -> "SharedSqliteStore":
        """Open the metadata store. Raises CannotStart."""
        from ottla.metadata.store.shared_sqlite import SharedSqliteStore

        path = Path(config.metadata_log_dir) / METADATA_FILE
        worker = environment.workers.start("ottla-metadata")
        notify = partial(self._channel.send, CHANGED)
        try:
            self._store = SharedSqliteStore(path, worker, tasks, notify, on_renewed=self._send_renewal)
        except (OSError, DamagedStore) as cause:
            raise CannotStart(str(cause)) from None
        return self._store

    def _send_renewal(self, lease: int, ttl_ms: int) -> None:
        self._channel.send(f"{RENEWED}{lease} {ttl_ms}")

    def report(self, server: BrokerServer) -> None:
        """Report the addresses of this broker, for its next start."""
        bound = (listener._replace(port=port) for listener, (_, port) in server.broker.listeners.bound)
        self._channel.send(LISTENING + ",".join(map(str, bound)))

    def _on_line(self, line: str) -> None:
        if line == CHANGED and self._store is not None:
            self._store.refresh()

    def _on_closed(self) -> None:
        _logger.warning("the parent process has ended")
        self._lost()


def stop_signals() -> list[signal.Signals]:
    """Signals that stop a broker cleanly, as in Apache Kafka; SIGHUP only where it was not ignored at the start (nohup)."""
    signals = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


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
