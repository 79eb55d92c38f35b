"""Topics that appear inside answers about other resources, and what unknown topic ids show."""

import uuid
from typing import Any, Final

import pytest

from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Wire
from tests.conformance.consumers import Consumer
from tests.conformance.members import wait_for
from tests.conformance.share_members import Sharer
from tests.conformance.transactions import TransactionalProducer

from .codes import CLUSTER_ACTION, DESCRIBE, GROUP, NO_TOPIC, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from .conftest import Acls, Authorized, Resources, ask
from .denials import rights
from .messages import api_named, error_codes, plain, request
from .probes import Names, Probe, all_probes

UNKNOWN_TOPIC: Final = 3
UNKNOWN_TOPIC_ID: Final = 100
NOT_ASKED: Final = -(2**31)


def send(wire: Wire, api: str, version: int, **fields: Any) -> Any:
    return plain(wire.send(request(api, fields), version), version)


def test_topics_of_a_transaction(acls: Acls, resources: Resources, root: Wire, alice: Wire) -> None:
    shown, hidden = resources.topic(), resources.topic()
    producer = TransactionalProducer(root)
    producer.add(shown, 0)
    producer.add(hidden, 0)
    acls.allow("alice", DESCRIBE, TRANSACTIONAL_ID, producer.transactional_id)
    acls.allow("alice", DESCRIBE, TOPIC, shown.name)
    fields = {"transactional_ids": [producer.transactional_id]}
    (transaction,) = send(alice, "DescribeTransactions", 0, **fields)["transaction_states"]
    assert transaction["error_code"] == 0
    assert [topic["topic"] for topic in transaction["topics"]] == [shown.name]
    (transaction,) = send(root, "DescribeTransactions", 0, **fields)["transaction_states"]
    assert {topic["topic"] for topic in transaction["topics"]} == {shown.name, hidden.name}
    producer.end(commit=False)


def test_an_unknown_transactional_id(acls: Acls, resources: Resources, alice: Wire) -> None:
    names = resources.names(topics=False)
    fields = {"transactional_ids": [names.transactional_id]}
    (transaction,) = send(alice, "DescribeTransactions", 0, **fields)["transaction_states"]
    assert transaction["error_code"] == 53
    acls.allow("alice", DESCRIBE, TRANSACTIONAL_ID, names.transactional_id)
    (transaction,) = send(alice, "DescribeTransactions", 0, **fields)["transaction_states"]
    assert transaction["error_code"] == 105


def test_deletion_of_a_missing_topic_needs_no_delete(acls: Acls, resources: Resources, alice: Wire) -> None:
    existing, missing = resources.topic().name, resources.names(topics=False).topics[0]

    def codes() -> dict[str, int]:
        fields = {"topics": [{"name": existing}, {"name": missing}], "timeout_ms": 10_000}
        return {row["name"]: row["error_code"] for row in send(alice, "DeleteTopics", 6, **fields)["responses"]}

    assert codes() == {existing: NO_TOPIC, missing: NO_TOPIC}
    for name in (existing, missing):
        acls.allow("alice", DESCRIBE, TOPIC, name)
    assert codes() == {existing: NO_TOPIC, missing: UNKNOWN_TOPIC}


@pytest.mark.parametrize("version", [0, 1])
def test_topics_of_a_consumer_group(acls: Acls, resources: Resources, root: Wire, alice: Wire, version: int) -> None:
    """One hidden topic hides the members of the group."""
    names = resources.names(2)
    member = Consumer(root, names.group)
    wait_for(lambda: member.join(*names.topics).error_code == 0)
    wait_for(lambda: bool(member.beat()) and len(member.assigned) == 2)
    acls.allow("alice", READ, GROUP, names.group)
    acls.allow("alice", DESCRIBE, TOPIC, names.topics[0])
    fields: dict[str, Any] = {"group_ids": [names.group], "include_authorized_operations": True}
    (group,) = send(alice, "ConsumerGroupDescribe", version, **fields)["groups"]
    expected = "The group has described topic(s) that the client is not authorized to describe."
    assert (group["error_code"], group["error_message"]) == (NO_TOPIC, expected)
    assert (group["members"], group["authorized_operations"]) == ([], NOT_ASKED)
    acls.allow("alice", DESCRIBE, TOPIC, names.topics[1])
    (group,) = send(alice, "ConsumerGroupDescribe", version, **fields)["groups"]
    assert (group["error_code"], len(group["members"])) == (0, 1)
    member.leave()


def test_topics_of_a_share_group(acls: Acls, resources: Resources, root: Wire, alice: Wire) -> None:
    names = resources.names(2)
    member = Sharer(root, names.group)
    wait_for(lambda: member.join(*names.topics).error_code == 0)
    wait_for(lambda: bool(member.beat()) and len(member.assigned) == 2)
    acls.allow("alice", READ, GROUP, names.group)
    acls.allow("alice", DESCRIBE, TOPIC, names.topics[0])
    fields: dict[str, Any] = {"group_ids": [names.group], "include_authorized_operations": True}
    (group,) = send(alice, "ShareGroupDescribe", 1, **fields)["groups"]
    expected = "The group has described topic(s) that the client is not authorized to describe."
    assert (group["error_code"], group["error_message"]) == (NO_TOPIC, expected)
    assert (group["members"], group["authorized_operations"]) == ([], NOT_ASKED)
    acls.allow("alice", DESCRIBE, TOPIC, names.topics[1])
    (group,) = send(alice, "ShareGroupDescribe", 1, **fields)["groups"]
    assert (group["error_code"], len(group["members"])) == (0, 1)
    member.leave()


