"""The proxies that cut connections, between sockets of this process."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.free_ports import free_ports

from .cut_connections import UNKNOWN, Network, process_of

HERE, THERE = "broker 1", "broker 2"


class Ends:
    """A listening socket behind a proxy, and connections through it."""

    def __init__(self, network: Network, ending: ExitStack) -> None:
        self.network = network
        self._ending = ending
        self._server = ending.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._server.settimeout(0.2)
        (self.port,) = free_ports(1)
        self.listen()

    def listen(self) -> None:
        self.network.listen(self.port, lambda client_port, port: HERE, THERE, self._server.getsockname()[1])

    def connect(self) -> socket.socket:
        return self._ending.enter_context(socket.create_connection(("127.0.0.1", self.port), 0.2))

    def accept(self) -> socket.socket:
        accepted, _ = self._server.accept()
        accepted.settimeout(0.2)
        return self._ending.enter_context(accepted)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Return both ends of a connection."""
        return self.connect(), self.accept()


@pytest.fixture
def ends() -> Iterator[Ends]:
    with ExitStack() as ending:
        network = Network()
        ending.callback(network.close)
        yield Ends(network, ending)


def receives(end: socket.socket) -> bytes | None:
    """Return what has arrived, None if nothing has."""
    try:
        return end.recv(100)
    except TimeoutError:
        return None


def test_bytes_and_the_end_of_a_connection_pass(ends: Ends) -> None:
    here, there = ends.pair()
    here.sendall(b"request")
    assert receives(there) == b"request"
    there.sendall(b"response")
    assert receives(here) == b"response"
    here.close()
    assert receives(there) == b""


def test_a_cut_holds_the_bytes_of_its_direction_back(ends: Ends) -> None:
    here, there = ends.pair()
    ends.network.cut([(HERE, THERE)])
    here.sendall(b"request")
    there.sendall(b"response")
    assert receives(here) == b"response"
    assert receives(there) is None
    here.close()
    assert receives(there) is None, "the end of the connection is held back as well"
    ends.network.cut(())
    assert receives(there) == b"request"
    assert receives(there) == b""


@pytest.mark.parametrize("path", [(HERE, THERE), (THERE, HERE)])
def test_a_connection_that_is_opened_during_a_cut_waits(ends: Ends, path: tuple[str, str]) -> None:
    ends.network.cut([path])
    here = ends.connect()
    with pytest.raises(TimeoutError):
        ends.accept()
    ends.network.cut(())
    here.sendall(b"request")
    assert receives(ends.accept()) == b"request"


def test_a_cut_of_other_nodes_has_no_effect(ends: Ends) -> None:
    here, there = ends.pair()
    ends.network.cut([(HERE, "broker 3"), ("broker 3", THERE)])
    here.sendall(b"request")
    assert receives(there) == b"request"


def test_both_ends_of_a_connection_are_reset(ends: Ends) -> None:
    here, there = ends.pair()
    ends.network.reset([(THERE, HERE)])
    for end in (here, there):
        with pytest.raises(ConnectionResetError):
            end.recv(100)


def test_connections_are_refused_until_the_proxy_listens_again(ends: Ends) -> None:
    ends.network.refuse(ends.port)
    with pytest.raises(ConnectionRefusedError):
        ends.connect()
    ends.listen()
    here, there = ends.pair()
    here.sendall(b"request")
    assert receives(there) == b"request"


def test_the_process_of_a_client_is_found_by_its_socket(ends: Ends) -> None:
    here = ends.connect()
    ports = here.getsockname()[1], ends.port
    assert process_of(lambda: {THERE: 1, HERE: os.getpid()})(*ports) == HERE
    assert process_of(lambda: {THERE: os.getppid()})(*ports) == UNKNOWN
    assert process_of(lambda: {HERE: os.getpid()})(1, ends.port) == UNKNOWN
