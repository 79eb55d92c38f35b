"""ShareAcknowledge over a socket: what a member may say of its records, and how it is told that it may not."""

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)

from .conftest import Topic, TopicFactory, Wire, versions
from .share_members import read
from .shares import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acked,
    ShareMember,
    configure,
    group_name,
    initialize,
    ranges,
    summary,
)

API = ShareAcknowledgeRequest


@pytest.fixture
def member(broker: Wire, topic: Topic) -> ShareMember:
    """A member that has acquired the offsets 0 to 9 of a topic, delivered once."""
    group = group_name()
    initialize(broker, group, topic)
    member = ShareMember(broker, group)
    topic.append(10)
    assert member.take(topic, 10) == [(0, 9, 1)]
    return member


@pytest.mark.parametrize("version", versions(ShareAcknowledgeRequest))
@pytest.mark.parametrize("types", [[ACCEPT], [ACCEPT] * 10])
def test_accepted_records_are_done_with(
    broker: Wire, member: ShareMember, topic: Topic, version: int, types: list[int]
) -> None:
    member.version = version
    assert member.acknowledged(topic, (0, 9, types)) == ("NONE", None)
    assert member.acknowledged(topic, (0, 9, types)) == ("NONE", None)
    assert summary(broker, member.group_id, topic).delivery_complete_count == 10
    assert ShareMember(broker, member.group_id).fetch(topic)[0].acquired == []


@pytest.mark.parametrize("version", versions(ShareAcknowledgeRequest))
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"group_id": None}, "INVALID_REQUEST"),
        ({"member_id": None}, "INVALID_REQUEST"),
        ({"member_id": ""}, "INVALID_REQUEST"),
        ({"member_id": "x" * 37}, "INVALID_REQUEST"),
        ({"share_session_epoch": 0}, "INVALID_SHARE_SESSION_EPOCH"),
        ({"share_session_epoch": 100}, "INVALID_SHARE_SESSION_EPOCH"),
        ({"share_session_epoch": -2}, "INVALID_SHARE_SESSION_EPOCH"),
        ({"member_id": "another"}, "SHARE_SESSION_NOT_FOUND"),
        ({"group_id": "another"}, "SHARE_SESSION_NOT_FOUND"),
        ({"group_id": ""}, "SHARE_SESSION_NOT_FOUND"),
        ({"member_id": "another", "share_session_epoch": -1}, "SHARE_SESSION_NOT_FOUND"),
    ],
)
def test_invalid_requests_are_refused(
    member: ShareMember, version: int, fields: dict[str, object], expected: str
) -> None:
    member.version = version
    answer = member.ask_acknowledge(**fields)
    assert name_of(answer.error_code) == expected
    assert (answer.responses, answer.acquisition_lock_timeout_ms) == ([], 0)


@pytest.mark.parametrize(
    "acks",
    [
        [(3, 2, ACCEPT)],
        [(0, 2, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 2, [ACCEPT] * 4)],
        [(0, 2, -1)],
        [(0, 2, 5)],
        [(0, 2, [ACCEPT, ACCEPT, RENEW])],
        [(5, 6, ACCEPT), (0, 2, ACCEPT)],
        [(0, 4, ACCEPT), (3, 6, ACCEPT)],
    ],
)
def test_invalid_batches_are_refused(broker: Wire, member: ShareMember, topic: Topic, acks: list[Acked]) -> None:
    assert member.acknowledged(topic, *acks) == ("INVALID_REQUEST", None)
    assert member.acknowledge(topic, (0, 9, ACCEPT)) == "NONE"
    assert summary(broker, member.group_id, topic).delivery_complete_count == 10


def test_a_renewal_must_be_said_to_be_one(member: ShareMember, topic: Topic) -> None:
    assert member.acknowledge(topic, (0, 9, RENEW)) == "INVALID_REQUEST"
    assert member.acknowledge(topic, (0, 9, RENEW), is_renew_ack=True) == "NONE"
    assert member.acknowledge(topic, (0, 9, [RENEW, ACCEPT] * 5), is_renew_ack=True) == "NONE"
    assert member.acknowledge(topic, (0, 0, ACCEPT), (2, 2, RELEASE), is_renew_ack=True) == "NONE"


def test_a_group_may_not_renew(broker: Wire, member: ShareMember, topic: Topic) -> None:
    configure(broker, member.group_id, share_renew_acknowledge_enable="false")
    message = "Renewing acquisition locks is not enabled for the group."
    assert member.acknowledged(topic, (0, 9, RENEW), is_renew_ack=True) == ("INVALID_RECORD_STATE", message)
    assert member.acknowledge(topic, (0, 4, ACCEPT), (5, 9, RENEW), is_renew_ack=True) == "INVALID_RECORD_STATE"
    assert member.acknowledge(topic, (0, 9, ACCEPT)) == "NONE"


def test_no_batches_are_no_acknowledgement(member: ShareMember, topic: Topic) -> None:
    answer = member.ask_acknowledge(
        AcknowledgeTopic(topic_id=topic.id, partitions=[AcknowledgePartition(partition_index=0)])
    )
    assert (answer.error_code, answer.responses, answer.acquisition_lock_timeout_ms) == (0, [], 30_000)


