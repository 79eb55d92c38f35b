"""Permissions of a registry's users by the ACLs of the topics of their subjects."""

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ottla import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    Admin,
    PatternType,
    ResourcePattern,
)
from ottla.addresses import address_text
from ottla.environment.http_server import HttpRequest
from ottla.registry import acls
from ottla.registry.permissions import Permissions, topic_of
from ottla.registry.security import (
    AUTHORIZES,
    PASSWORDS,
    READ_ONLY_USERS,
    SUPER_USERS,
    InvalidSecurity,
    security_of,
)
from ottla.registry.service import RegistryConfig, RegistryThread
from ottla.security.acls import ALLOW, DENY, LITERAL, PREFIXED, Acl
from ottla.security.passwords import hash_password
from ottla.testing import Kafka
from tests.registry.client import Answer, Registry
from tests.registry.schemas import ONE, TWO

READ, WRITE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
OPERATIONS = (READ, WRITE, DELETE, AclOperation.ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS, AclOperation.CREATE)
TOPIC, CLUSTER = AclResourceType.TOPIC, AclResourceType.CLUSTER


def acl(operation: int, name: str = "orders", kind: int = TOPIC, **changed: object) -> Acl:
    return Acl(kind, LITERAL, name, "User:ada", "*", operation, ALLOW)._replace(**changed)  # type: ignore[arg-type]


def allowed(method: str, path: str, *granted: Acl, user: str = "ada", peer: str = "10.0.0.1") -> bool:
    permissions = Permissions({"root"}, lambda: None)
    permissions.apply(granted)
    refusal = permissions.refusal(HttpRequest(method, path, {}, b"", peer), user)
    assert refusal is None or refusal.status == 403
    return refusal is None


TABLE = [
    ("GET", "/subjects/orders-value/versions", READ),
    ("HEAD", "/subjects/orders-value/versions", READ),
    ("GET", "/subjects/orders-key/versions/latest", READ),
    ("GET", "/subjects/orders-value/versions/1/schema", READ),
    ("GET", "/subjects/orders-value/versions/1/referencedby", READ),
    ("GET", "/subjects/orders-value/metadata?key=a&value=b", READ),
    ("POST", "/subjects/orders-value", READ),
    ("POST", "/subjects/orders-value/versions", WRITE),
    ("POST", "/subjects/orders-value/versions?normalize=true", WRITE),
    ("POST", "/subjects/orders-value/versions/latest/tags", WRITE),
    ("DELETE", "/subjects/orders-value", DELETE),
    ("DELETE", "/subjects/orders-value/versions/1?permanent=true", DELETE),
    ("POST", "/compatibility/subjects/orders-value/versions/latest", READ),
    ("POST", "/compatibility/subjects/orders-value/versions", READ),
    ("GET", "/config/orders-value", DESCRIBE_CONFIGS),
    ("PUT", "/config/orders-value", ALTER_CONFIGS),
    ("DELETE", "/config/orders-value", ALTER_CONFIGS),
    ("GET", "/mode/orders-value", DESCRIBE_CONFIGS),
    ("PUT", "/mode/orders-value", ALTER_CONFIGS),
    ("DELETE", "/mode/orders-value", ALTER_CONFIGS),
    ("POST", "/subjects/:.ctx:orders-value/versions", WRITE),
    ("POST", "/contexts/ctx/subjects/orders-value/versions", WRITE),
    ("PUT", "/contexts/ctx/config/orders-value", ALTER_CONFIGS),
    ("GET", "/subjects/orders/versions", READ),
    ("GET", "/subjects/%6Frders-value/versions", READ),
    ("POST", "//subjects/orders-value/versions", WRITE),
]


