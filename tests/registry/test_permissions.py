"""The permissions that docs/schema-registry.md names are enough for a registry, and a missing one is named."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    Admin,
    ResourcePattern,
)
from ottla.addresses import address_text
from ottla.registry.service import RegistryConfig, RegistryThread
from ottla.testing import Kafka
from tests.registry.client import Registry
from tests.registry.schemas import ONE, TWO

GROUP = "schema-registry"
TOPIC = "_schemas"
NEEDED = {
    AclResourceType.TOPIC: (
        AclOperation.CREATE,
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
    ),
    AclResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE),
}


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    configs = {
        "security": "SASL_PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with Kafka(configs) as kafka:
        yield kafka


def allow(kafka: Kafka, needed: dict[AclResourceType, tuple[AclOperation, ...]]) -> None:
    internal = address_text(*kafka.broker.listeners.bound[1][1])
    names = {AclResourceType.TOPIC: TOPIC, AclResourceType.GROUP: GROUP}
    with Admin(bootstrap_servers=internal) as admin:
        admin.create_acls(
            [
                AclBinding(
                    ResourcePattern(kind, names[kind]),
                    AccessControlEntry("User:alice", operation, AclPermissionType.ALLOW),
                )
                for kind, operations in needed.items()
                for operation in operations
            ]
        ).check()


@contextmanager
def serving(kafka: Kafka) -> Iterator[RegistryThread]:
    thread = RegistryThread(RegistryConfig(kafka.client_config, port=0))
    try:
        yield thread
    finally:
        thread.stop()


def test_permissions_of_the_page_are_enough(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    allow(kafka, NEEDED)
    with serving(kafka) as thread:
        thread.run(thread.service.wait_ready())
        assert Registry(thread.url).register("a", ONE) == 1
        kafka.wait_for_group(GROUP, members=1, timeout=20)
        assert Registry(thread.url).register("a", TWO) == 2
    assert "authorized" not in caplog.text


def test_missing_permission_is_the_reason_in_the_answer(kafka: Kafka) -> None:
    with serving(kafka) as thread:
        registry = Registry(thread.url)
        deadline = time.monotonic() + 20
        while "It needs Create on topic _schemas" not in (answer := registry.get("/subjects")).message:
            assert time.monotonic() < deadline, answer
            time.sleep(0.01)
        assert answer.error == (503, 503)
        allow(kafka, NEEDED)
        thread.run(thread.service.wait_ready())
        assert registry.register("a", ONE) == 1
