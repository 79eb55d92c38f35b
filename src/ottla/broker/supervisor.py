"""Parent process of several brokers on one machine: `ottla serve --brokers N`.

It starts one process for each broker, starts it again after a crash, relays log lines and notifications of changed metadata,
and stops all of them. It is never controller: its only part in the cluster is to end the lease of a process that has ended, or
that hangs and does not renew it (`lease_judge`). A process that has lost its lease is killed and started again.

The data directory is locked, and the brokers inherit the lock: no other process can use the directory before the last of them
has ended, also after a kill -9 of the parent, whose brokers stop when their connection to it breaks.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from ottla.broker.cluster.conversion import CannotConvert, convert
from ottla.broker.cluster.lease_judge import LOOK_MS, LeaseJudge
from ottla.broker.lifecycle import CannotStart
from ottla.broker.process import CHANGED, LISTENING, RENEWED, stop_signals, wait_for_answer
from ottla.environment import private_files
from ottla.environment.channel import Channel
from ottla.environment.disk import lock_directory
from ottla.environment.process import process_environment
from ottla.log.directory import UnusableDirectory
from ottla.metadata.store import keys
from ottla.metadata.store.shared_sqlite import SharedSqliteStore
from ottla.metadata.store.sqlite_file import METADATA_FILE, DamagedStore
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")
_FIRST_DELAY_S: Final = 0.1
_LONGEST_DELAY_S: Final = 10.0
_STABLE_S: Final = 60.0
"""Time that a process runs before a crash of it counts as the first one again."""
_READ_SIZE: Final = 1 << 16


class BrokerProcess:
    """One broker: its command line, and its process while it runs.

    arguments  returns the arguments of `ottla` for these listeners and the descriptor of the channel
    configs    configs as name=value, written to its stdin: they may be secrets, and a command line is public
    listeners  value of the config; with the ports of the first start from then on, so that clients find it again
    """

    def __init__(
        self, node_id: int, listeners: str, arguments: Callable[[str, int], Sequence[str]], configs: Sequence[str] = ()
    ) -> None:
        self.node_id = node_id
        self.listeners = listeners
        self.arguments = arguments
        self.configs = configs
        self.process: asyncio.subprocess.Process | None = None
        self.channel: Channel | None = None
        self.has_listened = False


async def supervise(directory: Path, log_dirs: Sequence[Path], brokers: Sequence[BrokerProcess], log: BinaryIO) -> None:
    """Run the brokers until SIGTERM, SIGINT or SIGHUP. Raises CannotStart.

    directory  directory of their metadata
    log_dirs   directories with one directory for each broker, or with the data of a single broker, which is converted
    """
    lock = _lock(directory)
    try:
        environment = process_environment(asyncio.get_running_loop())
        worker = environment.workers.start("ottla-metadata")
        try:
            convert(environment.files, log_dirs, directory, brokers[0].node_id)
            store = SharedSqliteStore(
                directory / METADATA_FILE, worker, Scheduler(environment.clock, environment.timers)
            )
        except (CannotConvert, UnusableDirectory, OSError, DamagedStore) as cause:
            raise CannotStart(str(cause)) from None
        try:
            # The lock proves that no broker is running: signs of life and the controller are those of ended processes.
            if not await wait_for_answer(store.end_all_leases()):
                raise CannotStart(f"cannot write {directory / METADATA_FILE}")
            await _Supervisor(brokers, store, lock, log).run()
        finally:
            store.close()
    finally:
        os.close(lock)


def _lock(directory: Path) -> int:
    """Lock the data directory, and return the file descriptor that holds the lock. Raises CannotStart."""
    try:
        private_files.make_directory(directory)
        return lock_directory(directory)
    except BlockingIOError as cause:
        raise CannotStart(f"{cause}: stop it, or give another --data-dir") from None
    except OSError as cause:
        raise CannotStart(f"cannot use {directory}: {cause.strerror}") from None


class _Supervisor:
    def __init__(self, brokers: Sequence[BrokerProcess], store: SharedSqliteStore, lock: int, log: BinaryIO) -> None:
        self._brokers = brokers
        self._store = store
        self._lock = lock
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._failure: str | None = None
        self._judge = LeaseJudge()

    async def run(self) -> None:
        """Run all brokers until a signal, or until one cannot be started. Raises CannotStart."""
        for number in stop_signals():
            self._loop.add_signal_handler(number, self._on_signal)
        judging = self._loop.create_task(self._judge_leases())
        try:
            async with asyncio.TaskGroup() as group:
                for broker in self._brokers:
                    group.create_task(self._keep_running(broker))
        finally:
            judging.cancel()
        if self._failure is not None:
            raise CannotStart(self._failure)

    async def _judge_leases(self) -> None:
        """End the leases of brokers that hang, and kill them: `_keep_running` starts them again."""
        while True:
            await asyncio.sleep(LOOK_MS / 1000)
            for node, lease in self._judge.look(int(self._loop.time() * 1000)):
                try:
                    await self._fence(node, lease)
                except Exception:  # one broker that cannot be fenced must not end the judging of the others
                    _logger.exception("node %d cannot be fenced", node)

    async def _fence(self, node: int, lease: int) -> None:
        """End the lease of a broker that hangs, and kill it."""
        broker = next(one for one in self._brokers if one.node_id == node)
        _logger.error(
            "node %d has not renewed its lease for broker.session.timeout.ms: it is killed and started again", node
        )
        # First the lease: a process that waits for a broken disk does not end when it is killed.
        if not await wait_for_answer(self._store.revoke(lease)):
            _logger.error("cannot end the lease of node %d", node)
        self._relay_change(broker)
        if broker.process is not None:
            with suppress(ProcessLookupError):
                broker.process.kill()

    def _on_signal(self) -> None:
        """Stop all brokers cleanly; the second signal kills them."""
        self._signal_all(signal.SIGKILL if self._stopping.is_set() else signal.SIGTERM)
        self._stopping.set()

    def _signal_all(self, number: signal.Signals) -> None:
        for broker in self._brokers:
            if broker.process is not None:
                with suppress(ProcessLookupError):
                    broker.process.send_signal(number)

    async def _keep_running(self, broker: BrokerProcess) -> None:
        """Run a broker, and start it again whenever its process ends, with a growing delay."""
        delay_s = _FIRST_DELAY_S
        while not self._stopping.is_set():
            begun = self._loop.time()
            code = await self._run(broker)
            await self._end_lease(broker)
            if self._stopping.is_set():
                return
            if code == 1 and not broker.has_listened:
                self._failure = f"broker {broker.node_id} cannot be started, the line above has the reason"
                self._signal_all(signal.SIGTERM)
                self._stopping.set()
                return
            if self._loop.time() - begun >= _STABLE_S:
                delay_s = _FIRST_DELAY_S
            _logger.error("node %d ended with %s: it starts again in %.1f s", broker.node_id, _reason(code), delay_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay_s)
            delay_s = min(2 * delay_s, _LONGEST_DELAY_S)

    async def _run(self, broker: BrokerProcess) -> int:
        """Run a process of a broker until its end, and return its exit code."""
        own, other = socket.socketpair()
        broker.channel = Channel(self._loop, own, partial(self._on_line, broker), lambda: None)
        try:
            with other:
                # A group of its own: Ctrl-C in a terminal reaches this process only, which stops the brokers.
                broker.process = process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "ottla",
                    *broker.arguments(broker.listeners, other.fileno()),
                    stdin=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=(other.fileno(), self._lock),
                    process_group=0,
                )
            if self._stopping.is_set():
                process.terminate()
            assert process.stderr is not None
            assert process.stdin is not None
            process.stdin.write(json.dumps(list(broker.configs)).encode())
            process.stdin.close()
            await self._relay_log(broker.node_id, process.stderr)
            return await process.wait()
        finally:
            broker.process = None
            broker.channel.close()
            broker.channel = None

    async def _relay_log(self, node_id: int, lines: asyncio.StreamReader) -> None:
        """Write the lines of a broker to the log, each with its node id."""
        rest = b""
        while piece := await lines.read(_READ_SIZE):
            *whole, rest = (rest + piece).split(b"\n")
            self._write_log(node_id, whole)
        if rest:
            self._write_log(node_id, [rest])

    def _write_log(self, node_id: int, lines: Sequence[bytes]) -> None:
        with suppress(OSError):  # the log cannot be written: the brokers go on
            self._log.write(b"".join(b"[%d] %s\n" % (node_id, line) for line in lines))
            self._log.flush()

    async def _end_lease(self, broker: BrokerProcess) -> None:
        """Remove the sign of life of a broker whose process has ended, and its part as controller."""
        self._judge.note_release(broker.node_id)
        if not await wait_for_answer(self._store.end_lease_of(keys.live_key(broker.node_id))):
            _logger.error("node %d stays registered as live until it is started again", broker.node_id)
        self._relay_change(broker)

    def _on_line(self, broker: BrokerProcess, line: str) -> None:
        if line == CHANGED:
            self._relay_change(broker)
        elif line.startswith(RENEWED):
            lease, ttl_ms = map(int, line.removeprefix(RENEWED).split())
            if ttl_ms:
                self._judge.note_renewal(broker.node_id, lease, ttl_ms)
            else:
                self._judge.note_release(broker.node_id, lease)
        elif line.startswith(LISTENING):
            broker.listeners = line.removeprefix(LISTENING)
            broker.has_listened = True

    def _relay_change(self, source: BrokerProcess) -> None:
        """Notify all brokers but the source of a change."""
        for broker in self._brokers:
            if broker is not source and broker.channel is not None:
                broker.channel.send(CHANGED)


def _reason(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
