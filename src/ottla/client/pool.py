"""Connections to brokers: one per address, blocking, opened when they are needed and again when they broke.

Strategy: bytes are `protocol/connection.py`'s business, this module moves them. A connection negotiates versions once
(ApiVersions, KIP-35 and KIP-511) and may have many requests open; answers come in the order of the requests. Whatever goes
wrong on a connection closes it and is a ConnectionLost or RequestTimedOut that names the address: whoever asked decides
whether the request is repeated. Not for two threads at once, and not across a fork.
"""

import select
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from ottla import __version__
from ottla.client.config import ClientConfig
from ottla.client.errors import BrokersUnreachable, ConnectionLost, RequestTimedOut, UnsupportedVersion, error_for
from ottla.environment import Clock
from ottla.protocol.api import API_VERSIONS, APIS
from ottla.protocol.connection import ClientConnection
from ottla.protocol.errors import NONE, UNSUPPORTED_VERSION
from ottla.protocol.frames import FrameReader
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Request
from ottla.protocol.wire import PeerError

Address = tuple[str, int]

_RECEIVE: Final = 1 << 20
_LARGEST: Final = 0x7FFFFFFF


class Connection(Protocol):
    """What the rest of the client needs of a connection; tests bring their own."""

    @property
    def waiting(self) -> int:
        """Answers still to come."""

    def version(self, request: type[Request], newest: int = 32767) -> int:
        """The newest version that both sides know, not above `newest`. Raises UnsupportedVersion."""

    def send(self, request: Request, version: int, *, expect_answer: bool = True) -> None:
        """Send without waiting. Raises ConnectionLost."""

    def receive(self, deadline: int) -> Any:
        """The answer to the oldest open request. Raises ConnectionLost, RequestTimedOut past `deadline` (clock ms)."""

    def readable(self, wait_ms: int) -> bool:
        """Whether bytes arrived, after at most `wait_ms`."""

    def close(self) -> None:
        """Give the connection up, and the answers that are still to come."""


class BrokerConnection:
    """One socket to one broker."""

    def __init__(self, address: Address, config: ClientConfig, clock: Clock, deadline: int) -> None:
        self.address = address
        self._clock = clock
        self._wire = ClientConnection(config["client.id"])
        self._frames = FrameReader(_LARGEST)
        self._arrived: list[bytes] = []
        self._shared = bytearray(_RECEIVE)
        self._versions: dict[int, tuple[int, int]] = {}
        self.open = True
        seconds = max(deadline - clock.now_ms(), 1) / 1000
        try:
            self._socket = socket.create_connection(address, timeout=seconds)
        except OSError as error:
            self.open = False
            raise ConnectionLost(f"{self}: {_reason(error)}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, name in ((socket.SO_SNDBUF, "send"), (socket.SO_RCVBUF, "receive")):
                if config[f"{name}.buffer.bytes"] > 0:
                    self._socket.setsockopt(socket.SOL_SOCKET, option, config[f"{name}.buffer.bytes"])
            self._send_timeout = config["request.timeout.ms"] / 1000
            self._negotiate(deadline)
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def _negotiate(self, deadline: int) -> None:
        """Ask for the broker's version ranges; one older than version 3 says so in version 0 and is asked again."""
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        self.send(request, 3)
        answer: ApiVersionsResponse = self.receive(deadline)
        if answer.error_code == UNSUPPORTED_VERSION:
            self.send(request, 0)
            answer = self.receive(deadline)
        if answer.error_code != NONE:
            raise error_for(answer.error_code, f"ApiVersions at {self}")
        self._versions = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}

    @property
    def waiting(self) -> int:
        return self._wire.waiting

    def version(self, request: type[Request], newest: int = 32767) -> int:
        low, high = self._versions.get(request.API, (0, -1))
        best = min(high, newest, request.VERSIONS.last)
        if best < max(low, request.VERSIONS.first):
            name = APIS[request.API].name
            raise UnsupportedVersion(f"{self} has no version of {name} that this client knows", UNSUPPORTED_VERSION)
        return best

    def send(self, request: Request, version: int, *, expect_answer: bool = True) -> None:
        pieces = self._wire.request(request, version, expect_answer=expect_answer)
        try:
            self._socket.settimeout(self._send_timeout if self._versions else self._socket.gettimeout())
            if len(pieces) == 1:
                self._socket.sendall(pieces[0])
            else:
                self._send_pieces(pieces)
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self}: {_reason(error)}") from None

    def _send_pieces(self, pieces: list[Any]) -> None:
        left = [memoryview(piece) for piece in pieces if len(piece)]
        while left:
            sent = self._socket.sendmsg(left[:64])
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def receive(self, deadline: int) -> Any:
        while not self._arrived:
            self._read(deadline)
        try:
            return self._wire.response(self._arrived.pop(0))
        except PeerError as error:
            self.close()
            raise ConnectionLost(f"{self}: {error}") from None

    def _read(self, deadline: int) -> None:
        """Whatever the socket has, as frames. An unfinished frame receives straight into its own memory."""
        left = deadline - self._clock.now_ms()
        name = APIS[API_VERSIONS].name if not self._versions else "the request"
        if left <= 0:
            self.close()
            raise RequestTimedOut(f"{self} did not answer {name} in time")
        room = self._frames.room()
        try:
            self._socket.settimeout(left / 1000)
            count = self._socket.recv_into(self._shared if room is None else room)
        except TimeoutError:
            self.close()
            raise RequestTimedOut(f"{self} did not answer {name} in time") from None
        except OSError as error:
            self.close()
            raise ConnectionLost(f"{self}: {_reason(error)}") from None
        if count == 0:
            self.close()
            raise ConnectionLost(f"{self} closed the connection")
        try:
            if room is None:
                self._arrived += self._frames.feed(self._shared, count)
            else:
                room.release()
                self._arrived += self._frames.feed_rest(self._shared, count)
        except PeerError as error:
            self.close()
            raise ConnectionLost(f"{self}: {error}") from None

    def readable(self, wait_ms: int) -> bool:
        if self._arrived or not self.open:
            return True
        return bool(select.select([self._socket], [], [], wait_ms / 1000)[0])

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        if self.open:
            self.open = False
            self._socket.close()


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no connection in time"
    return error.strerror or str(error)


