"""Revoked rights act on the next request of an open connection: in fetch sessions, share sessions and groups."""

from typing import Any, Final

import pytest

from ottla.protocol.errors import TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Closed, Topic, Wire
from tests.conformance.members import NO_TOPICS, Member, wait_for
from tests.conformance.share_members import Sharer

from .bindings import Binding
from .codes import DESCRIBE, GROUP, NO_GROUP, NO_TOPIC, READ, TOPIC, WRITE
from .conftest import Acls, Resources
from .messages import plain, request

_MEMBER: Final = "BBBBBBBBBBBBBBBBBBBBBQ"


def fetch(wire: Wire, session: int, epoch: int, *topics: Topic, version: int = 16) -> Any:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    rows = [
        {"topic_id": topic.id} | {"partitions": [partition]}
        if version >= 13
        else {"topic": topic.name, "partitions": [partition]}
        for topic in topics
    ]
    fields = {"max_wait_ms": 0, "min_bytes": 0, "session_id": session, "session_epoch": epoch, "topics": rows}
    if version < 15:
        fields["replica_id"] = -1
    return plain(wire.send(request("Fetch", fields), version), version)


def errors(answer: Any) -> dict[Any, int]:
    return {
        topic.get("topic_id") or topic["topic"]: part["error_code"]
        for topic in answer["responses"]
        for part in topic["partitions"]
    }


@pytest.mark.parametrize("version", [7, 12, 13, 16, 17])
def test_fetch_sessions(acls: Acls, resources: Resources, alice: Wire, version: int) -> None:
    """A denied partition stays in the session, is reported each time, and is read again once the right is back."""
    first, second = resources.topic(), resources.topic()
    keys = [topic.id if version >= 13 else topic.name for topic in (first, second)]
    for topic in (first, second):
        topic.append(1)
    acl = Binding(READ, TOPIC, second.name, "User:alice")
    acls.allow("alice", READ, TOPIC, first.name)
    acls.create(acl)
    answer = fetch(alice, 0, 0, first, second, version=version)
    session = answer["session_id"]
    assert (answer["error_code"], errors(answer)) == (0, dict.fromkeys(keys, 0))
    assert session > 0
    acls.delete(acl)
    for epoch in (1, 2):
        answer = fetch(alice, session, epoch, version=version)
        assert (answer["error_code"], errors(answer)) == (0, {keys[0]: 0, keys[1]: NO_TOPIC})
    acls.create(acl)
    answer = fetch(alice, session, 3, version=version)
    assert (answer["error_code"], errors(answer)) == (0, dict.fromkeys(keys, 0))


def test_a_fetch_session_that_begins_with_a_denied_topic(acls: Acls, resources: Resources, alice: Wire) -> None:
    topic = resources.topic()
    topic.append(1)
    answer = fetch(alice, 0, 0, topic)
    assert (answer["error_code"], errors(answer)) == (0, {topic.id: NO_TOPIC})
    session = answer["session_id"]
    assert session > 0
    acls.allow("alice", READ, TOPIC, topic.name)
    answer = fetch(alice, session, 1)
    assert (answer["error_code"], errors(answer)) == (0, {topic.id: 0})


def produce(wire: Wire, topic: Topic, acks: int = -1) -> Any:
    parts = [{"index": 0, "records": build([Record(0, 1_700_000_000_000, b"k", b"v")])}]
    fields = {"acks": acks, "timeout_ms": 5000, "topic_data": [{"name": topic.name, "partition_data": parts}]}
    wire.send_only(request("Produce", fields), 9, expect_answer=acks != 0)
    return wire.receive() if acks else None


def test_a_transactional_batch_without_a_transactional_id_is_denied(
    acls: Acls, resources: Resources, root: Wire, alice: Wire
) -> None:
    """The right to write to the topic is not enough, whatever the request says of itself (CVE-2018-17196)."""
    topic = resources.topic()
    acls.create(Binding(WRITE, TOPIC, topic.name, "User:alice"))
    record = Record(0, 1_700_000_000_000, b"k", b"v")
    batch = build([record], producer_id=4711, producer_epoch=0, base_sequence=0, transactional=True)
    fields = {
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic.name, "partition_data": [{"index": 0, "records": batch}]}],
    }
    response = alice.send(request("Produce", fields), 9)
    assert response.responses[0].partition_responses[0].error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    answer = fetch(root, 0, -1, topic)
    assert answer["responses"][0]["partitions"][0]["high_watermark"] == 0


def test_a_revoked_right_to_produce(acls: Acls, resources: Resources, alice: Wire) -> None:
    topic = resources.topic()
    acl = Binding(WRITE, TOPIC, topic.name, "User:alice")
    acls.create(acl)
    assert produce(alice, topic).responses[0].partition_responses[0].error_code == 0
    acls.deny("User:*", WRITE, TOPIC, "*")
    assert produce(alice, topic).responses[0].partition_responses[0].error_code == NO_TOPIC


