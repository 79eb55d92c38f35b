"""Users of a broker with an authorizer, and their ACLs."""

import re
import shlex
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner

from ottla import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclResourceType,
    Admin,
    NewTopic,
    Producer,
    ResourcePattern,
    ResourcePatternFilter,
)
from ottla.cli.main import main
from ottla.client.errors import KafkaError, NotAuthorized
from tests.conformance.authorization.authorized import password_of
from tests.conformance.authorization.conftest import Authorized

from .conftest import Configs, fresh

T = TypeVar("T")
PATIENCE_S = 8
"""A denied call must not wait for a timeout; those of clients are 30 s and more."""


class Users:
    """Configs of users, and their ACLs."""

    def __init__(self, broker: Authorized, root: Admin) -> None:
        self.broker = broker
        self.root = root

    @property
    def super_configs(self) -> Configs:
        """Configs of the super user."""
        return {"bootstrap.servers": f"127.0.0.1:{self.broker.ports['PLAINTEXT']}"}

    def configs(self, user: str = "alice", **more: Any) -> Configs:
        """Configs of a user without permissions."""
        return {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl_username": user,
            "sasl_password": password_of(user),
        } | more

    def settled(self) -> None:
        """Wait until an Apache Kafka has applied a change of ACLs, which it does after its answer."""
        if self.broker.is_kafka:
            time.sleep(0.2)

    def allow(self, operation: AclOperation, resource_type: AclResourceType, name: str, user: str = "alice") -> None:
        """Create an ACL for a user."""
        self.root.create_acls([allowing(operation, resource_type, name, f"User:{user}")]).check()
        self.settled()

    def disallow(self, user: str = "alice", resource_type: AclResourceType = AclResourceType.ANY) -> None:
        """Delete the ACLs of a user, on all resources or on those of a type."""
        principal = AccessControlEntryFilter(principal=f"User:{user}")
        self.root.delete_acls([AclBindingFilter(ResourcePatternFilter(resource_type), principal)]).check()
        self.settled()

    def topic(self, records: int = 0) -> str:
        """Create a topic."""
        name = fresh()
        self.root.create_topics([NewTopic(name, 1, 1)]).check()
        with Producer(self.super_configs) as producer:
            for number in range(records):
                producer.produce(name, str(number))
        return name

    def run_command_of(self, error: KafkaError, user: str = "alice") -> str:
        """Run the command in the message of an error; return what it grants."""
        message = str(error)
        assert "\n" not in message
        matched = re.search(r"It needs (.+): (ottla acls .+) User:NAME$", message)
        assert matched is not None, message
        words = shlex.split(f"{matched[2]} User:{user}")[1:]
        result = CliRunner().invoke(main, [*words, "--bootstrap-server", self.super_configs["bootstrap.servers"]])
        assert result.exit_code == 0, result.output
        self.settled()
        return matched[1]

    def grant_until(self, call: Callable[[], T]) -> tuple[list[str], T]:
        """Call until it succeeds, and grant what its errors name; return that, and the result."""
        granted: list[str] = []
        for _ in range(6):
            begun = time.monotonic()
            try:
                return granted, call()
            except NotAuthorized as error:
                assert time.monotonic() - begun < PATIENCE_S
                granted.append(self.run_command_of(error))
        raise AssertionError(f"still denied after {granted}")


def allowing(operation: AclOperation, resource_type: AclResourceType, name: str, principal: str) -> AclBinding:
    """An ACL with a literal pattern."""
    return AclBinding(ResourcePattern(resource_type, name), AccessControlEntry(principal, operation))


@pytest.fixture
def users(authorized: Authorized) -> Iterator[Users]:
    with Admin({"bootstrap.servers": f"127.0.0.1:{authorized.ports['PLAINTEXT']}"}) as root:
        made = Users(authorized, root)
        yield made
        root.delete_acls([AclBindingFilter()]).check()
        made.settled()