class Pool:
    """The connections of one config. `brokers` is what the cluster last said; the bootstrap addresses come before it."""

    def __init__(self, config: ClientConfig, clock: Clock, pause: Callable[[int], None]) -> None:
        self.config = config
        self.brokers: dict[int, Address] = {}
        self._clock = clock
        self._pause = pause
        self._open: dict[tuple[Address, str], BrokerConnection] = {}

    def broker(self, node: int, purpose: str = "") -> Connection:
        """The connection to a node; `purpose` keeps apart what would wait for each other. Raises ConnectionLost."""
        address = self.brokers.get(node)
        if address is None:
            raise ConnectionLost(f"node {node} is in no metadata")
        return self._to(address, purpose)

    def any_broker(self) -> Connection:
        """A connection to whichever broker answers: one that is open, else the addresses in turn, again and again.

        Raises BrokersUnreachable, naming every address and what it said, after socket.connection.setup.timeout.ms.
        """
        for (_, purpose), connection in list(self._open.items()):
            if not purpose and self._usable(connection):
                return connection
        limit = self.config["socket.connection.setup.timeout.ms"]
        deadline = self._clock.now_ms() + limit
        pause = max(self.config["retry.backoff.ms"], 1)
        while True:
            said: list[str] = []
            wanted = dict.fromkeys((*self.config.bootstrap_servers, *self.brokers.values()))
            for number, address in enumerate(wanted):
                # One address that drops packets must leave time for the others.
                left = deadline - self._clock.now_ms()
                share = max(left // (len(wanted) - number), 1)
                try:
                    return self._to(address, "", self._clock.now_ms() + share)
                except (ConnectionLost, RequestTimedOut) as error:
                    said.append(str(error))
            if self._clock.now_ms() + pause >= deadline:
                raise BrokersUnreachable(f"no broker answered within {limit} ms: {'; '.join(said)}")
            self._pause(pause)
            pause = min(pause * 2, max(self.config["retry.backoff.max.ms"], 1))

    def _to(self, address: Address, purpose: str, deadline: int | None = None) -> BrokerConnection:
        known = self._open.get((address, purpose))
        if known is not None and self._usable(known):
            return known
        if deadline is None:
            deadline = self._clock.now_ms() + self.config["socket.connection.setup.timeout.ms"]
        opened = BrokerConnection(address, self.config, self._clock, deadline)
        self._open[address, purpose] = opened
        return opened

    def _usable(self, connection: BrokerConnection) -> bool:
        """An idle connection on which something arrives was closed by the broker (connections.max.idle.ms)."""
        if connection.open and not connection.waiting and connection.readable(0):
            connection.close()
        return connection.open

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()
