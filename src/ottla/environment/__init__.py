"""Interfaces to everything outside of the program: time, random numbers, timers, connections and background threads.

Code that needs one of them receives it as an argument, so that the same code runs in a process with sockets and in a test on
virtual time. The files of this package implement the interfaces for a real process; no other file names asyncio, socket,
threading or time. The lowest layer: it imports nothing of Ottla.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.environment.files import Store


class Clock(Protocol):
    """Time in milliseconds."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch: for timestamps in records and logs."""

    def now_ms(self) -> int:
        """Milliseconds on a monotonic clock: for deadlines."""


class Random(Protocol):
    """The source of ids and jitter."""

    def bytes16(self) -> bytes:
        """16 random bytes, for a uuid."""

    def below(self, bound: int) -> int:
        """A number from 0 (inclusive) to `bound` (exclusive)."""


class Cancellable(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Calls back later, on the thread of the event loop."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable: ...


class Worker(Protocol):
    """Runs functions on threads of its own: in order if it has one thread."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        """Run `work`, then `done` with its result on the event loop.

        failed  called in place of `done` after an exception that `work` should have caught itself; it is logged
        """

    def close(self, *, cancel: bool = False) -> None:
        """Wait for the work that was handed in, with `cancel` only for that which has begun. No callback follows."""


class Workers(Protocol):
    """Starts background threads."""

    def start(self, name: str, threads: int = 1) -> Worker:
        """Return a worker of its own, with so many threads, which are started with the first piece of work."""


Address = tuple[str, int]
"""Host name or IP address, and port."""


class Stream(Protocol):
    """An open connection of bytes."""

    def write(self, pieces: Sequence[Any]) -> None:
        """Send buffers, now or as soon as there is room; never raises."""

    def close(self) -> None:
        """Close the connection; no callback follows."""


class Receiver(Protocol):
    """Callbacks of a connection that a transport opens."""

    def connected(self, stream: Stream) -> None:
        """The connection is open."""

    def readable(self, receive_into: Callable[[Any], int]) -> None:
        """Bytes have arrived: `receive_into(buffer)` moves some and returns their number, 0 at the end of the stream.

        `receive_into` raises BlockingIOError when there is nothing, another OSError when the connection broke.
        """

    def lost(self, reason: str) -> None:
        """The connection could not be opened, or broke."""


class Transport(Protocol):
    """Opener of connections."""

    def open(
        self, address: Address, receiver: Receiver, *, send_buffer: int = -1, receive_buffer: int = -1
    ) -> Callable[[], None]:
        """Begin to connect, and return a function that gives up. `receiver` is called back, never before this returns.

        send_buffer, receive_buffer  sizes of the socket's buffers in bytes; -1 leaves them to the system
        """


class ServedStream(Protocol):
    """The sending side of a connection that a client opened."""

    def write(self, pieces: Sequence[Any]) -> bool:
        """Send buffers and file regions; False when some are left, which go out as there is room. Never raises."""

    def pause_reading(self) -> None:
        """Leave further bytes in the kernel, so that the client is held back."""

    def resume_reading(self) -> None:
        """Receive again."""

    def close(self) -> None:
        """Close the connection; no callback follows."""


class ServedReceiver(Protocol):
    """Callbacks of a connection that a client opened."""

    def readable(self, receive: Callable[[Sequence[Any]], int]) -> None:
        """Bytes have arrived: `receive(buffers)` moves some and returns their number, 0 at the end of the stream.

        `receive` raises BlockingIOError when there is nothing, another OSError when the connection broke.
        """

    def written(self) -> None:
        """All that `write` had left has been sent."""

    def lost(self) -> None:
        """The connection broke while bytes were sent; it is closed."""


class IncomingConnection(Protocol):
    """A connection that a client opened, before it is served.

    peer   address of the client
    local  address that the client connected to
    """

    @property
    def peer(self) -> Address: ...

    @property
    def local(self) -> Address: ...

    def accept(self) -> ServedStream:
        """Take the connection. Raises OSError when it is gone by now."""

    def serve(self, receiver: ServedReceiver) -> None:
        """Receive from now on."""

    def close(self) -> None:
        """Close it unserved."""


class ListeningSocket(Protocol):
    """A socket at which clients connect; `address` is where it is bound."""

    @property
    def address(self) -> Address: ...

    def pause(self) -> None:
        """Stop accepting; new connections stay in the listen backlog."""

    def resume(self) -> None:
        """Accept again."""

    def close(self) -> None:
        """Stop listening."""


class Listen(Protocol):
    """Opener of listening sockets."""

    def __call__(
        self,
        host: str,
        port: int,
        connected: Callable[[IncomingConnection], None],
        failed: Callable[[OSError], None],
    ) -> ListeningSocket:
        """Listen at `host` ("" for every address) and `port` (0 takes a free one). Raises OSError.

        connected  called with each connection
        failed     called when one cannot be accepted
        """


@dataclass(frozen=True, slots=True)
class Environment:
    """The access of a broker or client to its machine; `environment.process` has that of a process, tests replace parts of it.

    now_ns     nanoseconds on a monotonic clock, for the time spent on a request
    resolve    returns the IP address of a host, None if it has none
    transport  opens connections
    listen     opens listening sockets
    workers    starts background threads
    files      stores files
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
