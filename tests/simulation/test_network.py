"""Connections between simulated hosts under faults, pauses and drifting clocks."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ottla.environment import IncomingConnection, ServedStream, Stream

from .hosts import Host, Life
from .network import HostNetwork, Network
from .world import SECOND_US, World

_ADDRESS = ("server", 9092)


class _Client:
    """Receiver that collects what happens to it."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.received = b""
        self.end = ""

    def resolved(self) -> None:
        pass

    def connected(self, stream: Stream) -> None:
        self.stream = stream

    def readable(self, receive_into: Callable[[Any], int]) -> None:
        buffer = bytearray(1 << 16)
        try:
            count = receive_into(buffer)
        except OSError as error:
            self.lost(str(error.strerror))
            return
        self.received += buffer[:count]
        if count == 0:
            self.end = "end of stream"

    def lost(self, reason: str) -> None:
        self.end = reason

    def rejected(self, reason: str) -> None:
        self.end = reason


class _Echo:
    """Server that answers everything in upper case."""

    def __init__(self, incoming: IncomingConnection) -> None:
        self.stream: ServedStream = incoming.accept()
        self.received = b""
        self.is_lost = False
        incoming.serve(self)

    def readable(self, receive: Callable[[Sequence[Any]], int]) -> None:
        buffer = bytearray(1 << 16)
        try:
            count = receive((buffer,))
        except OSError:
            self.is_lost = True
            self.stream.close()
            return
        if count:
            self.received += buffer[:count]
            self.stream.write((bytes(buffer[:count]).upper(),))

    def written(self) -> None: ...

    def lost(self) -> None:
        self.is_lost = True


class _Net:
    """A server and a client host."""

    def __init__(self) -> None:
        self.world = World(1)
        self.network = Network(self.world)
        self.failures: list[str] = []
        self.hosts = {name: Host(self.world, name, self._failed) for name in ("client", "server")}
        self.network.hosts.update(self.hosts)
        self.lives: dict[str, Life] = {name: host.begin_life() for name, host in self.hosts.items()}
        self.served: list[_Echo] = []
        self.listen()

    def _failed(self, host: str, text: str) -> None:
        self.failures.append(f"{host}: {text}")

    def listen(self) -> None:
        transport = HostNetwork(self.network, self.lives["server"])
        transport("", 9092, lambda incoming: self.served.append(_Echo(incoming)), lambda error: None)

    def open(self) -> _Client:
        client = _Client()
        HostNetwork(self.network, self.lives["client"]).open(_ADDRESS, client)
        return client

    def wait(self, seconds: float = 1) -> None:
        self.world.run(self.world.now_us + int(seconds * SECOND_US))
        assert not self.failures

    def connected(self) -> tuple[_Client, Stream]:
        client = self.open()
        self.wait()
        assert client.stream is not None
        return client, client.stream


@pytest.fixture
def net() -> _Net:
    return _Net()


def test_bytes_arrive_in_order(net: _Net) -> None:
    client, stream = net.connected()
    for number in range(50):
        stream.write((b"%d," % number,))
    net.wait()
    assert client.received == b"".join(b"%d," % number for number in range(50))


def test_refused_connection(net: _Net) -> None:
    net.network.end_life(net.hosts["server"], silently=False)
    client = net.open()
    net.wait()
    assert client.end == "Connection refused"


def test_killed_server_resets_its_connections(net: _Net) -> None:
    client, _ = net.connected()
    net.network.end_life(net.hosts["server"], silently=False)
    net.hosts["server"].end_life()
    net.wait()
    assert client.end == "Connection reset by peer"


def test_power_loss_is_silent_until_the_host_is_on_again(net: _Net) -> None:
    client, stream = net.connected()
    server = net.hosts["server"]
    net.network.end_life(server, silently=True)
    server.end_life()
    server.is_on = False
    stream.write((b"x",))
    net.wait(10)
    assert (client.end, client.received) == ("", b"")
    net.lives["server"] = server.begin_life()
    net.network.power_on(server)
    net.wait()
    assert client.end == "Connection reset by peer"


@pytest.mark.parametrize("direction", [("client", "server"), ("server", "client")])
def test_cut_holds_bytes_back(net: _Net, direction: tuple[str, str]) -> None:
    client, stream = net.connected()
    net.network.cut(*direction)
    stream.write((b"a",))
    stream.write((b"b",))
    net.wait(5)
    assert (client.received, client.end) == (b"", "")
    assert net.served[0].received == (b"" if direction[0] == "client" else b"ab")
    net.network.heal(*direction)
    net.wait()
    assert client.received == b"AB"


def test_connecting_through_a_cut_succeeds_when_it_is_healed(net: _Net) -> None:
    net.network.cut("server", "client")
    client = net.open()
    net.wait(4)
    assert client.stream is None
    net.network.heal("server", "client")
    net.wait(10)
    assert client.stream is not None


def test_paused_server_answers_when_it_resumes(net: _Net) -> None:
    client, stream = net.connected()
    net.hosts["server"].pause()
    stream.write((b"a",))
    late = net.open()
    net.wait(3)
    assert client.received == b""
    assert late.stream is not None  # the kernel accepts
    net.hosts["server"].resume()
    net.wait()
    assert client.received == b"A"
    assert len(net.served) == 2


def test_torn_connection_is_reset_on_both_sides(net: _Net) -> None:
    client, _ = net.connected()
    (endpoint,) = net.network.connections_of(net.hosts["client"])
    net.network.tear(endpoint)
    net.wait()
    assert client.end == "Connection reset by peer"
    assert net.served[0].is_lost


def test_timers_of_a_killed_or_paused_process(net: _Net) -> None:
    calls: list[str] = []
    for name, life in net.lives.items():
        life.call_later(1_000, lambda name=name: calls.append(name))  # type: ignore[misc]
    net.hosts["server"].end_life()
    net.hosts["client"].pause()
    net.wait(5)
    assert not calls
    net.hosts["client"].resume()
    assert calls == ["client"]


def test_timer_follows_the_drift_of_its_clock(net: _Net) -> None:
    host, life = net.hosts["client"], net.lives["client"]
    host.clock.drift(100_000)
    begun_ms = host.clock.now_ms()
    fired: list[int] = []
    life.call_later(11_000, lambda: fired.append(host.clock.now_ms() - begun_ms))
    net.wait(9.99)
    assert not fired
    net.wait(0.02)
    assert fired == [11_000]


def test_jump_moves_the_wall_clock_only(net: _Net) -> None:
    clock = net.hosts["client"].clock
    now_ms, wall_ms = clock.now_ms(), clock.wall_ms()
    clock.set_wall(-5_000)
    assert (clock.now_ms(), clock.wall_ms()) == (now_ms, wall_ms - 5_000)
