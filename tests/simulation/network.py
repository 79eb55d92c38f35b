"""Simulated network: connections between hosts with latency, resets, cuts and refused connections.

A connection has two pipes, one in each direction. What a process writes arrives in order after a random latency. A cut holds
the bytes of one direction back until it is healed, as TCP's retransmissions do; no reset is sent then. The kernel of a paused
host goes on to accept connections and to receive.

    process ended   its connections are reset; a new connection is refused
    power lost      nothing is sent; bytes wait until the host is on again, and are answered by a reset then
"""

import errno
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final

from ottla.environment import Address, IncomingConnection, Receiver, ServedReceiver
from ottla.environment.files import Region

from .hosts import Host, Life
from .world import SECOND_US, World

_WINDOW: Final = 1 << 18
"""Bytes that may be on the way in one direction before the sender's kernel takes no more."""
_FIRST_PORT: Final = 40_000
_RETRANSMISSION_US: Final = 200_000
_EPHEMERAL_PORTS: Final = 25_000


class Endpoint:
    """One side of a connection, in the kernel of a host.

    on_readable  called on the process when bytes, the end or a reset has arrived
    on_room      called on the process when everything written has left
    """

    def __init__(self, network: "Network", life: Life, address: Address) -> None:
        self.network = network
        self.life = life
        self.address = address
        self.peer: Endpoint = self
        self.is_open = True
        self.is_reset = False
        self.on_readable: Callable[[], None] | None = None
        self.on_room: Callable[[], None] | None = None
        self.in_flight = 0
        self.arrival_us = 0
        self.held: deque[bytes | None] = deque()
        """Data (None: end of stream) that waits for the end of a cut."""
        self._inbox = bytearray()
        self._ended = False
        self._signalled = False
        self._reading = False
        self._outbox: deque[Any] = deque()

    # -- calls of the process --

    def begin_reading(self) -> None:
        """Call `on_readable` from now on."""
        self._reading = True
        self._signal()

    def stop_reading(self) -> None:
        self._reading = False

    def receive(self, buffers: Sequence[Any]) -> int:
        """Fill buffers; 0 at the end of the stream. Raises BlockingIOError, ConnectionResetError."""
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        if not self._inbox:
            if self._ended or not self.is_open:
                return 0
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        count = 0
        for buffer in buffers:
            with memoryview(buffer) as view:
                size = min(len(view), len(self._inbox))
                view[:size] = self._inbox[:size]
            del self._inbox[:size]
            count += size
        self.peer.drained(count)
        return count

    def write(self, pieces: Sequence[Any]) -> bool:
        """Send buffers and file regions; return False if some wait for room. Raises OSError for a file that is too short."""
        self._outbox.extend(pieces)
        return self._send()

    def _send(self) -> bool:
        data = bytearray()
        while self._outbox and self.in_flight + len(data) < _WINDOW:
            piece = self._outbox.popleft()
            content = piece.read() if type(piece) is Region else bytes(piece)
            if len(content) < len(piece):
                raise ConnectionError("a file is shorter than it was")
            data += content
        if data:
            self.in_flight += len(data)
            self.network.carry(self, bytes(data))
        return not self._outbox

    def drained(self, count: int) -> None:
        """Handle bytes that the peer has read: its kernel has room for more."""
        self.in_flight -= count
        if self._outbox and self.is_open and self._send() and self.on_room is not None:
            self.life.run(self.on_room)

    def close(self) -> None:
        """Close this side: the peer gets the end of the stream after all data."""
        if self.is_open:
            self._finish()
            self.network.carry(self, None)

    def abort(self) -> None:
        """Close this side with a reset, as the kernel does for a process that has ended."""
        if self.is_open:
            self._finish()
            self.network.reset(self.peer)

    def vanish(self) -> None:
        """Lose this side without a word, as by a loss of power."""
        self._finish()

    def _finish(self) -> None:
        self.is_open = False
        self._outbox.clear()
        self.held.clear()
        self.network.forget(self)

    # -- calls of the network --

    def arrived(self, data: bytes | None) -> None:
        """Take data that arrives; None is the end of the stream."""
        if not self.is_open:
            if data is not None:
                self.network.reset(self.peer)
            return
        if data is None:
            self._ended = True
        else:
            self._inbox += data
        self._signal()

    def broken(self) -> None:
        """Take a reset."""
        if self.is_open and not self.is_reset:
            self.is_reset = True
            self._outbox.clear()
            self._signal()

    def _signal(self) -> None:
        """Let the process read, unless it was woken already."""
        if self._reading and not self._signalled and (self._inbox or self._ended or self.is_reset):
            self._signalled = True
            self.life.run(self._wake)

    def _wake(self) -> None:
        self._signalled = False
        while self._reading and self.is_open and (self._inbox or self._ended or self.is_reset):
            before = len(self._inbox)
            if self.on_readable is not None:
                self.on_readable()
            if len(self._inbox) == before:
                return


