"""Quotas of users apply to the users of SASL and of certificates."""

import time
from collections.abc import Callable, Iterator

import pytest

from ottla.protocol.errors import NONE
from ottla.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.fetch import FetchRequest
from tests.conformance.security.conftest import Secured, SecuredWire

Connect = Callable[..., SecuredWire]
RATE = "request_percentage"


def set_quota(wire: SecuredWire, user: str, value: float | None) -> None:
    entity = [EntityData(entity_type="user", entity_name=user)]
    change = OpData(key=RATE, value=value or 0.0, remove=value is None)
    (entry,) = wire.send(AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[change])]), 1).entries
    assert entry.error_code == NONE
    time.sleep(0.5 if wire.is_kafka else 0)


@pytest.fixture
def quota(connect: Connect) -> Iterator[Callable[[str], None]]:
    """Sets a request quota of next to nothing for a user, until the end of the test."""
    plain = connect("PLAINTEXT")
    users: list[str] = []

    def give(user: str) -> None:
        users.append(user)
        set_quota(plain, user, 0.001)

    yield give
    for user in users:
        set_quota(plain, user, None)


def is_throttled(wire: SecuredWire) -> bool:
    """Return whether one of some requests is throttled."""
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    return any(wire.send(request, 11).throttle_time_ms > 0 for _ in range(300))


def test_users_of_sasl(connect: Connect, quota: Callable[[str], None]) -> None:
    quota("alice")
    alice, bob = connect(), connect()
    assert alice.log_in("alice").error_code == NONE
    assert bob.log_in("bob").error_code == NONE
    assert not is_throttled(bob)
    assert is_throttled(alice)


def test_users_of_certificates(connect: Connect, secured: Secured, quota: Callable[[str], None]) -> None:
    """The name is that of the mapping rule."""
    quota("ALICE")
    assert is_throttled(connect("MAPPED", secured.tls_context("alice")))
    assert not is_throttled(connect("MTLS", secured.tls_context("alice")))


def test_users_without_a_login(connect: Connect, secured: Secured, quota: Callable[[str], None]) -> None:
    quota("ANONYMOUS")
    assert is_throttled(connect("TLS", secured.tls_context()))
    alice = connect()
    assert alice.log_in("alice").error_code == NONE
    assert not is_throttled(alice)
