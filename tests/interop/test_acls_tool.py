"""kafka-acls.sh of Apache Kafka against Ottla."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.authorization.authorized import password_of
from tests.conformance.authorization.bindings import Binding, delete_all, described
from tests.conformance.authorization.codes import (
    ALL,
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DENY,
    DESCRIBE,
    GROUP,
    IDEMPOTENT_WRITE,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
)
from tests.conformance.authorization.conftest import Authorized, authorized  # noqa: F401  (a fixture)

from .apache_kafka import SCRIPT

pytestmark = pytest.mark.usefixtures("kafka_tools")
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Tool:
    """kafka-acls.sh, logged in as a user."""

    def __init__(self, broker: Authorized, directory: Path, user: str) -> None:
        self._address = broker.bootstrap_servers
        self._config = directory / f"{user}.properties"
        self._config.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN} required username="{user}" password="{password_of(user)}";\n',
            encoding="utf-8",
        )

    def __call__(self, *arguments: str) -> str:
        """Return what the tool prints, on both outputs."""
        command = [str(SCRIPT), "tool", "org.apache.kafka.tools.AclCommand", "--bootstrap-server", self._address]
        command += ["--command-config", str(self._config), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
        return done.stdout + done.stderr


@pytest.fixture
def tool(authorized: Authorized, tmp_path: Path) -> Iterator[Tool]:  # noqa: F811
    wire = authorized.super_wire()
    yield Tool(authorized, tmp_path, "root")
    delete_all(wire)
    wire.close()


def acls_of(broker: Authorized) -> set[Binding]:
    wire = broker.super_wire()
    bindings = described(wire)
    wire.close()
    assert len(bindings) == len(set(bindings))
    return set(bindings)


def allowed(resource_type: int, name: str, *operations: int, pattern: int = LITERAL) -> set[Binding]:
    """ACLs that allow operations to bob."""
    return {Binding(operation, resource_type, name, "User:bob", ALLOW, pattern) for operation in operations}


def test_a_producer(authorized: Authorized, tool: Tool) -> None:  # noqa: F811
    options = ("--allow-principal", "User:bob", "--producer", "--topic", "t", "--transactional-id", "tx")
    printed = tool("--add", *options, "--idempotent")
    assert "(principal=User:bob, host=*, operation=WRITE, permissionType=ALLOW)" in printed
    expected = allowed(TOPIC, "t", WRITE, DESCRIBE, CREATE) | allowed(TRANSACTIONAL_ID, "tx", WRITE, DESCRIBE)
    expected |= allowed(CLUSTER, CLUSTER_NAME, IDEMPOTENT_WRITE)
    assert acls_of(authorized) == expected
    tool("--remove", *options, "--idempotent", "--force")
    assert acls_of(authorized) == set()


def test_a_consumer_with_prefixed_patterns(authorized: Authorized, tool: Tool) -> None:  # noqa: F811
    options = ("--allow-principal", "User:bob", "--consumer", "--topic", "orders-", "--group", "app-")
    tool("--add", *options, "--resource-pattern-type", "prefixed")
    expected = allowed(TOPIC, "orders-", READ, DESCRIBE, pattern=PREFIXED)
    expected |= allowed(GROUP, "app-", READ, pattern=PREFIXED)
    assert acls_of(authorized) == expected
    matching = tool("--list", "--topic", "orders-2026", "--resource-pattern-type", "match")
    assert "ResourcePattern(resourceType=TOPIC, name=orders-, patternType=PREFIXED)" in matching
    assert "name=orders-" not in tool("--list", "--topic", "orders-2026")
    tool("--remove", *options, "--resource-pattern-type", "prefixed", "--force")
    assert acls_of(authorized) == set()


def test_denials_hosts_and_lists(authorized: Authorized, tool: Tool) -> None:  # noqa: F811
    tool("--add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.0/8", "--operation", "All", "--topic", "*")
    tool("--add", "--allow-principal", "User:*", "--allow-host", "127.0.0.1", "--operation", "Read", "--topic", "t")
    assert acls_of(authorized) == {
        Binding(ALL, TOPIC, "*", "User:eve", DENY, LITERAL, "10.0.0.0/8"),
        Binding(READ, TOPIC, "t", "User:*", ALLOW, LITERAL, "127.0.0.1"),
    }
    printed = tool("--list")
    assert "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=*, patternType=LITERAL)`" in printed
    assert "(principal=User:eve, host=10.0.0.0/8, operation=ALL, permissionType=DENY)" in printed
    assert "(principal=User:*, host=127.0.0.1, operation=READ, permissionType=ALLOW)" in printed
    printed = tool("--list", "--principal", "User:eve")
    assert "ACLs for principal `User:eve`" in printed
    assert "User:*" not in printed


def test_a_user_without_the_right(authorized: Authorized, tmp_path: Path) -> None:  # noqa: F811
    alice = Tool(authorized, tmp_path, "alice")
    assert "ClusterAuthorizationException" in alice("--list")
    added = alice("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "t")
    assert "ClusterAuthorizationException" in added
    assert acls_of(authorized) == set()