class ClientSide:
    """Implementation of `Stream`: the side that opened the connection."""

    def __init__(self, endpoint: Endpoint, receiver: Receiver) -> None:
        self._endpoint = endpoint
        self._receiver: Receiver | None = receiver
        endpoint.on_readable = self._readable

    def begin(self) -> None:
        if self._receiver is not None:
            self._receiver.connected(self)
            self._endpoint.begin_reading()

    def _readable(self) -> None:
        if self._receiver is not None:
            self._receiver.readable(lambda buffer: self._endpoint.receive((buffer,)))

    def write(self, pieces: Sequence[Any]) -> None:
        """See `Stream`."""
        if self._endpoint.is_open and not self._endpoint.is_reset:
            self._endpoint.write([b"".join(pieces)])

    def close(self) -> None:
        """See `Stream`."""
        self._receiver = None
        self._endpoint.close()


class ServerSide:
    """Implementation of `IncomingConnection` and `ServedStream`: the side that accepted the connection."""

    def __init__(self, endpoint: Endpoint, peer: Address, local: Address) -> None:
        self.peer = peer
        self.local = local
        self._endpoint = endpoint
        self._receiver: ServedReceiver | None = None
        self._writing = False
        endpoint.on_readable = self._readable
        endpoint.on_room = self._written

    def accept(self) -> "ServerSide":
        """See `IncomingConnection`."""
        if not self._endpoint.is_open or self._endpoint.is_reset:
            self._endpoint.close()
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return self

    def serve(self, receiver: ServedReceiver) -> None:
        """See `IncomingConnection`."""
        self._receiver = receiver
        self._endpoint.begin_reading()

    def _readable(self) -> None:
        if self._receiver is not None:
            self._receiver.readable(self._endpoint.receive)

    def _written(self) -> None:
        self._writing = False
        if self._receiver is not None:
            self._receiver.written()

    def write(self, pieces: Sequence[Any]) -> bool:
        """See `ServedStream`."""
        if not self._endpoint.is_open:
            return False
        try:
            if self._endpoint.is_reset:
                raise BrokenPipeError(errno.EPIPE, "Broken pipe")
            return self._endpoint.write(pieces)
        except OSError:
            receiver = self._receiver
            self.close()
            if receiver is not None:
                receiver.lost()
            return False

    def pause_reading(self) -> None:
        """See `ServedStream`."""
        self._endpoint.stop_reading()

    def resume_reading(self) -> None:
        """See `ServedStream`."""
        self._endpoint.begin_reading()

    def close(self) -> None:
        """See `ServedStream`."""
        self._receiver = None
        self._endpoint.close()


