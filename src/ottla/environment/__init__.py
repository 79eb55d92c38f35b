"""Interfaces to the operating system: time, random numbers, timers, connections, files and background threads.

Code receives them as arguments, so that it runs the same in a process with sockets and in a test on virtual time. The files
of this package implement the interfaces for a real process; no other file uses asyncio, socket, threading or time. This is
the lowest layer: it imports nothing else of Ottla.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.environment.files import Store


class Clock(Protocol):
    """Time in milliseconds."""

    def wall_ms(self) -> int:
        """Return milliseconds since the epoch: for timestamps in records and logs."""

    def now_ms(self) -> int:
        """Return milliseconds of a monotonic clock: for deadlines."""


class Random(Protocol):
    """Source of random numbers for ids and jitter."""

    def bytes16(self) -> bytes:
        """Return 16 random bytes, for a uuid."""

    def below(self, bound: int) -> int:
        """Return a random number from 0 (inclusive) to `bound` (exclusive)."""


class Cancellable(Protocol):
    """Scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Timers: schedule callbacks on the thread of the event loop."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable: ...


class Worker(Protocol):
    """Runs functions on background threads: in order if it has one thread."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        """Run `work`, then `done` with its result on the event loop.

        failed  called in place of `done` after an exception that `work` should have caught itself; it is logged
        """

    def close(self, *, cancel: bool = False, wait: bool = True) -> None:
        """Wait for queued work, with `cancel` only for work that has begun, without `wait` for none. No callback follows."""


class Workers(Protocol):
    """Starts background threads."""

    def start(self, name: str, threads: int = 1) -> Worker:
        """Create a worker with this number of threads, which are started on first use."""


Address = tuple[str, int]
"""Host name or IP address, and port."""


class Stream(Protocol):
    """Open connection to which bytes are written."""

    def write(self, pieces: Sequence[Any]) -> None:
        """Send buffers, at once or when the socket has room; never raises."""

    def close(self) -> None:
        """Close the connection; no callback follows."""


class Receiver(Protocol):
    """Callbacks of a connection that a transport opens."""

    def resolved(self) -> None:
        """Handle the resolution of the host name, before a connection to one of its IP addresses is opened."""

    def connected(self, stream: Stream) -> None:
        """Handle an opened connection."""

    def readable(self, receive_into: Callable[[Any], int]) -> None:
        """Handle received bytes: `receive_into(buffer)` fills a buffer and returns the number of bytes, 0 at end of stream.

        `receive_into` raises BlockingIOError if no bytes are available, another OSError if the connection broke.
        """

    def lost(self, reason: str) -> None:
        """Handle a connection that could not be opened, or broke."""

    def rejected(self, reason: str) -> None:
        """Handle a connection that one side does not accept, as its certificate is not trusted; another attempt fails too."""


class Transport(Protocol):
    """Opens connections to brokers."""

    def open(
        self, address: Address, receiver: Receiver, *, send_buffer: int = -1, receive_buffer: int = -1
    ) -> Callable[[], None]:
        """Begin to connect, and return a function that cancels the attempt. `receiver` is not called before this returns.

        send_buffer, receive_buffer  sizes of the socket's buffers in bytes; -1: the system's default
        """


class ServedStream(Protocol):
    """Sending side of a connection that a client opened."""

    def write(self, pieces: Sequence[Any]) -> bool:
        """Send buffers and file regions. Return False if some wait for the socket to have room. Never raises.

        A single buffer may be kept until the loop looks for events again, also by a write that returns True.
        """

    def pause_reading(self) -> None:
        """Stop receiving; further bytes stay in the socket's buffer, so that TCP slows the client down."""

    def resume_reading(self) -> None:
        """Resume receiving."""

    def close(self) -> None:
        """Close the connection, after what a write has kept; no callback follows."""


class ServedReceiver(Protocol):
    """Callbacks of a connection that a client opened."""

    def readable(self, receive: Callable[[Sequence[Any]], int]) -> None:
        """Handle received bytes: `receive(buffers)` fills buffers and returns the number of bytes, 0 at end of stream.

        `receive` raises BlockingIOError if no bytes are available, another OSError if the connection broke.
        """

    def written(self) -> None:
        """Handle the end of a pending write, or of a kept one that had to wait: everything has been sent."""

    def lost(self) -> None:
        """Handle a connection that broke during a write; it is closed already."""


class IncomingConnection(Protocol):
    """Connection that a client opened, before it is served.

    peer   address of the client
    local  address that the client connected to
    """

    @property
    def peer(self) -> Address: ...

    @property
    def local(self) -> Address: ...

    def accept(self) -> ServedStream:
        """Accept the connection. Raises OSError if it is already closed."""

    def serve(self, receiver: ServedReceiver) -> None:
        """Start to receive bytes, for this receiver."""

    def close(self) -> None:
        """Close the connection without serving it."""


class ListeningSocket(Protocol):
    """Listening socket; `address` is its bound address."""

    @property
    def address(self) -> Address: ...

    def pause(self) -> None:
        """Stop accepting; new connections stay in the listen backlog."""

    def resume(self) -> None:
        """Resume accepting."""

    def close(self) -> None:
        """Stop listening."""


class Listen(Protocol):
    """Opens listening sockets."""

    def __call__(
        self,
        host: str,
        port: int,
        connected: Callable[[IncomingConnection], None],
        failed: Callable[[OSError], None],
        *,
        send_buffer: int = -1,
    ) -> ListeningSocket:
        """Listen on `host` ("" for all addresses) and `port` (0: any free port). Raises OSError.

        connected    called with each connection
        failed       called when a connection cannot be accepted
        send_buffer  size of the send buffers of the connections in bytes; -1: the system's default
        """


@dataclass(frozen=True, slots=True)
class Environment:
    """All interfaces of a broker or client to its machine; `environment.process` creates the real one, tests replace parts.

    now_ns     nanoseconds of a monotonic clock, for the time spent on a request
    resolve    returns the IP address of a host, None if it has none
    transport  opens connections
    listen     opens listening sockets
    workers    starts background threads
    files      stores files
    cpu_ns     CPU time of the thread in ns, by which long work makes pauses; by default it makes none
    large_work surrounds the work on a large request: full garbage collections are left out meanwhile
    """

    clock: Clock
    now_ns: Callable[[], int]
    random: Random
    timers: Timers
    resolve: Callable[[str], str | None]
    transport: Transport
    listen: Listen
    workers: Workers
    files: Store
    cpu_ns: Callable[[], int] = lambda: 0
    large_work: Callable[[], AbstractContextManager[object]] = nullcontext
