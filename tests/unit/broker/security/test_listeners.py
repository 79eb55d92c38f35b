"""The address that clients learn for a broker, and the context of their requests."""

from types import SimpleNamespace
from typing import Any

from ottla.broker.security.listener_configs import Listener
from ottla.broker.security.listeners import BoundListeners
from ottla.broker.security.session import Session
from ottla.protocol.connection import ClientConnection, open_envelope
from ottla.protocol.messages.heartbeat import HeartbeatRequest

INSIDE = Listener("INSIDE", "", 9092, "PLAINTEXT")
OUTSIDE = Listener("OUTSIDE", "", 9093, "PLAINTEXT")


def bound_listeners(*advertised: Listener) -> BoundListeners:
    config: Any = SimpleNamespace(advertised_listeners=advertised)
    return BoundListeners(lambda: config)


def listeners(*advertised: Listener) -> BoundListeners:
    made = bound_listeners(*advertised)
    made.bound = [(INSIDE, ("0.0.0.0", 9092)), (OUTSIDE, ("0.0.0.0", 9093))]
    return made


def test_without_advertised_listeners_clients_learn_the_address_they_know() -> None:
    assert listeners().advertised_address(("10.0.0.1", 9093)) == ("10.0.0.1", 9093)


def test_name_of_a_listener_is_advertised_with_the_port_that_is_bound() -> None:
    made = bound_listeners()
    hosts = ("localhost", "broker.example", "127.0.0.1", "::1", "fe80::1%eth0", "")
    made.bound = [(Listener(f"L{at}", host, 0, "SSL"), (host, 9092 + at)) for at, host in enumerate(hosts)]
    sent = [made.advertised_address(("10.0.0.1", 9092 + at)) for at in range(len(hosts))]
    assert [host for host, _ in sent] == ["localhost", "broker.example", *["10.0.0.1"] * 4]
    assert [port for _, port in sent] == [9092 + at for at in range(len(hosts))]


def test_the_listener_of_the_connection_decides() -> None:
    both = listeners(INSIDE._replace(host="broker.local"), OUTSIDE._replace(host="kafka.example.com", port=443))
    assert both.advertised_address(("10.0.0.1", 9092)) == ("broker.local", 9092)
    assert both.advertised_address(("10.0.0.1", 9093)) == ("kafka.example.com", 443)
    assert both.advertised_address(("10.0.0.1", 1)) == ("broker.local", 9092)
    assert (both.name_of(9093), both.name_of(1)) == ("OUTSIDE", "INSIDE")


def test_requests_of_a_version_and_a_client_id_share_a_context() -> None:
    session = Session(("10.0.0.7", 4711), ("10.0.0.1", 9092), "INSIDE")

    def context_of(version: int, client_id: str) -> object:
        request = HeartbeatRequest(group_id="g", member_id="m")
        frame = b"".join(ClientConnection(client_id).request(request, version))[4:]
        return session.context(open_envelope(frame))

    assert context_of(3, "a") is context_of(3, "a")
    contexts = {context_of(3, "a"), context_of(4, "a"), context_of(3, "b")}
    assert len(contexts) == 3
    assert {context.listener for context in contexts} == {"INSIDE"}  # type: ignore[attr-defined]
    assert {context.client_host for context in contexts} == {"/10.0.0.7"}  # type: ignore[attr-defined]
