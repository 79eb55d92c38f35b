"""Closing a connection releases everything that it held, at once: the garbage collector is off in these tests.

Each row of the table is a connection in one state that ends in one way. A cycle of references, or a callback that waits, would
keep the connection with its buffers: a client that connects again and again would fill the memory of the broker between two
collections.
"""

import gc
import logging
import multiprocessing
import socket
import ssl
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

import pytest

from ottla.broker.connections.connection import ServedConnection
from ottla.environment.listening import ServedSocket
from ottla.environment.tls_serving import TlsConnection
from ottla.protocol.connection import ClientConnection, Envelope
from ottla.protocol.frames import FrameReader
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.testing import Kafka, Security

KINDS: Final = (ServedConnection, ServedSocket, TlsConnection, FrameReader, Envelope)
LARGE: Final = 900_000
"""Bytes of an unfinished frame, and of requests that wait: small enough to be received at once."""


def alive() -> dict[int, object]:
    """Objects of these kinds that exist, by identity."""
    return {id(item): item for item in gc.get_objects() if type(item) in KINDS}


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def wait_until(is_met: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not is_met():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def request(message: object, version: int) -> bytes:
    return b"".join(ClientConnection("c").request(message, version))  # type: ignore[arg-type]


def silent(_: socket.socket) -> None:
    """The client sends nothing."""


def unfinished(client: socket.socket) -> None:
    client.sendall(struct.pack(">i", LARGE + 1) + bytes(LARGE))


def cut_size(client: socket.socket) -> None:
    client.sendall(b"\0\0")


def waiting_fetch(client: socket.socket) -> None:
    """A fetch that may wait for 24 days."""
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])]
    fetch = FetchRequest(topics=topics, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1, max_bytes=2**31 - 1)
    client.sendall(request(fetch, 11))


def waiting_old_fetch(client: socket.socket) -> None:
    """A fetch whose response would be converted."""
    topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)])]
    client.sendall(request(FetchRequest(topics=topics, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1), 2))


def unread(client: socket.socket) -> None:
    """Responses of more bytes than the sockets take, none of which is read."""
    client.setblocking(False)
    one = request(FindCoordinatorRequest(coordinator_keys=["k" * 30_000] * 8), 4)
    with suppress(BlockingIOError, ssl.SSLWantWriteError):
        for _ in range(100):
            client.send(one)
    client.setblocking(True)


def served(client: socket.socket) -> None:
    client.sendall(request(MetadataRequest(topics=[]), 5))
    assert client.recv(10_000)


def malformed(client: socket.socket) -> None:
    """The broker closes the connection itself."""
    client.sendall(struct.pack(">i", 20) + b"\xff" * 20)


def token_of_a_login(client: socket.socket) -> None:
    client.sendall(request(SaslHandshakeRequest(mechanism="PLAIN"), 1))
    assert client.recv(10_000)


def refused_login(client: socket.socket) -> None:
    token_of_a_login(client)
    client.sendall(struct.pack(">i", 20) + b"\0" * 20)


def half_a_handshake(client: socket.socket) -> None:
    client.sendall(b"\x16\x03\x01\x02\0" + bytes(300))


def no_tls(client: socket.socket) -> None:
    client.sendall(b"GET / HTTP/1.1\r\n\r\n")


def closed_by_client(client: socket.socket) -> None:
    client.close()


def reset_by_client(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


State = Callable[[socket.socket], None]
STATES: Final[dict[str, tuple[State, ...]]] = {
    "PLAINTEXT": (silent, served, cut_size, unfinished, waiting_fetch, waiting_old_fetch, unread, malformed),
    "SSL": (silent, served, cut_size, unfinished, waiting_fetch, unread, malformed, half_a_handshake, no_tls),
    "SASL_PLAINTEXT": (silent, cut_size, token_of_a_login, refused_login, malformed),
}
WITHOUT_TLS: Final = (silent, half_a_handshake, no_tls)


class Brokers:
    """One broker for each security protocol, started when it is first asked for."""

    def __init__(self) -> None:
        self.started: dict[str, Kafka] = {}

    def __getitem__(self, protocol: str) -> Kafka:
        if protocol not in self.started:
            self.started[protocol] = Kafka({} if protocol == "PLAINTEXT" else {"security": Security(protocol)})
            self.started[protocol].create_topic("t")
        return self.started[protocol]

    def close(self) -> None:
        for kafka in self.started.values():
            kafka.close()


BROKERS: Final = Brokers()
"""Those of a process that has no other broker: others would open and close connections of their own meanwhile."""


def close_brokers() -> None:
    BROKERS.close()


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    """A process of its own, whose brokers are BROKERS."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=logging.disable) as pool:
        yield pool
        pool.submit(close_brokers).result()


def connect(kafka: Kafka, state: State) -> socket.socket:
    host, port = kafka.bootstrap_servers.split(":")
    client = socket.create_connection((host, int(port)))
    trusted = kafka.client_config.get("ssl.truststore.location")
    if trusted is None or state in WITHOUT_TLS:
        return client
    context = ssl.create_default_context(cafile=trusted)
    context.check_hostname = False
    return context.wrap_socket(client)


def open_connections(kafka: Kafka) -> int:
    return len(kafka.server.sockets.connections)


def left_of_closed_connections(protocol: str, state: State, end: State) -> list[str]:
    """Names of the classes of what three connections in this state leave behind when they have ended."""
    kafka = BROKERS[protocol]
    with no_collector():
        assert wait_until(lambda: open_connections(kafka) == 0)
        before = alive()  # kept, so that no new object gets the identity of an old one
        for _ in range(3):
            client = connect(kafka, state)
            state(client)
            time.sleep(0.02)
            end(client)
        assert wait_until(lambda: open_connections(kafka) == 0), "a connection is still open"
        wait_until(lambda: alive().keys() <= before.keys())
        return [type(item).__name__ for key, item in alive().items() if key not in before]


@pytest.mark.parametrize("end", [closed_by_client, reset_by_client])
@pytest.mark.parametrize(
    ("protocol", "state"), [(protocol, state) for protocol, states in STATES.items() for state in states]
)
def test_nothing_is_left_of_a_closed_connection(
    process: ProcessPoolExecutor, protocol: str, state: State, end: State
) -> None:
    assert process.submit(left_of_closed_connections, protocol, state, end).result() == []


def test_a_client_that_connects_again_and_again_takes_no_memory() -> None:
    """One connection at a time, each with 16 MB of a frame that it never finishes."""
    size = 16 << 20
    with Kafka() as kafka:
        host, port = kafka.bootstrap_servers.split(":")
        with no_collector():
            tracemalloc.start()
            try:
                for _ in range(20):
                    with socket.create_connection((host, int(port))) as client:
                        client.sendall(struct.pack(">i", size + 1) + bytes(size))
                    assert wait_until(lambda: open_connections(kafka) == 0)
                assert tracemalloc.get_traced_memory()[1] < 4 * size
            finally:
                tracemalloc.stop()
