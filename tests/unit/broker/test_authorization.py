"""The authorizer of a broker: decisions of connections, their audit log, and Python classes."""

import logging
import socket

import pytest
from tests.fuzz.grown_requests import DISTINCT, builder

from ottla.broker.authorization import Authorization, AuthorizationRequest
from ottla.metadata.configs import InvalidConfig
from ottla.metadata.image import EMPTY, Image
from ottla.protocol.api import FETCH, METADATA
from ottla.protocol.context import RequestContext
from ottla.security.acls import ALLOW, DENY, LITERAL, Acl
from ottla.security.operations import AclOperation, AclResourceType
from ottla.testing.embedded import EmbeddedBroker

READ, WRITE, TOPIC = AclOperation.READ, AclOperation.WRITE, AclResourceType.TOPIC
STANDARD = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
THIS = "tests.unit.broker.test_authorization"


def image_with(*acls: Acl) -> Image:
    return EMPTY._replace(acls={str(acl): acl for acl in acls})


def rule(operation: int, permission: int = ALLOW, host: str = "*") -> Acl:
    return Acl(TOPIC, LITERAL, "t", "User:alice", host, operation, permission)


def context_of(authorization: Authorization, principal: str = "User:alice", host: str = "10.0.0.1") -> RequestContext:
    authorizer = authorization.of(principal, host)
    return RequestContext(
        principal=principal, client_host=f"/{host}", authorizer=authorizer, api=FETCH, client_id="c", listener="L"
    )


def test_a_decision_holds_until_acls_change() -> None:
    authorization = Authorization(STANDARD)
    context = context_of(authorization)
    assert not context.allowed(READ, TOPIC, "t")
    authorization.apply(image_with(rule(READ)))
    assert context.allowed(READ, TOPIC, "t")
    assert context.allowed(READ, TOPIC, "t")
    assert context.allowed(AclOperation.DESCRIBE, TOPIC, "t")
    assert not context.allowed(WRITE, TOPIC, "t")
    assert not context_of(authorization, "User:bob").allowed(READ, TOPIC, "t")
    authorization.apply(image_with(rule(READ), rule(READ, DENY)))
    assert not context.allowed(READ, TOPIC, "t")
    assert (authorization.requests, authorization.denied) == (7, 4)


def test_an_image_with_the_same_acls_keeps_the_decisions() -> None:
    authorization = Authorization(STANDARD)
    image = image_with(rule(READ))
    authorization.apply(image)
    before = authorization.current
    authorization.apply(image._replace(revision=9))
    assert authorization.current is before


def test_the_configs_of_the_authorizer() -> None:
    super_users = Authorization({**STANDARD, "super.users": " User:alice ; User:CN=x,OU=y"})
    assert context_of(super_users).allowed(WRITE, TOPIC, "t")
    assert context_of(super_users, "User:CN=x,OU=y").allowed(WRITE, TOPIC, "t")
    assert not context_of(super_users, "User:bob").allowed(WRITE, TOPIC, "t")
    everyone = Authorization({**STANDARD, "allow.everyone.if.no.acl.found": "true"})
    assert context_of(everyone, "User:bob").allowed(WRITE, TOPIC, "t")
    everyone.apply(image_with(rule(READ)))
    assert not context_of(everyone, "User:bob").allowed(WRITE, TOPIC, "t")