def test_partitions_without_batches_beside_others(member: ShareMember, topic: Topic) -> None:
    def acknowledged(first: int, last: int, *others: int) -> dict[tuple[bytes, int], str]:
        batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
        rows = [AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch] if last >= 0 else [])]
        rows += [AcknowledgePartition(partition_index=index) for index in others]
        unknown = AcknowledgeTopic(topic_id=b"\1" * 16, partitions=[AcknowledgePartition(partition_index=0)])
        answer = member.ask_acknowledge(AcknowledgeTopic(topic_id=topic.id, partitions=rows), unknown)
        return {
            (result.topic_id, row.partition_index): name_of(row.error_code)
            for result in answer.responses
            for row in result.partitions
        }

    errors = {(topic.id, 9): "UNKNOWN_TOPIC_OR_PARTITION", (b"\1" * 16, 0): "UNKNOWN_TOPIC_ID"}
    assert acknowledged(0, 0, 9) == {(topic.id, 0): "NONE", **errors}
    assert acknowledged(2, 1, 9) == {(topic.id, 0): "INVALID_REQUEST", **errors}
    assert acknowledged(0, -1, 9) == errors


def test_a_partition_without_batches_is_acknowledged_with_another_one(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group = make_topic(2), group_name()
    initialize(broker, group, topic, 0, 1)
    member = ShareMember(broker, group)
    topic.append(2)
    assert member.take(topic, 2) == [(0, 1, 1)]
    for first, expected in ((0, [0, 1]), (9, [0])):
        batch = AcknowledgementBatch(first_offset=first, last_offset=0, acknowledge_types=[ACCEPT])
        rows = [
            AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch]),
            AcknowledgePartition(partition_index=1),  # never fetched from
        ]
        (result,) = member.ask_acknowledge(AcknowledgeTopic(topic_id=topic.id, partitions=rows)).responses
        assert sorted(row.partition_index for row in result.partitions) == expected


def test_an_unknown_topic_comes_before_invalid_batches(member: ShareMember, topic: Topic) -> None:
    topic.id = b"\2" * 16
    assert member.acknowledged(topic, (1, 0, ACCEPT)) == ("UNKNOWN_TOPIC_ID", None)


def test_a_leader_that_another_one_has_fenced(broker: Wire, member: ShareMember, topic: Topic) -> None:
    assert read(broker, member.group_id, topic.id, leader_epoch=5).error == "NONE"
    text = "Error in write state RPC. The leader epoch in the request is older than the epoch on the broker."
    assert member.acknowledged(topic, (0, 0, ACCEPT)) == ("NOT_LEADER_OR_FOLLOWER", text)


@pytest.mark.parametrize("version", versions(ShareAcknowledgeRequest))
def test_partitions_that_are_not_there(
    broker: Wire, member: ShareMember, topic: Topic, make_topic: TopicFactory, version: int
) -> None:
    member.version = version
    unread = make_topic()
    assert member.acknowledged(topic, (0, 0, ACCEPT), partition=7) == ("UNKNOWN_TOPIC_OR_PARTITION", None)
    missing = "This server does not host this topic-partition."
    assert member.acknowledged(unread, (0, 0, ACCEPT)) == ("UNKNOWN_TOPIC_OR_PARTITION", missing)
    unread.id = b"\2" * 16
    assert member.acknowledged(unread, (0, 0, ACCEPT)) == ("UNKNOWN_TOPIC_ID", None)


@pytest.mark.parametrize(
    ("ack", "expected", "message"),
    [
        (
            (0, 12, ACCEPT),
            "INVALID_REQUEST",
            "Batch record not found. The last offset in request is past acquired records.",
        ),
        (
            (20, 22, ACCEPT),
            "INVALID_REQUEST",
            "Batch record not found. The first offset in request is past acquired records.",
        ),
    ],
)
def test_offsets_past_the_acquired_records_are_refused(
    member: ShareMember, topic: Topic, ack: Acked, expected: str, message: str
) -> None:
    assert member.acknowledged(topic, ack) == (expected, message)
    assert member.acknowledge(topic, (0, 9, ACCEPT)) == "NONE"


def test_offsets_before_the_group_began(broker: Wire, topic: Topic) -> None:
    group = group_name()
    initialize(broker, group, topic, start=5)
    topic.append(10)
    member = ShareMember(broker, group)
    assert member.take(topic, 5) == [(5, 9, 1)]
    assert member.acknowledged(topic, (0, 3, ACCEPT)) == ("NONE", None)
    assert member.acknowledged(topic, (3, 9, ACCEPT)) == ("NONE", None)
    assert summary(broker, group, topic).delivery_complete_count == 5


def test_acknowledgements_before_any_delivery_are_refused(broker: Wire, topic: Topic) -> None:
    group = group_name()
    initialize(broker, group, topic)
    member = ShareMember(broker, group)
    member.fetch(topic, max_wait_ms=500, min_bytes=1)
    missing = "Batch record not found. The request batch offsets are not found in the cache."
    assert member.acknowledged(topic, (0, 3, ACCEPT)) == ("INVALID_RECORD_STATE", missing)