class Listening:
    """Implementation of `ListeningSocket`."""

    def __init__(
        self, network: "Network", life: Life, address: Address, connected: Callable[[IncomingConnection], None]
    ) -> None:
        self._network = network
        self.life = life
        self.address = address
        self._connected = connected
        self._backlog: deque[ServerSide] = deque()
        self._accepts = True

    def enter(self, side: ServerSide) -> None:
        """Take a connection that the kernel has accepted."""
        self._backlog.append(side)
        self.life.run(self._accept)

    def _accept(self) -> None:
        while self._accepts and self._backlog:
            self._connected(self._backlog.popleft())

    def pause(self) -> None:
        """See `ListeningSocket`."""
        self._accepts = False

    def resume(self) -> None:
        """See `ListeningSocket`."""
        self._accepts = True
        self.life.run(self._accept)

    def close(self) -> None:
        """See `ListeningSocket`."""
        self._accepts = False
        self._network.stop_listening(self)
        for side in self._backlog:
            side.close()
        self._backlog.clear()


class HostNetwork:
    """Implementation of `Transport` and `Listen` for one process."""

    def __init__(self, network: "Network", life: Life) -> None:
        self._network = network
        self._life = life

    def open(
        self, address: Address, receiver: Receiver, *, send_buffer: int = -1, receive_buffer: int = -1
    ) -> Callable[[], None]:
        """See `Transport`."""
        return self._network.open(self._life, address, receiver)

    def __call__(
        self,
        host: str,
        port: int,
        connected: Callable[[IncomingConnection], None],
        failed: Callable[[OSError], None],
        *,
        send_buffer: int = -1,
    ) -> Listening:
        return self._network.listen(self._life, (self._life.host.name, port), connected)


class _Attempt:
    """Attempt to connect."""

    def __init__(self, life: Life, address: Address, receiver: Receiver) -> None:
        self.life = life
        self.address = address
        self.receiver: Receiver | None = receiver
        self.tries = 0

    def cancel(self) -> None:
        self.receiver = None

    def fail(self) -> None:
        receiver, self.receiver = self.receiver, None
        if receiver is not None:
            receiver.lost("Connection refused")