def test_produce_without_acknowledgement(acls: Acls, resources: Resources, root: Wire, alice: Wire) -> None:
    """The connection is closed, because there is no answer that could carry the error."""
    topic = resources.topic()
    produce(alice, topic, acks=0)
    with pytest.raises(Closed):
        alice.receive()
    answer = fetch(root, 0, -1, topic)
    assert answer["responses"][0]["partitions"][0]["high_watermark"] == 0


def test_a_member_of_a_classic_group(acls: Acls, resources: Resources, alice: Wire) -> None:
    names = resources.names(topics=False)
    acl = Binding(READ, GROUP, names.group, "User:alice")
    acls.create(acl)
    # The member's own connections are those of alice.
    member = Member(alice, names.group)
    member.wire = alice
    wait_for(lambda: member.join().error_code == 0)
    assert member.sync({member.member_id: NO_TOPICS}).error_code == 0
    assert member.heartbeat() == "NONE"
    acls.delete(acl)
    assert member.heartbeat() == "GROUP_AUTHORIZATION_FAILED"
    acls.create(acl)
    assert member.heartbeat() == "NONE"


def share_fetch(wire: Wire, group: str, epoch: int, *topics: Topic, **fields: Any) -> Any:
    parts = [{"partition_index": 0, "acknowledgement_batches": []}]
    body = {
        "group_id": group,
        "member_id": _MEMBER,
        "share_session_epoch": epoch,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 10_000,
        "max_records": 10,
        "batch_size": 10,
        "topics": [{"topic_id": topic.id, "partitions": parts} for topic in topics],
    }
    return plain(wire.send(request("ShareFetch", body | fields), 1), 1)


def acknowledge(wire: Wire, group: str, epoch: int, *topics: Topic, first: int = 0) -> Any:
    batch = {"first_offset": first, "last_offset": first, "acknowledge_types": [1]}
    parts = [{"partition_index": 0, "acknowledgement_batches": [batch]}]
    fields = {
        "group_id": group,
        "member_id": _MEMBER,
        "share_session_epoch": epoch,
        "topics": [{"topic_id": topic.id, "partitions": parts} for topic in topics],
    }
    return plain(wire.send(request("ShareAcknowledge", fields), 1), 1)


def test_share_sessions(acls: Acls, resources: Resources, root: Wire, alice: Wire) -> None:
    """Without READ on the group nothing goes on; without READ on the topic its partition is reported."""
    topic = resources.topic()
    group = resources.names(topics=False).group
    member = Sharer(root, group, _MEMBER)
    assert member.join(topic.name).error_code == 0
    group_acl = Binding(READ, GROUP, group, "User:alice")
    topic_acl = Binding(READ, TOPIC, topic.name, "User:alice")
    acls.create(group_acl, topic_acl)
    answer = share_fetch(alice, group, 0, topic, max_wait_ms=0)
    assert answer["error_code"] == 0
    epoch = 1
    acquired: list[Any] = []
    for _ in range(20):
        topic.append(1)  # the group begins at the end of the log, once Apache Kafka has its state
        answer = share_fetch(alice, group, epoch)
        epoch += 1
        assert answer["error_code"] == 0
        acquired = [part for topic in answer["responses"] for part in topic["partitions"] if part["acquired_records"]]
        if acquired:
            break
    assert acquired
    acls.delete(topic_acl)
    answer = share_fetch(alice, group, epoch, max_wait_ms=0)
    assert (answer["error_code"], errors(answer)) == (0, {topic.id: NO_TOPIC})
    answer = acknowledge(alice, group, epoch + 1, topic)
    assert (answer["error_code"], errors(answer)) == (0, {topic.id: NO_TOPIC})
    acls.delete(group_acl)
    assert share_fetch(alice, group, epoch + 2, max_wait_ms=0)["error_code"] == NO_GROUP
    answer = acknowledge(alice, group, epoch + 2, topic)
    assert (answer["error_code"], answer["responses"]) == (NO_GROUP, [])
    acls.create(group_acl, topic_acl)
    first = acquired[0]["acquired_records"][0]["first_offset"]
    answer = acknowledge(alice, group, epoch + 2, topic, first=first)
    assert (answer["error_code"], errors(answer)) == (0, {topic.id: 0})
    member.leave()


def test_some_topics_of_a_share_fetch(acls: Acls, resources: Resources, root: Wire, alice: Wire) -> None:
    shown, hidden = resources.topic(), resources.topic()
    group = resources.names(topics=False).group
    member = Sharer(root, group, _MEMBER)
    assert member.join(shown.name, hidden.name).error_code == 0
    acls.allow("alice", READ, GROUP, group)
    acls.allow("alice", READ, TOPIC, shown.name)
    acls.allow("alice", DESCRIBE, TOPIC, hidden.name)
    answer = share_fetch(alice, group, 0, shown, hidden, max_wait_ms=0)
    assert answer["error_code"] == 0
    assert errors(answer)[hidden.id] == NO_TOPIC
    assert errors(answer).get(shown.id, 0) != NO_TOPIC
    member.leave()
