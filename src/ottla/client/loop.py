"""Connection of the client's core to sockets, clocks and threads: asyncio's loop as its transport and its timers.

Two drivers, both thin. `ottla.aio` runs the core on the caller's own loop. The blocking classes run it on a loop in a thread
that all clients of the process share: it is started with the first client and ends with the last; a forked process starts
one of its own with its first client. Sockets are non-blocking and belong to us (`add_reader`, `add_writer`); what a socket does
not take at once is kept and sent when there is room.
"""

import asyncio
import concurrent.futures
import contextlib
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, TypeVar

from ottla.client.errors import IllegalState
from ottla.environment import Address, Cancellable, Receiver
from ottla.environment.system import SystemClock, SystemRandom
from ottla.net.scheduler import Promise, Scheduler, Task

T = TypeVar("T")
_MOST_PIECES: Final = 64
"""Limit of buffers in one sendmsg."""


class _Socket:
    """An open socket as the core's stream.

    What is written while answers are read goes out when all of them are read: a producer's next requests, one for each
    answer, leave by one call into the system.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, receiver: Receiver) -> None:
        self._loop = loop
        self._socket = sock
        self._receiver = receiver
        self._left: deque[memoryview] = deque()
        self._open = True
        self._reading = False
        loop.add_reader(sock.fileno(), self._readable)

    def _readable(self) -> None:
        waits = bool(self._left)  # for room, which `_writable` hears of
        self._reading = True
        try:
            self._receiver.readable(self._socket.recv_into)
        finally:
            self._reading = False
            if self._left and not waits:
                self._send()

    def write(self, pieces: Sequence[Any]) -> None:
        if not self._open:
            return
        idle = not self._left
        self._left.extend(memoryview(piece).cast("B") for piece in pieces if len(piece))
        if idle and not self._reading:
            self._send()

    def _send(self) -> None:
        left = self._left
        try:
            while left:
                sent = self._socket.sendmsg([left[index] for index in range(min(len(left), _MOST_PIECES))])
                while left and sent >= len(left[0]):
                    sent -= len(left.popleft())
                if sent:
                    left[0] = left[0][sent:]
        except BlockingIOError:
            self._loop.add_writer(self._socket.fileno(), self._writable)
        except OSError as error:
            left.clear()
            # Whoever asked is in the middle of something: the news comes in a turn of its own.
            self._loop.call_soon(self._receiver.lost, error.strerror or str(error))

    def _writable(self) -> None:
        if self._open:
            self._loop.remove_writer(self._socket.fileno())
            self._send()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._left.clear()
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()


class LoopSurroundings:
    """One asyncio loop as clock, timers and transport of the core."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock = SystemClock()
        self.random = SystemRandom()
        self.timers = self
        self.transport = self

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Cancellable:
        """As `Timers`."""
        if delay_ms <= 0:
            return self.loop.call_soon(callback)
        return self.loop.call_later(delay_ms / 1000, callback)

    def open(self, address: Address, receiver: Receiver) -> Callable[[], None]:
        """As `Transport`."""
        task = self.loop.create_task(self._connect(address, receiver))

        def give_up() -> None:
            task.cancel()

        return give_up

    async def _connect(self, address: Address, receiver: Receiver) -> None:
        """Try every address that the name stands for, in the resolver's order."""
        reason = "the name stands for no address"
        try:
            found = await self._resolve(address)
        except OSError as error:
            receiver.lost(f"cannot be resolved: {error.strerror or error}")
            return
        for family, kind, protocol, _, where in found:
            sock = socket.socket(family, kind, protocol)
            try:
                sock.setblocking(False)
                await self.loop.sock_connect(sock, where)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                sock.close()
                reason = os.strerror(error.errno) if error.errno else str(error)
            except BaseException:
                sock.close()
                raise
            else:
                receiver.connected(_Socket(self.loop, sock, receiver))
                return
        receiver.lost(reason)

    async def _resolve(self, address: Address) -> Sequence[Any]:
        host, port = address
        with contextlib.suppress(socket.gaierror):  # fails for a host name; an IP address needs no resolver
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        return await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class Background:
    """A loop in a thread of its own, for code that blocks.

    `acquire` and `release` count the clients that use it: the first starts the thread, the last ends it.
    """

    _shared: "Background | None" = None
    _guard = threading.Lock()
    _left: "Background | None" = None
    """The parent's, in a forked process: kept, because its finalizer would close what the parent uses."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self.surroundings = LoopSurroundings(self.loop)
        self._users = 0
        self._thread = threading.Thread(target=self._run, name="ottla-client", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls) -> "Background":
        """The one of this process, with one more user."""
        with cls._guard:
            if cls._shared is None:
                cls._shared = Background()
            cls._shared._users += 1
            return cls._shared

    def release(self) -> None:
        """One user less."""
        with self._guard:
            self._users -= 1
            if self._users:
                return
            if Background._shared is self:
                Background._shared = None
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    @classmethod
    def forget(cls) -> None:
        """In a forked process: the thread is the parent's, and so is the lock if another thread held it during the fork."""
        cls._left = cls._shared
        cls._shared = None
        cls._guard = threading.Lock()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        finally:
            self.loop.close()

    def call(self, function: Callable[[], T], timeout: float | None = None) -> T:
        """Run a function on the loop's thread; what it returns or raises. TimeoutError after `timeout` seconds.

        Raises IllegalState on the loop's own thread, which would wait for itself.
        """
        self._check_thread()
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:  # noqa: BLE001  (it is the caller's)
                answer.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return answer.result(timeout)

    def run(self, scheduler: Scheduler, coroutine: Coroutine[Promise[Any], None, T], name: str = "") -> T:
        """Run a coroutine of the core on the loop's thread; what it returns or raises. Interrupted, it is cancelled.

        Raises IllegalState on the loop's own thread, which would wait for itself.
        """
        try:
            self._check_thread()
        except IllegalState:
            coroutine.close()
            raise
        answer: concurrent.futures.Future[T] = concurrent.futures.Future()
        begun: list[Task[T]] = []

        def settle(promise: Promise[T]) -> None:
            if promise.error is not None:
                answer.set_exception(promise.error)
            else:
                answer.set_result(promise.result())

        def start() -> None:
            task = scheduler.spawn(coroutine, name)
            begun.append(task)
            task.listen(settle)

        self.loop.call_soon_threadsafe(start)
        try:
            return answer.result()
        except BaseException:
            if not answer.done():
                self.loop.call_soon_threadsafe(lambda: begun[0].cancel() if begun else None)
            raise

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread.ident:
            return
        raise IllegalState(
            "a callback of a client runs in the client's own thread, which cannot wait for itself: "
            "call from another thread, or use ottla.aio"
        )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Background.forget)


def _new_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


async def wait(scheduler: Scheduler, coroutine: Coroutine[Promise[Any], None, T], name: str = "") -> T:
    """Run a coroutine of the core on the running asyncio loop; to cancel one cancels the other."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(promise: Promise[T]) -> None:
        if answer.cancelled():
            return
        if promise.error is not None:
            answer.set_exception(promise.error)
        else:
            answer.set_result(promise.result())

    task = scheduler.spawn(coroutine, name)
    task.listen(settle)
    try:
        return await answer
    except asyncio.CancelledError:
        task.cancel()
        raise