def test_the_records_of_another_member(broker: Wire, member: ShareMember, topic: Topic) -> None:
    other = ShareMember(broker, member.group_id)
    other.fetch(topic)
    assert other.acknowledged(topic, (0, 9, ACCEPT)) == (
        "INVALID_RECORD_STATE",
        "Member is not the owner of batch record",
    )
    assert member.acknowledge(topic, (0, 4, RELEASE)) == "NONE"
    assert ranges(other.take(topic, 5)) == [(0, 4, 2)]
    assert member.acknowledged(topic, (0, 4, ACCEPT))[0] == "INVALID_RECORD_STATE"
    assert other.acknowledged(topic, (5, 9, ACCEPT)) == ("INVALID_RECORD_STATE", "Member is not the owner of offset")


def test_records_that_are_not_acquired_any_more(member: ShareMember, topic: Topic) -> None:
    assert member.acknowledge(topic, (3, 6, ACCEPT)) == "NONE"
    assert member.acknowledged(topic, (3, 6, ACCEPT)) == (
        "INVALID_RECORD_STATE",
        "The offset cannot be acknowledged. The offset is not acquired.",
    )
    assert member.acknowledge(topic, (7, 9, RELEASE)) == "NONE"
    assert member.acknowledge(topic, (7, 7, RELEASE)) == "INVALID_RECORD_STATE"


def test_one_refused_batch_takes_back_the_others(broker: Wire, member: ShareMember, topic: Topic) -> None:
    assert member.acknowledge(topic, (6, 6, RELEASE)) == "NONE"
    assert member.acknowledge(topic, (0, 2, ACCEPT), (3, 4, REJECT), (6, 6, ACCEPT)) == "INVALID_RECORD_STATE"
    assert summary(broker, member.group_id, topic).delivery_complete_count == 0
    assert member.acknowledge(topic, (0, 2, RELEASE), (3, 5, ACCEPT)) == "NONE"
    assert ranges(member.take(topic, 4)) == [(0, 2, 2), (6, 6, 2)]


def test_each_offset_may_have_its_own_type(broker: Wire, member: ShareMember, topic: Topic) -> None:
    types = [ACCEPT, RELEASE, REJECT, GAP, RELEASE, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT]
    assert member.acknowledge(topic, (0, 9, types)) == "NONE"
    assert ranges(member.take(topic, 4)) == [(1, 1, 2), (4, 4, 2), (7, 8, 2)]
    assert member.acknowledge(topic, (1, 1, ACCEPT), (4, 4, ACCEPT), (7, 8, [ACCEPT, REJECT])) == "NONE"
    topic.append(1)
    assert member.take(topic, 1) == [(10, 10, 1)]


def test_batches_that_touch(member: ShareMember, topic: Topic) -> None:
    assert member.acknowledge(topic, (0, 4, ACCEPT), (4, 9, ACCEPT)) == "INVALID_RECORD_STATE"
    assert member.acknowledge(topic, (0, 4, ACCEPT), (5, 9, ACCEPT)) == "NONE"


def test_several_batches_are_acknowledged_as_one(broker: Wire, member: ShareMember, topic: Topic) -> None:
    for _ in range(3):
        topic.append(5)
    assert ranges(member.take(topic, 15, batch_size=5)) == [(10, 24, 1)]
    assert member.acknowledge(topic, (3, 21, ACCEPT)) == "NONE"
    assert summary(broker, member.group_id, topic).delivery_complete_count == 19
    assert member.acknowledge(topic, (0, 2, ACCEPT)) == "NONE"
    assert member.acknowledge(topic, (22, 24, ACCEPT)) == "NONE"
    assert summary(broker, member.group_id, topic).start_offset == 22


def test_the_written_start_offset_is_one_acknowledgement_behind(
    broker: Wire, member: ShareMember, topic: Topic
) -> None:
    """The start offset that is written is the one from before: with the count of what is done (KIP-1226) it says the same."""
    assert member.acknowledge(topic, (0, 4, ACCEPT)) == "NONE"
    state = summary(broker, member.group_id, topic)
    assert (state.start_offset, state.delivery_complete_count) == (0, 5)
    assert member.acknowledge(topic, (7, 9, ACCEPT)) == "NONE"
    state = summary(broker, member.group_id, topic)
    assert (state.start_offset, state.delivery_complete_count) == (5, 3)


@pytest.mark.parametrize("version", versions(ShareAcknowledgeRequest))
def test_the_last_request_releases_what_is_left(broker: Wire, member: ShareMember, topic: Topic, version: int) -> None:
    member.version = version
    assert member.acknowledge(topic, (0, 3, ACCEPT), share_session_epoch=-1) == "NONE"
    assert member.leave() == "SHARE_SESSION_NOT_FOUND"
    assert ranges(ShareMember(broker, member.group_id).take(topic, 6)) == [(4, 9, 2)]
