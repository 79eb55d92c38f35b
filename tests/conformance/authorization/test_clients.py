"""ACLs by confluent-kafka and kafka-python: created, listed and deleted by an administrator; denied producers and consumers.

The administrator is the super user root; the other client is alice.
"""

import uuid
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.conformance.conftest import Wire

from .authorized import password_of
from .bindings import Binding, create, delete_all, described
from .codes import ALL, ALLOW, DENY, DESCRIBE, GROUP, LITERAL, PREFIXED, READ, TOPIC, WRITE
from .conftest import Authorized, Resources

with warnings.catch_warnings():
    # kafka-python reads its schemas by a function that Python has deprecated.
    warnings.filterwarnings("ignore", r"\w+_text is deprecated", DeprecationWarning)
    import kafka
    import kafka.admin as python
    import kafka.errors

librdkafka: Final[Any] = confluent_kafka.admin


@pytest.fixture(autouse=True)
def no_acls(root: Wire) -> Iterator[None]:
    """Delete the ACLs of a test."""
    yield
    delete_all(root)


@pytest.fixture
def topic() -> str:
    return f"clients-{uuid.uuid4().hex[:12]}"


def acls_of(topic: str, group: str = "g") -> list[Binding]:
    """ACLs of all forms: literal and prefixed, ALLOW and DENY, hosts, all operations."""
    return [
        Binding(READ, TOPIC, topic, "User:alice"),
        Binding(WRITE, TOPIC, topic[:6], "User:alice", ALLOW, PREFIXED),
        Binding(ALL, GROUP, group, "User:alice", DENY, LITERAL, "10.0.0.0/8"),
        Binding(DESCRIBE, TOPIC, "*", "User:*", ALLOW, LITERAL, "127.0.0.1"),
    ]


def _login(user: str) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password_of(user),
    }


def _rdkafka(broker: Authorized, user: str) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap_servers, **_login(user)}


def _rdkafka_binding(acl: Binding) -> Any:
    return librdkafka.AclBinding(
        librdkafka.ResourceType(acl.resource_type),
        acl.name,
        librdkafka.ResourcePatternType(acl.pattern),
        acl.principal,
        acl.host,
        librdkafka.AclOperation(acl.operation),
        librdkafka.AclPermissionType(acl.permission),
    )


def _of_rdkafka(acl: Any) -> Binding:
    return Binding(
        acl.operation.value,
        acl.restype.value,
        acl.name,
        acl.principal,
        acl.permission_type.value,
        acl.resource_pattern_type.value,
        acl.host,
    )


