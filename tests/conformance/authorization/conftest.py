"""Fixtures of the conformance tests of authorization: a broker with the configs of `authorized.py`, Ottla or Apache Kafka.

`--authorized-kafka PORT` names an Apache Kafka that was started with the configs of
`python -m tests.conformance.authorization.authorized PORT`.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from ottla.protocol.errors import NONE
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Topic, TopicFactory, Wire
from tests.conformance.members import new_group, wait_for
from tests.conformance.share_members import Sharer, alter, altered, share_group
from tests.conformance.transactions import TransactionalProducer

from . import bindings
from .authorized import LISTENERS, configs, listener_ports, password_of
from .bindings import Binding
from .codes import ALLOW, DENY, LITERAL
from .messages import api_named, plain, request
from .probes import Names, Probe

Connect = Callable[[str], Wire]


class Authorized(NamedTuple):
    """A broker with an authorizer. `ports` by name of the listener; `offers` are the versions by API."""

    ports: dict[str, int]
    is_kafka: bool
    offers: dict[int, tuple[int, int]]

    @property
    def bootstrap_servers(self) -> str:
        """Address of the listener with logins."""
        return f"127.0.0.1:{self.ports['SASL']}"

    def super_wire(self) -> Wire:
        """Return a connection of the super user."""
        return Wire(("127.0.0.1", self.ports["PLAINTEXT"]), is_kafka=self.is_kafka)

    def user_wire(self, user: str, password: str | None = None, client_id: str = "conformance") -> Wire:
        """Return a connection of a user, logged in by PLAIN."""
        wire = Wire(("127.0.0.1", self.ports["SASL"]), is_kafka=self.is_kafka)
        wire.client_id = client_id
        assert wire.send(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == NONE
        token = f"\0{user}\0{password or password_of(user)}".encode()
        answer = wire.send(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == NONE, answer.error_message
        return wire

    def versions(self, api: str) -> tuple[int, int]:
        """Return the first and the last version of an API; the last is lower than the first if the broker lacks the API."""
        first, last = self.offers.get(api_named(api).key, (1, 0))
        if self.is_kafka and api == "Produce":
            first = 3  # Apache Kafka 4 announces 0 for clients that take it as a sign (KAFKA-18659)
        return first, last

    def skip_unless_offered(self, api: str, version: int) -> None:
        """Skip a test about a version that this broker does not have."""
        first, last = self.versions(api)
        if not first <= version <= last:
            pytest.skip(f"this broker has versions {first} to {last} of {api}")


def ask(wire: Wire, row: Probe, version: int, names: Names) -> Any:
    """Send the request of a row and return the answer as plain values."""
    return plain(wire.send(request(row.api, row.fields(names, version)), version), version)


class Acls:
    """ACLs of one test, deleted at its end. Principals are users without "User:" unless they contain a colon."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def allow(self, user: str, operation: int, resource_type: int, *names: str, **more: Any) -> None:
        """Create ACLs that allow an operation."""
        self.create(*(binding(user, operation, resource_type, name, **more) for name in names))

    def deny(self, user: str, operation: int, resource_type: int, *names: str, **more: Any) -> None:
        """Create ACLs that deny an operation."""
        self.allow(user, operation, resource_type, *names, permission=DENY, **more)

    def create(self, *acls: Binding) -> None:
        """Create ACLs, and wait until they are in force."""
        bindings.create(self.wire, *acls)

    def delete(self, *unwanted: Binding) -> None:
        """Delete ACLs, and wait until they are out of force."""
        bindings.delete(self.wire, *unwanted)

    def clear(self) -> None:
        """Delete all ACLs."""
        bindings.delete_all(self.wire)

    @contextmanager
    def for_case(self, *case: object) -> Iterator[None]:
        """One of the cases of a test: its ACLs are deleted at its end, and a failure says which case it was."""
        try:
            yield
        except AssertionError as failure:
            failure.add_note(f"case: {', '.join(map(str, case))}")
            raise
        self.clear()


def binding(
    user: str,
    operation: int,
    resource_type: int,
    name: str,
    *,
    permission: int = ALLOW,
    pattern: int = LITERAL,
    host: str = "*",
) -> Binding:
    """Return an ACL of a user."""
    principal = user if ":" in user else f"User:{user}"
    return Binding(operation, resource_type, name, principal, permission, pattern, host)