@pytest.mark.parametrize("kind", [Consumer, Sharer])
def test_a_subscription_with_a_hidden_topic(
    acls: Acls, resources: Resources, alice: Wire, kind: type[Consumer] | type[Sharer]
) -> None:
    """One topic without DESCRIBE fails the heartbeat; a topic that does not exist does not."""
    names = resources.names(2)
    missing = f"t-{uuid.uuid4().hex[:12]}"
    acls.allow("alice", READ, GROUP, names.group)
    acls.allow("alice", DESCRIBE, TOPIC, names.topics[0], missing)
    member = kind(alice, names.group)
    member.wire = alice
    fields = {"group_id": names.group, "member_id": member.member_id, "member_epoch": 0}
    if kind is Consumer:
        fields |= {"rebalance_timeout_ms": 10_000, "topic_partitions": []}
        api, version = "ConsumerGroupHeartbeat", 1
    else:
        api, version = "ShareGroupHeartbeat", 1
    answer = send(alice, api, version, **fields, subscribed_topic_names=list(names.topics))
    assert answer["error_code"] == NO_TOPIC
    answer = send(alice, api, version, **fields, subscribed_topic_names=[names.topics[0], missing])
    assert answer["error_code"] == 0
    assert member.leave().error_code == 0


def test_a_regular_expression_finds_only_described_topics(
    acls: Acls, resources: Resources, alice: Wire, root: Wire
) -> None:
    prefix = f"t-{uuid.uuid4().hex[:12]}"
    shown = resources.make_topic(name=f"{prefix}-shown")
    resources.make_topic(name=f"{prefix}-hidden")
    group = resources.names(topics=False).group
    acls.allow("alice", READ, GROUP, group)
    acls.allow("alice", READ, TOPIC, shown.name)
    member = Consumer(root, group)
    member.wire = alice
    fields: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{prefix}.*"}
    assert member.join(**fields).error_code == 0
    wait_for(lambda: member.beat().error_code == 0 and bool(member.assigned))
    assert set(member.assigned) == {shown.id}
    assert member.leave().error_code == 0


def _with_ids(row: Probe, names: Names) -> list[int]:
    return [version for version in row.versions if names.ids[names.topics[0]] in _values(row.fields(names, version))]


def _values(fields: Any) -> list[Any]:
    if isinstance(fields, dict):
        return [value for field in fields.values() for value in _values(field)]
    if isinstance(fields, list):
        return [value for field in fields for value in _values(field)]
    return [fields]


BY_ID: Final = [
    row
    for row in all_probes()
    if row.checks[-1].resource_type == TOPIC
    and row.api != "ShareFetch"
    and _with_ids(row, Names(("t",), {"t": bytes(15) + b"\1"}, ("g",), ("x",)))
]


@pytest.mark.parametrize("permitted", [False, True])
@pytest.mark.parametrize("row", BY_ID, ids=str)
def test_unknown_topic_ids(
    authorized: Authorized, acls: Acls, resources: Resources, alice: Wire, row: Probe, permitted: bool
) -> None:
    """All users see that an id is unknown: there is no name that ACLs could be about."""
    names = resources.names(topics=False)
    names = names._replace(ids={name: uuid.uuid4().bytes for name in names.topics})
    acls.create(*rights("alice", row, names, len(row.checks) - 1))
    if permitted:
        acls.allow("alice", row.checks[-1].operation, TOPIC, "*")
    version = min(_with_ids(row, names)[-1], authorized.offers[api_named(row.api).key][1])
    answer = ask(alice, row, version, names)
    assert [code for code in error_codes(answer) if code] == [UNKNOWN_TOPIC_ID]


def test_unknown_topic_ids_of_a_follower(acls: Acls, resources: Resources, alice: Wire) -> None:
    fields: dict[str, Any] = {
        "max_wait_ms": 0,
        "min_bytes": 0,
        "session_epoch": -1,
        "replica_state": {"replica_id": 5},
        "topics": [{"topic_id": uuid.uuid4().bytes, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}],
    }
    acls.allow("alice", READ, TOPIC, "*")
    assert [code for code in error_codes(send(alice, "Fetch", 16, **fields)) if code] == [NO_TOPIC]
    acls.allow("alice", CLUSTER_ACTION, 4, "kafka-cluster")
    assert [code for code in error_codes(send(alice, "Fetch", 16, **fields)) if code] == [UNKNOWN_TOPIC_ID]


def test_internal_topics(acls: Acls, alice: Wire) -> None:
    acls.allow("alice", WRITE, TOPIC, "*")
    acls.allow("alice", READ, TOPIC, "*")
    batch = build([Record(0, 1_700_000_000_000, b"k", b"v")])
    data = [{"name": "__consumer_offsets", "partition_data": [{"index": 0, "records": batch}]}]
    answer = send(alice, "Produce", 9, acks=-1, timeout_ms=1000, topic_data=data)
    assert [code for code in error_codes(answer) if code] == [17]


def test_two_ids_of_one_request(acls: Acls, resources: Resources, alice: Wire) -> None:
    """An unknown id and a hidden topic differ: ids can be probed, names cannot."""
    hidden = resources.topic()
    topics = [{"topic_id": hidden.id, "name": None}, {"topic_id": uuid.uuid4().bytes, "name": None}]
    answer = send(alice, "Metadata", 12, topics=topics)
    assert [(topic["error_code"], topic["name"], topic["topic_id"]) for topic in answer["topics"]] in (
        [(NO_TOPIC, None, topics[0]["topic_id"]), (UNKNOWN_TOPIC_ID, None, topics[1]["topic_id"])],
        [(UNKNOWN_TOPIC_ID, None, topics[1]["topic_id"]), (NO_TOPIC, None, topics[0]["topic_id"])],
    )
