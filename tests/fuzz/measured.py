"""A broker in a process of its own that measures the passes of its event loop and its memory, and the clients that load it."""

import contextlib
import ctypes
import gc
import logging
import math
import multiprocessing
import os
import resource
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from ottla.environment.disk import DiskStore
from ottla.protocol import codec
from ottla.protocol.api import APIS
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.header import RequestHeader
from ottla.protocol.schema import Request
from ottla.security.acls import ALL, DENY, PREFIXED
from ottla.security.operations import AclResourceType
from ottla.testing.embedded import EmbeddedBroker
from tests.fuzz.hostile import DENIED, EXISTING

ANSWERED: Final = "answered"
CLOSED: Final = "closed"
WAITS: Final = "waits"
"""No response for some seconds in which the broker had nothing to do."""
DOES_NOT_END: Final = "does not end"
_CONFIGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "delegation.token.secret.key": "secret",
}
_START_SECONDS: Final = 60
_LOOK_SECONDS: Final = 0.25
_IDLE_SECONDS: Final = 3
_LEAST_CPU: Final = 0.02
"""CPU seconds between two looks of a broker that is not idle."""
_CHUNK: Final = 1 << 18
_MB: Final = 1 << 20
Plant = Callable[[], object]


class _Broker(EmbeddedBroker):
    def _files(self) -> DiskStore:
        return DiskStore(durable=False)


class PassMeter:
    """The longest pass of an event loop: CPU of its thread between two looks for events, the garbage collector's included."""

    def __init__(self, loop: Any) -> None:
        self.longest_ns = 0
        self._select = loop._selector.select
        self._begun_ns: int | None = None
        loop._selector.select = self._measure

    def _measure(self, timeout: float | None = None) -> Any:
        if self._begun_ns is not None:
            self.longest_ns = max(self.longest_ns, time.thread_time_ns() - self._begun_ns)
        events = self._select(timeout)
        self._begun_ns = time.thread_time_ns()
        return events