@pytest.mark.parametrize(("method", "path", "operation"), TABLE)
def test_request_needs_one_operation_on_the_topic(method: str, path: str, operation: int) -> None:
    implied = (ALTER_CONFIGS,) if operation == DESCRIBE_CONFIGS else ()
    assert allowed(method, path, acl(operation))
    assert not allowed(method, path, *(acl(other) for other in OPERATIONS if other not in (operation, *implied)))
    assert not allowed(method, path, *(acl(other, kind=CLUSTER, name="kafka-cluster") for other in OPERATIONS))
    assert not allowed(method, path, *(acl(other, name="other") for other in OPERATIONS))
    assert not allowed(method, path, acl(operation), user="bob")
    assert allowed(method, path, user="root")
    assert allowed(method, path, acl(AclOperation.ALL))
    assert allowed(method, path, acl(operation, name="ord", pattern_type=PREFIXED))
    assert allowed(method, path, acl(operation, name="*", principal="User:*"))
    assert not allowed(method, path, acl(operation), acl(operation, permission=DENY))
    assert not allowed(method, path, acl(operation), acl(operation, permission=DENY, host="10.0.0.1"))
    assert allowed(method, path, acl(operation), acl(operation, permission=DENY, host="10.0.0.2"))


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("GET", "/config", DESCRIBE_CONFIGS),
        ("PUT", "/config", ALTER_CONFIGS),
        ("DELETE", "/config", ALTER_CONFIGS),
        ("GET", "/mode", DESCRIBE_CONFIGS),
        ("PUT", "/mode", ALTER_CONFIGS),
        ("PUT", "/config/:.ctx:", ALTER_CONFIGS),
        ("PUT", "/contexts/ctx/mode", ALTER_CONFIGS),
        ("PUT", "/mode/:.__GLOBAL:", ALTER_CONFIGS),
        ("DELETE", "/contexts/.ctx", ALTER_CONFIGS),
    ],
)
def test_settings_of_all_subjects_need_an_operation_on_the_cluster(method: str, path: str, operation: int) -> None:
    implied = (ALTER_CONFIGS,) if operation == DESCRIBE_CONFIGS else ()
    of_cluster = [acl(other, "kafka-cluster", CLUSTER) for other in OPERATIONS if other not in (operation, *implied)]
    assert allowed(method, path, acl(operation, "kafka-cluster", CLUSTER))
    assert not allowed(method, path, *of_cluster, *(acl(other, "*") for other in OPERATIONS))
    assert allowed(method, path, user="root")


@pytest.mark.parametrize(
    "path", ["/", "/subjects", "/schemas", "/contexts", "/schemas/types", "/v1/metadata/id", "/no"]
)
def test_requests_without_a_subject_need_a_login_only(path: str) -> None:
    assert allowed("GET", path)


@pytest.mark.parametrize(
    ("subject", "topic"),
    [
        ("orders-value", "orders"),
        ("orders-key", "orders"),
        ("orders-value-key", "orders-value"),
        ("n.Order", "n.Order"),
        (":.ctx:orders-value", "orders"),
        ("-value", ""),
        ("value", "value"),
    ],
)
def test_topic_of_a_subject(subject: str, topic: str) -> None:
    assert topic_of(subject) == topic


def test_only_super_users_are_served_before_the_acls_are_read() -> None:
    permissions = Permissions({"root"}, lambda: None)
    request = HttpRequest("GET", "/subjects", {}, b"")
    refusal = permissions.refusal(request, "ada")
    assert refusal is not None
    assert refusal.status == 503
    assert permissions.refusal(request, "root") is None


# Over HTTP.


