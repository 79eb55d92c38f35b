"""Interfaces to everything outside of the program: time, random numbers, timers, connections and background threads.

Code that needs one of them receives it as an argument, so that the same code runs in a process with sockets and in a test on
virtual time. The files of this package implement the interfaces for a real process; no other file names asyncio, socket,
threading or time. The lowest layer: it imports nothing of Ottla.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol


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
    """Runs functions one after the other on another thread."""

    def run(self, work: Callable[[], Any], done: Callable[[Any], object], failed: Callable[[], object]) -> None:
        """Run `work`, then `done` with its result on the event loop.

        failed  called in place of `done` after an exception that `work` should have caught itself; it is logged
        """


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