class Network:
    """All hosts, their listeners and connections.

    extra_us  additional latency of a host, by name
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.hosts: dict[str, Host] = {}
        self.extra_us: dict[str, int] = {}
        self._random = world.random("network")
        self._cuts: dict[tuple[str, str], int] = {}
        self._listening: dict[Address, Listening] = {}
        self._endpoints: dict[Endpoint, None] = {}
        self._ports = 0

    # -- faults --

    def is_cut(self, source: str, destination: str) -> bool:
        """Return True if nothing gets from one host to the other."""
        return (source, destination) in self._cuts

    def cut(self, source: str, destination: str) -> None:
        """Hold everything back that goes from one host to the other; cuts of the same direction are counted."""
        direction = (source, destination)
        self._cuts[direction] = self._cuts.get(direction, 0) + 1

    def heal(self, source: str, destination: str) -> None:
        """End one cut; what was held back is sent again."""
        direction = (source, destination)
        left = self._cuts.pop(direction) - 1
        if left:
            self._cuts[direction] = left
            return
        for endpoint in list(self._endpoints):
            if (endpoint.life.host.name, endpoint.peer.life.host.name) == direction:
                self._send_again(endpoint)

    def power_on(self, host: Host) -> None:
        """Send everything again that waits for a host which was off."""
        for endpoint in list(self._endpoints):
            if endpoint.peer.life.host is host:
                self._send_again(endpoint)

    def connections_of(self, host: Host) -> list[Endpoint]:
        """Return the open endpoints of a host, in the order in which they were opened."""
        return [endpoint for endpoint in self._endpoints if endpoint.life.host is host]

    def end_life(self, host: Host, *, silently: bool) -> None:
        """Close everything of a process that has ended: with resets, or silently as by a loss of power."""
        for listening in [one for one in self._listening.values() if one.life.host is host]:
            self.stop_listening(listening)
        for endpoint in self.connections_of(host):
            if silently:
                endpoint.vanish()
            else:
                endpoint.abort()

    # -- connections --

    def listen(self, life: Life, address: Address, connected: Callable[[IncomingConnection], None]) -> Listening:
        """Listen on an address. Raises OSError."""
        if address in self._listening:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listening = self._listening[address] = Listening(self, life, address, connected)
        return listening

    def stop_listening(self, listening: Listening) -> None:
        if self._listening.get(listening.address) is listening:
            del self._listening[listening.address]

    def _latency_us(self, one: Host, other: Host) -> int:
        extra = self.extra_us
        latency = self._random.randint(80, 900) + extra.get(one.name, 0) + extra.get(other.name, 0)
        return latency if self._random.random() > 0.002 else latency + _RETRANSMISSION_US

    def open(self, life: Life, address: Address, receiver: Receiver) -> Callable[[], None]:
        """Begin to connect, and return a function that cancels the attempt."""
        attempt = _Attempt(life, address, receiver)
        self._world.call_after(self._latency_us(life.host, life.host), partial(self._connect, attempt))
        return attempt.cancel

    def _connect(self, attempt: _Attempt) -> None:
        life = attempt.life
        if attempt.receiver is None or life.ended:
            return
        name = attempt.address[0]
        target = self.hosts.get(name)
        source = life.host.name
        if target is None or not target.is_on or self.is_cut(source, name) or self.is_cut(name, source):
            delay_us = SECOND_US << min(attempt.tries, 5)
            attempt.tries += 1
            self._world.call_after(delay_us, partial(self._connect, attempt))
            return
        listening = self._listening.get(attempt.address)
        if listening is None:
            self._world.count("connections refused")
            life.after_us(self._latency_us(life.host, target), attempt.fail)
            return
        self._ports += 1
        local = (source, _FIRST_PORT + self._ports % _EPHEMERAL_PORTS)
        mine, its = Endpoint(self, life, local), Endpoint(self, listening.life, attempt.address)
        mine.peer, its.peer = its, mine
        self._endpoints[mine] = self._endpoints[its] = None
        listening.enter(ServerSide(its, local, attempt.address))
        life.after_us(self._latency_us(life.host, target), partial(self._connected, attempt, mine))

    def _connected(self, attempt: _Attempt, endpoint: Endpoint) -> None:
        if attempt.receiver is None:
            endpoint.close()
            return
        self._world.trace("connect", endpoint.life.host.name, repr(attempt.address).encode())
        self._world.count("connections")
        ClientSide(endpoint, attempt.receiver).begin()

    def forget(self, endpoint: Endpoint) -> None:
        """Drop an endpoint that is closed."""
        self._endpoints.pop(endpoint, None)

    def carry(self, source: Endpoint, data: bytes | None) -> None:
        """Bring data, or the end of the stream, to the peer of `source`."""
        one, other = source.life.host, source.peer.life.host
        if source.held or self.is_cut(one.name, other.name) or not other.is_on:
            source.held.append(data)
            return
        self._dispatch(source, data, self._latency_us(one, other))

    def _dispatch(self, source: Endpoint, data: bytes | None, latency_us: int) -> None:
        source.arrival_us = max(source.arrival_us, self._world.now_us + latency_us)
        self._world.call_at(source.arrival_us, partial(self._arrive, source, data))

    def _arrive(self, source: Endpoint, data: bytes | None) -> None:
        one, other = source.life.host, source.peer.life.host
        if self.is_cut(one.name, other.name) or not other.is_on:
            if source.is_open:
                source.held.append(data)
            return
        if data is not None:
            self._world.trace("data", other.name, blake2b(data, digest_size=8).digest())
        source.peer.arrived(data)

    def _send_again(self, source: Endpoint) -> None:
        held, source.held = source.held, deque()
        for data in held:
            self._dispatch(source, data, _RETRANSMISSION_US)

    def reset(self, endpoint: Endpoint) -> None:
        """Bring a reset to an endpoint, unless it cannot be reached."""
        one, other = endpoint.peer.life.host, endpoint.life.host
        if self.is_cut(one.name, other.name) or not other.is_on:
            return
        self._world.call_after(self._latency_us(one, other), endpoint.broken)

    def tear(self, endpoint: Endpoint) -> None:
        """Break a connection for both sides."""
        self._world.trace("tear", endpoint.life.host.name, b"")
        endpoint.broken()
        endpoint.peer.broken()
