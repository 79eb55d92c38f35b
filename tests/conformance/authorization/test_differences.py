"""Deliberate differences between Ottla and Apache Kafka with an authorizer; each docstring says what Apache Kafka 4.4 does."""

import uuid
from typing import Any

import pytest

from ottla.protocol.errors import NONE
from ottla.protocol.messages.delete_acls import DeleteAclsRequest
from tests.conformance.conftest import Wire

from .bindings import Binding, create_request, delete_filter
from .codes import DENIED, DESCRIBE, GROUP, NO_CLUSTER, READ, TOPIC
from .conftest import Acls, Authorized, Resources
from .messages import plain, request

UNKNOWN_TOPIC_ID = 100


@pytest.fixture(autouse=True)
def ottla_only(authorized: Authorized) -> None:
    """Skip the tests of this file on Apache Kafka."""
    if authorized.is_kafka:
        pytest.skip("a deliberate difference")


def send(wire: Wire, api: str, version: int, **fields: Any) -> Any:
    return plain(wire.send(request(api, fields), version), version)


def test_scram_users_are_denied_with_an_answer(alice: Wire) -> None:
    """Apache Kafka never answers a request for all users without the right (NullPointerException)."""
    answer = send(alice, "DescribeUserScramCredentials", 0, users=None)
    assert (answer["error_code"], answer["results"]) == (NO_CLUSTER, [])


def test_an_unknown_topic_id_in_a_share_fetch_fails_alone(acls: Acls, resources: Resources, alice: Wire) -> None:
    """Apache Kafka answers UNKNOWN_SERVER_ERROR for the whole request, also to super users."""
    names = resources.names()
    acls.allow("alice", READ, GROUP, names.group)
    acls.allow("alice", READ, TOPIC, names.topics[0])
    partition = {"partition_index": 0, "acknowledgement_batches": []}
    ids = [names.ids[names.topics[0]], uuid.uuid4().bytes]
    fields = {
        "group_id": names.group,
        "member_id": "BBBBBBBBBBBBBBBBBBBBBQ",
        "share_session_epoch": 0,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "max_records": 10,
        "batch_size": 10,
        "topics": [{"topic_id": topic_id, "partitions": [partition]} for topic_id in ids],
        "forgotten_topics_data": [],
    }
    answer = send(alice, "ShareFetch", 1, **fields)
    assert answer["error_code"] == NONE
    codes = {topic["topic_id"]: topic["partitions"][0]["error_code"] for topic in answer["responses"]}
    assert codes[ids[1]] == UNKNOWN_TOPIC_ID
    assert codes.get(ids[0], NONE) not in DENIED


def test_a_denial_has_the_text_of_its_code(alice: Wire) -> None:
    """Apache Kafka prints the request as its Java object: "Request Request(processor=2, connectionId=...) needs ALTER"."""
    answer = alice.send(create_request([Binding(READ, TOPIC, "t", "User:alice")]), 3)
    assert [row.error_message for row in answer.results] == ["Cluster authorization failed."]


def test_acls_are_in_force_when_they_are_answered(resources: Resources, root: Wire, alice: Wire) -> None:
    """Apache Kafka applies them some 30 ms after its answer."""
    topic = resources.topic().name
    acl = Binding(DESCRIBE, TOPIC, topic, "User:alice")
    fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}

    def is_visible() -> bool:
        return bool(send(alice, "Metadata", 12, **fields)["topics"][0]["error_code"] == NONE)

    for _ in range(20):
        root.send(create_request([acl]), 3)
        assert is_visible()
        root.send(DeleteAclsRequest(filters=[delete_filter(acl)]), 3)
        assert not is_visible()
