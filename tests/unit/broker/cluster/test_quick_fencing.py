"""Fencing of brokers whose address refuses connections, on virtual time and a network that the test controls."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.metadata.stores import VirtualTime

from ottla.broker.cluster.fencing import REFUSED, QuickFencing
from ottla.environment import Address, Receiver
from ottla.metadata.image import EMPTY, BrokerImage, Endpoint, Image, Liveness
from ottla.metadata.store import MetadataStore

BROKERS = (1, 2, 3)
SESSION_MS = 6000


class Stream:
    """An open connection; it is counted while it is open."""

    def __init__(self, network: "Network", node: int) -> None:
        self._network = network
        self._node = node

    def write(self, pieces: Any) -> None:
        raise AssertionError(f"fencing sent {pieces}")

    def close(self) -> None:
        self._network.closed.append(self._node)


class Network:
    """Answers connection attempts in a millisecond, each broker by what `how` says of it: accepts, refuses or resets."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.how = dict.fromkeys(BROKERS, "accepts")
        self.receivers: dict[int, Receiver] = {}
        self.attempts: list[tuple[int, int]] = []
        """Time and broker of each attempt."""
        self.closed: list[int] = []

    def open(
        self, address: Address, receiver: Receiver, *, send_buffer: int = -1, receive_buffer: int = -1
    ) -> Callable[[], None]:
        node = int(address[1])
        self.attempts.append((self._time.now, node))

        def answer() -> None:
            if self.how[node] == "refuses":
                receiver.lost(REFUSED)
                return
            self.receivers[node] = receiver
            receiver.connected(Stream(self, node))
            if self.how[node] == "resets":
                receiver.lost("Connection reset by peer")

        return self._time.call_later(1, answer).cancel

    def kill(self, node: int, then: str = "refuses") -> None:
        self.how[node] = then
        self.receivers[node].lost("Connection reset by peer")


class Leases:
    """The part of a metadata store that fencing uses."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self.revoked: list[tuple[int, int]] = []
        """Time and lease of each revocation."""

    def revoke(self, lease: int) -> None:
        self.revoked.append((self._time.now, lease))


class Case:
    def __init__(self) -> None:
        self.time = VirtualTime()
        self.network = Network(self.time)
        self.leases = Leases(self.time)
        store: MetadataStore = self.leases  # type: ignore[assignment]
        self.fencing = QuickFencing(
            1,
            image=_image,
            store=store,
            transport=self.network,
            clock=self.time,
            timers=self.time,
            session_timeout_ms=SESSION_MS,
        )
        self.fencing.begin()
        self.time.advance(1000)

    def revoked_after(self, ms: int) -> list[tuple[int, int]]:
        """Return the leases revoked within so many ms, with the times until then."""
        begun = self.time.now
        self.time.advance(ms)
        return [(at - begun, lease) for at, lease in self.leases.revoked if at >= begun]


def _image() -> Image:
    """Return a cluster whose controller is broker 1; the lease of broker N is N * 100."""
    brokers = {
        node: BrokerImage(node, "h", node, None, node, f"i{node}", (Endpoint("L", "h", node),), listener="L")
        for node in BROKERS
    }
    return EMPTY._replace(
        controller_id=1,
        brokers=brokers,
        registered=brokers,
        live={node: Liveness(f"i{node}", node * 100, 1) for node in BROKERS},
    )


@pytest.fixture
def case() -> Case:
    return Case()


def test_the_lease_of_a_killed_broker_is_revoked_after_three_refusals(case: Case) -> None:
    case.network.kill(2)
    ((after_ms, lease),) = case.revoked_after(1000)
    assert lease == 200
    assert 100 <= after_ms <= 110


def test_a_broker_whose_socket_still_accepts_as_it_ends_is_fenced_as_soon(case: Case) -> None:
    case.network.kill(2, then="resets")
    case.time.advance(2)
    case.network.how[2] = "refuses"
    ((after_ms, lease),) = case.revoked_after(1000)
    assert lease == 200
    assert after_ms <= 160


def test_a_broker_that_closes_every_connection_is_not_fenced_and_tried_once_a_second(case: Case) -> None:
    case.network.kill(2, then="resets")
    begun = len(case.network.attempts)
    assert case.revoked_after(10_000) == []
    assert 9 <= len(case.network.attempts) - begun <= 13


def test_a_broker_that_returns_between_refusals_is_not_fenced(case: Case) -> None:
    case.network.kill(2)
    case.time.advance(60)
    case.network.how[2] = "accepts"
    assert case.revoked_after(3000) == []


def test_a_broker_that_most_others_refuse_fences_none(case: Case) -> None:
    case.network.how[3] = "refuses"
    case.network.kill(2)
    assert case.revoked_after(900) == []


def test_an_incarnation_is_fenced_once_in_a_session_timeout(case: Case) -> None:
    case.network.kill(2)
    assert len(case.revoked_after(SESSION_MS - 500)) == 1
    assert len(case.revoked_after(3000)) == 1


def test_no_connection_is_left(case: Case) -> None:
    case.fencing.close()
    assert sorted(case.network.closed) == [2, 3]
    case.time.advance(5000)
    assert case.leases.revoked == []