@pytest.mark.parametrize(
    ("configs", "text"),
    [
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, "Class kafka.security"),
        ({"authorizer.class.name": f"{THIS}:Absent"}, "has no class Absent"),
        ({"authorizer.class.name": "no.such.module:Absent"}, "No module named 'no'"),
        ({**STANDARD, "super.users": "alice"}, "super.users: expected a string in format"),
        ({**STANDARD, "allow.everyone.if.no.acl.found": "yes"}, "to be either true or false"),
    ],
)
def test_invalid_configs(configs: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        Authorization(configs)


def test_decisions_are_in_the_audit_log_as_kafka_writes_them(caplog: pytest.LogCaptureFixture) -> None:
    authorization = Authorization({**STANDARD, "super.users": "User:root"})
    authorization.apply(image_with(rule(READ, host="10.0.0.0/8")))
    context = context_of(authorization)
    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        assert context.allowed(READ, TOPIC, "t")
        assert not context.allowed(WRITE, TOPIC, "t")
        assert not context.allowed(WRITE, TOPIC, "t", is_logged=False)
        assert not context.allowed(WRITE, TOPIC, "t")
    denied = (
        "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.1 on resource = Topic:LITERAL:t "
        "for request = Fetch with resourceRefCount = 1 based on rule DefaultDeny"
    )
    assert [record.getMessage() for record in caplog.records] == [denied, denied]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "ottla.authorizer"):
        assert context.allowed(READ, TOPIC, "t")
        assert context_of(authorization, "User:root").allowed(READ, TOPIC, "t")
    by_acl, by_super_user = (record.getMessage() for record in caplog.records)
    assert by_acl.endswith(
        "based on rule MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=t, patternType=LITERAL, "
        "principal=User:alice, host=10.0.0.0/8, operation=READ, permissionType=ALLOW])"
    )
    assert "is Allowed operation = READ" in by_acl
    assert by_super_user.endswith("based on rule SuperUser")
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "ottla"):
        assert context.allowed(READ, TOPIC, "t")
    assert len(caplog.records) == 1


class ByClient:
    """Allows every operation to one client id, and fails for topics named "fails"."""

    def configure(self, configs: dict[str, str]) -> None:
        self.client_id = configs["client"]

    def authorize(self, request: AuthorizationRequest) -> bool:
        if request.resource_name == "fails":
            raise RuntimeError("no decision")
        expected = ("User:alice", "10.0.0.1", "READ", "TOPIC", "Fetch", "L")
        seen = (
            request.principal, request.host, request.operation, request.resource_type, request.api, request.listener
        )  # fmt: skip
        assert seen == expected
        return request.client_id == self.client_id


def test_a_python_class_decides(caplog: pytest.LogCaptureFixture) -> None:
    authorization = Authorization({"authorizer.class.name": f"{THIS}:ByClient", "client": "c"})
    context = context_of(authorization)
    assert context.allowed(READ, TOPIC, "t")
    assert context.authorizer is not None
    assert context.authorizer.allows_any(context, READ, TOPIC)
    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        assert not context._replace(client_id="other").allowed(READ, TOPIC, "t")
    assert caplog.text.rstrip().endswith("based on rule ByClient")
    assert not context.allowed(READ, TOPIC, "fails")
    assert "ByClient failed, the request is denied" in caplog.text
    assert authorization.denied == 2


def test_a_request_has_20_lines_in_the_audit_log_and_one_with_the_number_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One request with 20,000 names wrote 4.4 MB."""
    caplog.set_level(logging.INFO, "ottla.authorizer")
    context = context_of(Authorization(STANDARD))
    assert context.authorizer is not None
    for _ in range(2):
        caplog.clear()
        for number in range(20_000):
            assert not context.allowed(READ, TOPIC, f"t{number}")
        context.authorizer.end_request(context)
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 21
        assert lines[19].startswith("Principal = User:alice is Denied operation = READ from host = ")
        assert lines[20] == (
            "Principal = User:alice from host = 10.0.0.1: 19980 more decisions for request = Fetch, 19980 of them Denied"
        )
    caplog.clear()
    context.allowed(READ, TOPIC, "t")
    context.authorizer.end_request(context)
    assert len(caplog.records) == 1


def test_each_request_of_a_connection_has_its_lines_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ottla.authorizer")
    frame = builder(METADATA, 4)
    (topics,) = (place for place in frame.places() if place.path == ("topics",))
    with EmbeddedBroker(STANDARD) as broker, socket.create_connection(broker.address) as client:
        for count in (100, 3, 100):
            client.sendall(frame.with_elements(topics, count, DISTINCT))
            size = int.from_bytes(client.recv(4, socket.MSG_WAITALL), "big")
            assert len(client.recv(size, socket.MSG_WAITALL)) == size
    lines = [record.getMessage() for record in caplog.records if record.name == "ottla.authorizer"]
    assert len(lines) == 21 + 3 + 21
    assert "80 more decisions for request = Metadata" in lines[20]