class Secured(NamedTuple):
    """A registry that authorizes, and the address of a listener for a superuser."""

    registry: Registry
    kafka: Kafka

    def ask(self, user: str, method: str, path: str, body: object = None) -> Answer:
        credentials = base64.b64encode(f"{user}:secret".encode()).decode()
        return self.registry.ask(method, path, body, {"Authorization": f"Basic {credentials}"})

    def allow(
        self, user: str, topic: str, *operations: AclOperation, pattern: PatternType = PatternType.LITERAL
    ) -> None:
        internal = address_text(*self.kafka.broker.listeners.bound[1][1])
        with Admin(bootstrap_servers=internal) as admin:
            admin.create_acls(
                [
                    AclBinding(
                        ResourcePattern(TOPIC, topic, pattern),
                        AccessControlEntry(f"User:{user}", operation, AclPermissionType.ALLOW),
                    )
                    for operation in operations
                ]
            ).check()


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secured]:
    monkeypatch.setattr(acls, "_PERIOD_S", 0.05)
    file = tmp_path / "passwords"
    users = ("root", "ada", "bob")
    file.write_text("".join(f"{user}:{hash_password('secret', b'salt')}\n" for user in users), encoding="utf-8")
    configs = {
        "security": "SASL_PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    properties = {PASSWORDS: str(file), AUTHORIZES: "true", SUPER_USERS: "root"}
    with Kafka(configs) as kafka:
        thread = RegistryThread(RegistryConfig(kafka.client_config, port=0, security=security_of(properties)))
        thread.run(thread.service.wait_ready())
        own = Secured(Registry(thread.url), kafka)
        eventually(own, "ada", "GET", "/subjects", 200)
        yield own
        thread.stop()


def eventually(secured: Secured, user: str, method: str, path: str, status: int, body: object = None) -> Answer:
    deadline = time.monotonic() + 10
    while (answer := secured.ask(user, method, path, body)).status != status:
        assert time.monotonic() < deadline, answer
        time.sleep(0.02)
    return answer


def test_users_see_and_change_what_the_acls_allow(secured: Secured) -> None:
    assert secured.ask("ada", "POST", "/subjects/orders-value/versions", {"schema": ONE}).status == 403
    secured.allow("ada", "orders", WRITE)
    number = eventually(secured, "ada", "POST", "/subjects/orders-value/versions", 200, {"schema": ONE}).value["id"]
    answer = secured.ask("ada", "GET", "/subjects/orders-value/versions")
    assert (answer.error, answer.message) == ((403, 403), "User ada is denied READ on Topic:orders")
    for path in (f"/schemas/ids/{number}", f"/schemas/ids/{number}/schema", f"/schemas/ids/{number}/versions"):
        assert secured.ask("ada", "GET", path).status == 403
        assert secured.ask("root", "GET", path).status == 200
    secured.allow("ada", "orders", READ)
    eventually(secured, "ada", "GET", "/subjects/orders-value/versions", 200)
    assert secured.ask("ada", "GET", f"/schemas/ids/{number}").status == 200
    assert secured.ask("bob", "GET", f"/schemas/ids/{number}").status == 403
    assert secured.ask("ada", "GET", "/schemas/ids/99").error == (404, 40403)
    assert secured.ask("ada", "DELETE", "/subjects/orders-value").status == 403


def test_lists_have_what_a_user_may_read(secured: Secured) -> None:
    for subject, text in (("orders-value", ONE), ("orders-key", TWO), ("pay-value", ONE), ("text", '"string"')):
        assert secured.ask("root", "POST", f"/subjects/{subject}/versions", {"schema": text}).status == 200
    guid = "/schemas/guids/" + str(
        secured.registry.ask(
            "GET",
            "/schemas/ids/1",
            headers={
                "Authorization": f"Basic {base64.b64encode(b'root:secret').decode()}",
                "Confluent-Accept-Unknown-Properties": "true",
            },
        ).value["guid"]
    )
    secured.allow("ada", "ord", READ, pattern=PatternType.PREFIXED)
    eventually(secured, "ada", "GET", "/subjects/orders-key/versions", 200)
    assert secured.ask("ada", "GET", "/subjects").value == ["orders-key", "orders-value"]
    assert secured.ask("bob", "GET", "/subjects").value == []
    assert secured.ask("root", "GET", "/subjects").value == ["orders-key", "orders-value", "pay-value", "text"]
    assert {row["subject"] for row in secured.ask("ada", "GET", "/schemas").value} == {"orders-key", "orders-value"}
    assert secured.ask("ada", "GET", "/schemas/ids/1/subjects").value == ["orders-value"]
    assert [row["subject"] for row in secured.ask("ada", "GET", "/schemas/ids/1/versions").value] == ["orders-value"]
    assert secured.ask("ada", "GET", guid).status == 200
    assert secured.ask("bob", "GET", guid).status == 403
    assert secured.ask("ada", "GET", "/schemas/ids/3/schema").status == 403
    for name in ("orders-old", "pay-old"):
        assert secured.ask("root", "PUT", f"/config/{name}", {"alias": "orders-value"}).status == 200
    rows = secured.ask("ada", "GET", "/schemas?aliases=true").value
    assert {row["subject"]: row.get("aliases") for row in rows} == {"orders-key": None, "orders-value": ["orders-old"]}


def test_alias_does_not_show_another_subject(secured: Secured) -> None:
    secured.ask("root", "POST", "/subjects/pay-value/versions", {"schema": ONE})
    secured.allow("ada", "orders", READ, ALTER_CONFIGS)
    eventually(secured, "ada", "PUT", "/config/orders-value", 200, {"alias": "pay-value"})
    assert secured.ask("ada", "GET", "/subjects/orders-value/versions").status == 403
    secured.allow("ada", "pay", READ)
    assert eventually(secured, "ada", "GET", "/subjects/orders-value/versions", 200).value == [1]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({AUTHORIZES: "true"}, f"{AUTHORIZES} needs users"),
        ({SUPER_USERS: "ada"}, f"{SUPER_USERS} needs users"),
        ({AUTHORIZES: "yes"}, "is true or false, not yes"),
        ({READ_ONLY_USERS: "ada"}, f"{READ_ONLY_USERS} needs users"),
    ],
)
def test_properties_that_do_not_fit(properties: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidSecurity, match=reason):
        security_of(properties)


def test_registry_of_a_cluster_without_acls_says_so(tmp_path: Path, kafka: Kafka) -> None:
    file = tmp_path / "passwords"
    file.write_text(f"ada:{hash_password('secret', b'salt')}\n", encoding="utf-8")
    security = security_of({PASSWORDS: str(file), AUTHORIZES: "true"})
    thread = RegistryThread(RegistryConfig(kafka.client_config, port=0, security=security))
    thread.run(thread.service.wait_ready())
    answer = Secured(Registry(thread.url), kafka).ask("ada", "GET", "/subjects")
    thread.stop()
    assert answer.status == 503
    assert "the ACLs of the cluster could not be read" in answer.message