def _memory(name: str) -> int:
    """Bytes of this process: VmRSS now, or VmHWM at most."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) << 10
    raise KeyError(name)


def _serve(commands: Connection, data_dir: Path, plant: Plant | None) -> None:
    """Run a broker, and do what the parent process commands."""
    logging.basicConfig(filename=os.devnull, level=logging.WARNING)
    if plant is not None:
        plant()
    with _Broker(_CONFIGS, data_dir=data_dir) as broker:
        broker.server.broker.replicas.opened_many = gc.freeze  # as the process of a broker does
        meter = PassMeter(broker._loop)
        gc.freeze()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)
        commands.send(broker.address)
        resident = 0
        while True:
            try:
                command = commands.recv()
            except EOFError:
                return
            # What was called before has ended when the second of two calls comes.
            for _ in range(2):
                _wait_for_pass(broker)
            if command.startswith("reset"):
                if command == "reset":
                    gc.collect()
                    trim(0)
                    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
                    resident = _memory("VmRSS")
                    _wait_for_pass(broker)
                meter.longest_ns = 0
                commands.send(None)
            else:
                commands.send((meter.longest_ns, max(0, _memory("VmHWM") - resident)))


def _wait_for_pass(broker: EmbeddedBroker) -> None:
    passed = threading.Event()
    broker._loop.call_soon_threadsafe(passed.set)
    passed.wait()


@dataclass(frozen=True)
class Cost:
    """Cost of a request: CPU of the longest pass, peak of memory above that before the request, the outcome, and the sizes of
    the request and its response.
    """

    longest_ms: float
    peak_mb: float
    outcome: str
    request_mb: float
    response_mb: float


class MeasuredBroker:
    """A broker in a process of its own, with the topic `existing`, and names that begin with `denied` denied to all.

    plant            called in the process before the broker starts
    seconds          CPU that a request may take: how busy the machine is does not matter
    measures_memory  collect garbage before each request, and tell its peak of memory, which takes longer than a small request
    """

    def __init__(self, plant: Plant | None = None, seconds: float = 20, *, measures_memory: bool = True) -> None:
        self._plant = plant
        self._reset = "reset" if measures_memory else "reset passes"
        self.seconds = seconds
        self.topic_id = bytes(16)
        self._received = 0
        """Bytes of the responses to the last frames."""
        _allow_many_files()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def restart(self) -> None:
        """Replace the broker by a new one without what requests have made."""
        self.stop()
        self._start()

    def stop(self) -> None:
        self._commands.close()
        self._process.kill()
        self._process.join()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.fuzz.measured", "ottla.broker.lifecycle"])
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-costs-"))
        self._commands, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._directory, self._plant), daemon=True)
        self._process.start()
        theirs.close()
        if not self._commands.poll(_START_SECONDS):
            raise RuntimeError("the broker did not start")
        self._address: tuple[str, int] = self._commands.recv()
        self._prepare()

    def _prepare(self) -> None:
        """Create the topic, and deny the names."""
        with socket.create_connection(self._address) as connection:
            topic = CreatableTopic(name=EXISTING, num_partitions=10, replication_factor=1)
            created = self._call(connection, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
            self.topic_id = created.topics[0].topic_id
            denials = [
                AclCreation(
                    resource_type=kind,
                    resource_name=DENIED,
                    resource_pattern_type=PREFIXED,
                    principal="User:*",
                    host="*",
                    operation=ALL,
                    permission_type=DENY,
                )
                for kind in (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID)
            ]
            denied = self._call(connection, CreateAclsRequest(creations=denials), 3)
            if created.topics[0].error_code or any(row.error_code for row in denied.results):
                raise RuntimeError("the broker could not be prepared")

    def _call(self, connection: socket.socket, asked: Request, version: int) -> Any:
        api = APIS[asked.API]
        header = RequestHeader(request_api_key=api.key, request_api_version=version, correlation_id=1, client_id="")
        data = codec.encode(asked, version, codec.encode(header, api.request_header_version(version)))
        connection.sendall(len(data).to_bytes(4, "big") + data)
        with connection.makefile("rb") as stream:
            size = int.from_bytes(stream.read(4), "big")
            return codec.decode(api.response_class(), version, stream.read(size), 5)[0]

    def measured_call(self, asked: Request, version: int) -> tuple[Any, float]:
        """Send a request; return its response and the CPU of the longest pass, in milliseconds."""
        self._ask(self._reset)
        with socket.create_connection(self._address) as connection:
            response = self._call(connection, asked, version)
        longest_ns, _ = self._ask("report")
        return response, longest_ns / 1e6

    def measure(self, frames: bytes, count: int, connections: int = 1) -> Cost:
        """Send frames on every connection at once, and wait for `count` responses on each."""
        if self._ask(self._reset) is None:
            self.restart()
            self._ask(self._reset)
        outcome = self._exchange(frames, count, connections)
        report = self._ask("report", _IDLE_SECONDS if outcome == DOES_NOT_END else _START_SECONDS)
        if report is None or outcome == DOES_NOT_END:
            self.restart()
            longest_ns, peak = report or (self.seconds * 1e9, 0)
            return Cost(longest_ns / 1e6, peak / _MB, DOES_NOT_END, len(frames) / _MB, self._received / _MB)
        longest_ns, peak = report
        return Cost(longest_ns / 1e6, peak / _MB, outcome, len(frames) / _MB, self._received / _MB)

    def serves(self) -> bool:
        """Return whether the broker answers ApiVersions on a new connection."""
        return self._exchange(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff", 1, 1) == ANSWERED

    def _ask(self, command: str, seconds: float = _START_SECONDS) -> Any:
        with contextlib.suppress(OSError, EOFError):
            self._commands.send(command)
            if self._commands.poll(seconds):
                answer = self._commands.recv()
                return True if answer is None else answer
        return None

    def _exchange(self, frames: bytes, count: int, connections: int) -> str:
        self._received = 0
        limit = _Limit(self._process.pid or 0, self.seconds)
        outcomes: set[str] = set()
        exchanges = [_Exchange(frames, count) for _ in range(connections)]
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
            opened = [stack.enter_context(socket.create_connection(self._address)) for _ in range(connections)]
            for opening, exchange in zip(opened, exchanges, strict=True):
                opening.setblocking(False)
                selector.register(opening, selectors.EVENT_READ | selectors.EVENT_WRITE, exchange)
            left = connections
            while left:
                events = selector.select(_LOOK_SECONDS)
                reached = limit.reached(is_idle=not events)
                if reached is not None:
                    return reached
                for key, mask in events:
                    outcome = key.data.step(key.fileobj, mask)
                    if outcome is not None:
                        outcomes.add(outcome)
                        selector.unregister(key.fileobj)
                        left -= 1
                    elif key.data.is_sent and key.events != selectors.EVENT_READ:
                        selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
        self._received = sum(exchange.received for exchange in exchanges)
        return CLOSED if CLOSED in outcomes else ANSWERED


class _Limit:
    """Maximum time that a process may use for a request, and may be idle before it has answered."""

    def __init__(self, process: int, seconds: float) -> None:
        self._stat = Path(f"/proc/{process}/stat")
        self._end = self._used() + seconds
        self._last = self._used()
        self._looked = self._busy = time.monotonic()

    def reached(self, *, is_idle: bool) -> str | None:
        """Return WAITS or DOES_NOT_END when it is over."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS and not is_idle:
            return None
        self._looked = now
        used = self._used()
        if used > self._end:
            return DOES_NOT_END
        if not is_idle or used - self._last > _LEAST_CPU:
            self._last, self._busy = used, now
        return WAITS if now - self._busy > _IDLE_SECONDS else None

    def _used(self) -> float:
        """Return the CPU seconds of the process; infinity if it does not exist."""
        try:
            fields = self._stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return math.inf
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Exchange:
    """One connection: frames to send, and responses to count."""

    def __init__(self, frames: bytes, count: int) -> None:
        self._unsent = memoryview(frames)
        self._missing = count
        self._head = b""
        self._skip = 0
        self._in_body = False
        self.received = 0

    @property
    def is_sent(self) -> bool:
        return not self._unsent

    def step(self, connection: socket.socket, mask: int) -> str | None:
        """Send and receive what is possible; return the outcome when it is known."""
        try:
            if mask & selectors.EVENT_WRITE and self._unsent:
                self._unsent = self._unsent[connection.send(self._unsent[:_CHUNK]) :]
            if mask & selectors.EVENT_READ:
                data = connection.recv(_CHUNK)
                if not data:
                    return CLOSED
                self.received += len(data)
                self._count(data)
        except BlockingIOError:
            return None
        except OSError:
            return CLOSED
        return ANSWERED if self._missing <= 0 else None

    def _count(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._skip:
                taken = min(self._skip, len(data) - at)
                self._skip -= taken
                at += taken
            else:
                taken = 4 - len(self._head)
                self._head += data[at : at + taken]
                at += taken
                if len(self._head) < 4:
                    return
                self._skip, self._head, self._in_body = int.from_bytes(self._head, "big"), b"", True
            if self._in_body and not self._skip:
                self._in_body = False
                self._missing -= 1


def _allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
