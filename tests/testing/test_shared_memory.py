"""Floods of connections against a broker with sockets: its memory is bounded, and a client at another address is served.

The flood comes from 127.0.0.1, the other client from 127.0.0.2.
"""

import socket
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from ottla.broker.connections.socket_server import LARGE_FRAMES, LARGE_TOKENS
from ottla.protocol.connection import ClientConnection
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.schema import Request
from ottla.testing import Kafka, Security

MB = 1 << 20
FLOOD, OTHER = "127.0.0.1", "127.0.0.2"


class Client:
    """A connection from one address."""

    def __init__(self, kafka: Kafka, ip: str) -> None:
        host, port = kafka.bootstrap_servers.split(":")
        self.socket = socket.create_connection((host, int(port)), source_address=(ip, 0))
        self.socket.settimeout(20)
        self._wire = ClientConnection("c")

    def encoded(self, request: Request, version: int) -> bytes:
        return b"".join(self._wire.request(request, version))

    def send(self, request: Request, version: int) -> object:
        """Send a request, and return its response."""
        self.socket.sendall(self.encoded(request, version))
        while True:
            responses = self._wire.feed(self.socket.recv(1 << 16) or pytest.fail("the broker closed the connection"))
            if responses:
                return responses[0]

    @property
    def is_open(self) -> bool:
        self.socket.setblocking(False)
        try:
            return self.socket.recv(1 << 16, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


def send_all_that_fits(client: Client, data: bytes) -> None:
    """Send until the broker takes no more for a while."""
    client.socket.settimeout(0.05)
    with suppress(OSError):
        client.socket.sendall(data)


def eventually(is_met: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not is_met() and time.monotonic() < end:
        time.sleep(0.01)
    return is_met()


@pytest.fixture
def traced() -> Iterator[Callable[[], int]]:
    """Memory at its peak, since the begin of the test."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def metadata_of(size: int) -> MetadataRequest:
    """A request of about `size` bytes, for topics with invalid names that are long."""
    return MetadataRequest(
        topics=[MetadataRequest.FIELDS[0].type.element(name="x" * 30_000) for _ in range(size // 30_000)],
        allow_auto_topic_creation=False,
    )


def test_unfinished_large_frames_share_their_room(traced: Callable[[], int]) -> None:
    """40 connections with 4 MB each of frames of 17 MB; frames of others are served at once, large ones in their turn: 4 MB are
    the pace of a frame for 7 s.
    """
    with Kafka() as kafka, ExitStack() as stack:
        data = struct.pack(">i", 17 * MB) + bytes(4 * MB)
        flood = [Client(kafka, FLOOD) for _ in range(40)]
        other = Client(kafka, OTHER)
        for client in (*flood, other):
            stack.callback(client.socket.close)
        for client in flood:
            send_all_that_fits(client, data)
        turns = kafka.server.sockets.turns
        assert 100 * MB < turns.taken <= LARGE_FRAMES
        assert traced() < LARGE_FRAMES + 100 * MB
        begin = time.monotonic()
        assert other.send(MetadataRequest(topics=[]), 5)
        assert time.monotonic() - begin < 6, "a small frame waited"
        assert other.send(metadata_of(10 * MB), 5), "a large frame of another address has to have its turn"
        assert time.monotonic() - begin < 20
        assert eventually(lambda: sum(client.is_open for client in flood) < 40), "no slow client has lost its turn"


def test_large_frames_of_one_client_after_the_other_are_served(traced: Callable[[], int]) -> None:
    """Also when they are pipelined, with small ones between them."""
    with Kafka() as kafka:
        client = Client(kafka, FLOOD)
        requests = [metadata_of(3 * MB), MetadataRequest(topics=[]), metadata_of(3 * MB), metadata_of(5 * MB)]
        for request in requests:
            assert client.send(request, 5)
        data = b"".join(client.encoded(request, 5) for request in requests)
        client.socket.sendall(data)
        count = 0
        while count < 4:
            count += len(client._wire.feed(client.socket.recv(1 << 16)))
        assert eventually(lambda: kafka.server.sockets.turns.taken == 0)
        assert traced() < 100 * MB
        client.socket.close()


def test_unread_responses_share_their_room() -> None:
    """Clients that do not read are closed when the sum is at its bound; one that reads slowly at another address is not."""
    keys = [f"{number}" * 25_000 for number in range(8)]
    request = FindCoordinatorRequest(coordinator_keys=keys)
    with Kafka() as kafka, ExitStack() as stack:
        unread = kafka.server.sockets.unread
        unread._most = most = 4 * MB
        clients = [Client(kafka, OTHER), *(Client(kafka, FLOOD) for _ in range(60))]
        for client in clients:
            stack.callback(client.socket.close)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one = client.encoded(request, 4)
            client.socket.setblocking(False)
            with suppress(BlockingIOError):
                for _ in range(30):
                    client.socket.send(one)
            assert eventually(lambda: unread.total <= most)
        assert eventually(lambda: unread.total > most // 2), "nothing waited"
        assert eventually(lambda: len(kafka.server.sockets.connections) < 30)
        assert clients[0] in [client for client in clients if client.is_open]


def test_half_open_connections_share_their_room(traced: Callable[[], int]) -> None:
    """A thousand logins with 512 KB each took 660 MB."""
    with Kafka({"security": Security("SASL_PLAINTEXT")}) as kafka, ExitStack() as stack:
        data = struct.pack(">i", 500_000) + bytes(499_990)
        for _ in range(300):
            client = Client(kafka, FLOOD)
            stack.callback(client.socket.close)
            client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            client.socket.setblocking(False)
            with suppress(BlockingIOError):
                client.socket.send(data)
        assert eventually(lambda: kafka.server.sockets.login_turns.taken > 0)
        time.sleep(0.5)
        assert kafka.server.sockets.login_turns.taken <= LARGE_TOKENS
        assert traced() < LARGE_TOKENS + 300 * (40 << 10)


def test_slow_logins_succeed_beside_a_flood() -> None:
    """The connection that is closed above the limit is one of the flood, not the oldest of all connections."""
    with Kafka({"security": Security("SASL_PLAINTEXT")}) as kafka, ExitStack() as stack:
        slow = Client(kafka, OTHER)
        stack.callback(slow.socket.close)
        for number in range(1500):
            client = Client(kafka, FLOOD)
            stack.callback(client.socket.close)
            if number == 700:
                slow.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        response = slow.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 1)
        assert response.error_code == 0  # type: ignore[attr-defined]
        assert slow.send(MetadataRequest(topics=[]), 5)
        assert eventually(lambda: len(kafka.server.sockets.connections) <= 1001)