class Confluent:
    """confluent-kafka, by librdkafka."""

    def __init__(self, broker: Authorized) -> None:
        self._broker = broker

    def create(self, user: str, acls: list[Binding]) -> None:
        """Create ACLs. Raises KafkaException."""
        admin = self._admin(user)
        for future in admin.create_acls([_rdkafka_binding(acl) for acl in acls]).values():
            future.result(20)

    def listed(self, user: str, name: str | None = None) -> set[Binding]:
        """List the ACLs of a topic by literal patterns, or all. Raises KafkaException."""
        admin = self._admin(user)
        return set(map(_of_rdkafka, admin.describe_acls(self._filter(name)).result(20)))

    def delete(self, user: str, name: str | None = None) -> set[Binding]:
        """Delete the ACLs that `listed` returns. Raises KafkaException."""
        admin = self._admin(user)
        (future,) = admin.delete_acls([self._filter(name)]).values()
        return set(map(_of_rdkafka, future.result(20)))

    def _admin(self, user: str) -> Any:
        return librdkafka.AdminClient(_rdkafka(self._broker, user))

    def _filter(self, name: str | None) -> Any:
        return librdkafka.AclBindingFilter(
            librdkafka.ResourceType.ANY if name is None else librdkafka.ResourceType.TOPIC,
            name,
            librdkafka.ResourcePatternType.ANY if name is None else librdkafka.ResourcePatternType.LITERAL,
            None,
            None,
            librdkafka.AclOperation.ANY,
            librdkafka.AclPermissionType.ANY,
        )

    def produce(self, user: str, topic: str, value: bytes) -> str:
        """Write a record; return the name of the error, "" without one."""
        errors: list[Any] = []
        producer = confluent_kafka.Producer({**_rdkafka(self._broker, user), "message.timeout.ms": 20_000})
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        producer.flush(30)
        return "" if errors[0] is None else str(errors[0].name())

    def consume(self, user: str, topic: str, group: str) -> bytes | str:
        """Return the first value of a topic, or the name of the error."""
        configs = {**_rdkafka(self._broker, user), "group.id": group, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer(configs)
        consumer.subscribe([topic])
        message = consumer.poll(30)
        consumer.close()
        assert message is not None
        error = message.error()
        return str(error.name()) if error is not None else bytes(message.value() or b"")


class Python:
    """kafka-python."""

    def __init__(self, broker: Authorized) -> None:
        self._broker = broker

    def _configs(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": self._broker.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": password_of(user),
        }

    def _with_admin(self, user: str, work: Callable[[Any], Any]) -> Any:
        client = python.KafkaAdminClient(**self._configs(user))
        try:
            return work(client)
        finally:
            client.close()

    def create(self, user: str, acls: list[Binding]) -> None:
        """Create ACLs. Raises KafkaError."""
        made = [
            python.ACL(
                acl.principal,
                acl.host,
                python.ACLOperation(acl.operation),
                python.ACLPermissionType(acl.permission),
                python.ResourcePattern(
                    python.ResourceType(acl.resource_type), acl.name, python.ACLResourcePatternType(acl.pattern)
                ),
            )
            for acl in acls
        ]
        result = self._with_admin(user, lambda client: client.create_acls(made))
        for error in result["failed"]:
            raise error
        assert len(result["succeeded"]) == len(acls)

    def listed(self, user: str, name: str | None = None) -> set[Binding]:
        """List the ACLs of a topic by literal patterns, or all. Raises KafkaError."""
        acls, error = self._with_admin(user, lambda client: client.describe_acls(self._filter(name)))
        if error is not kafka.errors.NoError:
            raise error
        return set(map(self._binding, acls))

    def delete(self, user: str, name: str | None = None) -> set[Binding]:
        """Delete the ACLs that `listed` returns. Raises KafkaError."""
        ((_, acls, error),) = self._with_admin(user, lambda client: client.delete_acls([self._filter(name)]))
        if error is not kafka.errors.NoError:
            raise error
        return {self._binding(acl) for acl in acls}

    def _filter(self, name: str | None) -> Any:
        pattern = python.ResourcePatternFilter(
            python.ResourceType.ANY if name is None else python.ResourceType.TOPIC,
            name,
            python.ACLResourcePatternType.ANY if name is None else python.ACLResourcePatternType.LITERAL,
        )
        return python.ACLFilter(None, None, python.ACLOperation.ANY, python.ACLPermissionType.ANY, pattern)

    def _binding(self, acl: Any) -> Binding:
        pattern = acl.resource_pattern
        return Binding(
            int(acl.operation),
            int(pattern.resource_type),
            pattern.resource_name,
            acl.principal,
            int(acl.permission_type),
            int(pattern.pattern_type),
            acl.host,
        )

    def produce(self, user: str, topic: str, value: bytes) -> str:
        """Write a record; return the name of the error, "" without one."""
        producer = kafka.KafkaProducer(**self._configs(user), max_block_ms=10_000)
        try:
            producer.send(topic, value).get(30)
        except kafka.errors.KafkaError as error:
            return _ERRORS.get(type(error), type(error).__name__)
        finally:
            producer.close()
        return ""

    def consume(self, user: str, topic: str, group: str) -> bytes | str:
        """Return the first value of a topic, or the name of the error."""
        consumer = kafka.KafkaConsumer(
            topic,
            group_id=group,
            auto_offset_reset="earliest",
            consumer_timeout_ms=30_000,
            **self._configs(user),
        )
        try:
            return bytes(next(iter(consumer)).value)
        except kafka.errors.KafkaError as error:
            return _ERRORS.get(type(error), type(error).__name__)
        finally:
            consumer.close()


_ERRORS: Final = {
    kafka.errors.TopicAuthorizationFailedError: "TOPIC_AUTHORIZATION_FAILED",
    kafka.errors.GroupAuthorizationFailedError: "GROUP_AUTHORIZATION_FAILED",
    kafka.errors.ClusterAuthorizationFailedError: "CLUSTER_AUTHORIZATION_FAILED",
}


class Library(NamedTuple):
    """A client library, and the error of one whose administrator has no right."""

    client: type[Confluent] | type[Python]
    denied: type[Exception]

    def __str__(self) -> str:
        return self.client.__name__


LIBRARIES: Final = (
    Library(Confluent, confluent_kafka.KafkaException),
    Library(Python, kafka.errors.ClusterAuthorizationFailedError),
)


@pytest.fixture(params=LIBRARIES, ids=str)
def library(request: pytest.FixtureRequest) -> Library:
    parameter = request.param
    assert isinstance(parameter, Library)
    return parameter


@pytest.fixture
def client(authorized: Authorized, library: Library, sockets_of_kafka_python: None) -> Confluent | Python:
    return library.client(authorized)


def test_acls_are_created_listed_and_deleted(root: Wire, client: Confluent | Python, topic: str) -> None:
    acls = acls_of(topic)
    client.create("root", acls)
    create(root, *acls)  # waits until they are in force, adds none
    assert set(described(root)) == set(acls)
    assert client.listed("root") == set(acls)
    assert client.listed("root", topic) == {acls[0]}
    assert client.delete("root", topic) == {acls[0]}
    while topic in {acl.name for acl in described(root)}:
        pass
    assert client.delete("root") == set(acls[1:])


def test_an_administrator_without_the_right(library: Library, client: Confluent | Python, topic: str) -> None:
    for work in (lambda: client.create("alice", acls_of(topic)), lambda: client.delete("alice")):
        with pytest.raises(library.denied) as error:
            work()
        if isinstance(error.value, confluent_kafka.KafkaException):
            assert error.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED"
    if isinstance(client, Confluent):
        assert client.listed("alice") == set()  # librdkafka 2.16 does not report the error of DescribeAcls
    else:
        with pytest.raises(library.denied):
            client.listed("alice")


def test_records_are_denied_and_allowed(
    root: Wire, client: Confluent | Python, resources: Resources, topic: str
) -> None:
    """A producer without WRITE, one that may; a consumer without the group, without the topic, and one with both.

    WRITE on some topic is enough for the id of an idempotent producer.
    """
    group = f"group-{topic}"
    resources.make_topic(name=topic)
    create(root, Binding(DESCRIBE, TOPIC, topic, "User:alice"), Binding(WRITE, TOPIC, f"{topic}-2", "User:alice"))
    assert client.produce("alice", topic, b"v") == "TOPIC_AUTHORIZATION_FAILED"
    create(root, Binding(WRITE, TOPIC, topic, "User:alice"))
    assert not client.produce("alice", topic, b"v")
    assert client.consume("alice", topic, group) == "GROUP_AUTHORIZATION_FAILED"
    create(root, Binding(READ, GROUP, "group-", "User:alice", ALLOW, PREFIXED))
    assert client.consume("alice", topic, group) == "TOPIC_AUTHORIZATION_FAILED"
    create(root, Binding(READ, TOPIC, topic, "User:alice"))
    assert client.consume("alice", topic, group) == b"v"
    create(root, Binding(READ, TOPIC, topic, "User:*", DENY))
    assert client.consume("alice", topic, f"{group}-2") == "TOPIC_AUTHORIZATION_FAILED"