class Resources:
    """Makes topics, groups and transactional ids of one test."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.make_topic = TopicFactory(wire)

    def topic(self, **configs: str) -> Topic:
        """Create a topic."""
        return self.make_topic(1, "", **configs)

    def names(self, count: int = 1, *, existing: tuple[str, ...] = (), topics: bool = True) -> Names:
        """Return names of `count` resources of each type; topics exist, unless `topics` is false, and what is in `existing`."""
        suffix = uuid.uuid4().hex[:12]
        shown = tuple(f"t-{suffix}-{number}" for number in range(count))
        ids = {name: self.make_topic(name=name).id for name in shown} if topics else {}
        groups = tuple(f"g-{suffix}-{number}" for number in range(count))
        transactional_ids = tuple(f"x-{suffix}-{number}" for number in range(count))
        names = Names(shown, ids, groups, transactional_ids, f"owner-{suffix}")
        if "offsets" in existing:
            for group in groups:
                self.commit(group, names.topics)
        if "share offsets" in existing:
            self.share(names.group, names.topics)
        if "transactions" in existing:
            for transactional_id in transactional_ids:
                TransactionalProducer(self._wire, transactional_id=transactional_id)
        return names

    def share(self, group: str, topics: tuple[str, ...]) -> None:
        """Make a share group without members that has offsets of the topics."""
        member = Sharer(self._wire, group)
        member.join(*topics)
        member.leave()
        offsets = [(name, {0: 0}) for name in topics]
        wait_for(lambda: {code for code, _ in altered(alter(self._wire, group, offsets)).values()} == {"NONE"})

    def commit(self, group: str, topics: tuple[str, ...]) -> None:
        """Commit an offset of each topic in a group without members."""
        parts = [{"partition_index": 0, "committed_offset": 1}]
        rows = [{"name": name, "partitions": parts} for name in topics]
        fields = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": rows}

        def committed() -> bool:
            answer = plain(self._wire.send(request("OffsetCommit", fields), 8), 8)
            return all(part["error_code"] == NONE for topic in answer["topics"] for part in topic["partitions"])

        wait_for(committed)


def connect_to(ports: dict[str, int], *, is_kafka: bool) -> Authorized:
    """Return the broker, once its coordinators are ready."""
    broker = Authorized(ports, is_kafka, {})
    wire = broker.super_wire()
    answer = wire.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
    bindings.delete_all(wire)
    new_group(wire)
    share_group(wire)
    TransactionalProducer(wire)
    wire.close()
    return broker._replace(offers={key.api_key: (key.min_version, key.max_version) for key in answer.api_keys})


@pytest.fixture(scope="session")
def authorized(request: pytest.FixtureRequest) -> Iterator[Authorized]:
    port = request.config.getoption("--authorized-kafka")
    if request.config.getoption("--broker") and not port:
        pytest.skip("--authorized-kafka names an Apache Kafka with an authorizer")
    if port:
        yield connect_to(listener_ports(int(port)), is_kafka=True)
        return
    with EmbeddedBroker(configs(dict.fromkeys(LISTENERS, 0)) | {"node.id": "1"}) as embedded:
        ports = {listener.name: address[1] for listener, address in embedded.broker.listeners.bound}
        yield connect_to(ports, is_kafka=False)


@pytest.fixture
def root(authorized: Authorized) -> Iterator[Wire]:
    """Connection of the super user."""
    wire = authorized.super_wire()
    yield wire
    wire.close()


@pytest.fixture
def connect(authorized: Authorized) -> Iterator[Connect]:
    """Opens connections of users, which are closed after the test."""
    wires: list[Wire] = []

    def connect(user: str) -> Wire:
        wires.append(authorized.user_wire(user))
        return wires[-1]

    yield connect
    for wire in wires:
        wire.close()


@pytest.fixture
def alice(connect: Connect) -> Wire:
    return connect("alice")


@pytest.fixture
def acls(root: Wire) -> Iterator[Acls]:
    yield Acls(root)
    bindings.delete_all(root)


@pytest.fixture
def resources(root: Wire) -> Resources:
    return Resources(root)
