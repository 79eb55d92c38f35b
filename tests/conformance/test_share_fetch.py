"""ShareFetch over a socket: sessions, what is acquired and for how long, what waits, what is left out.

One file per API, as its versions and its errors are compared with those of Apache Kafka by the same requests.
"""

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from ottla.records.batch import build, records_of
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker

from .conftest import Topic, TopicFactory, Wire, versions
from .shares import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    ShareMember,
    configure,
    group_name,
    initialize,
    ranges,
    summary,
)
from .transactions import TransactionalProducer, fetch_partitions

API = ShareFetchRequest


@pytest.fixture
def group(broker: Wire, topic: Topic) -> str:
    """A share group that begins at the topic's first record."""
    name = group_name()
    initialize(broker, name, topic)
    return name


@pytest.fixture
def member(broker: Wire, group: str) -> ShareMember:
    return ShareMember(broker, group)


@pytest.mark.parametrize("version", versions(ShareFetchRequest))
def test_records_are_acquired_once(broker: Wire, topic: Topic, group: str, version: int) -> None:
    topic.append(10)
    one, other = ShareMember(broker, group, version=version), ShareMember(broker, group, version=version)
    assert one.take(topic, 10) == [(0, 9, 1)]
    assert other.fetch(topic)[0].acquired == []
    topic.append(5)
    assert other.take(topic, 5) == [(10, 14, 1)]


@pytest.mark.parametrize("version", versions(ShareFetchRequest))
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"group_id": None}, "INVALID_REQUEST"),
        ({"member_id": None}, "INVALID_REQUEST"),
        ({"member_id": ""}, "INVALID_REQUEST"),
        ({"member_id": "x" * 37}, "INVALID_REQUEST"),
        ({"share_session_epoch": 5}, "SHARE_SESSION_NOT_FOUND"),
        ({"share_session_epoch": -1}, "SHARE_SESSION_NOT_FOUND"),
        ({"share_session_epoch": -2}, "SHARE_SESSION_NOT_FOUND"),
    ],
)
def test_invalid_requests_are_refused(
    member: ShareMember, version: int, fields: dict[str, object], expected: str
) -> None:
    member.version = version
    answer = member.ask_fetch(**fields)
    assert name_of(answer.error_code) == expected
    assert (answer.responses, answer.acquisition_lock_timeout_ms) == ([], 0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"is_renew_ack": True}, "INVALID_REQUEST"),
        ({"is_renew_ack": True, "max_bytes": 0, "max_records": 0, "max_wait_ms": 1}, "INVALID_REQUEST"),
    ],
)
def test_invalid_renewals_are_refused(member: ShareMember, fields: dict[str, object], expected: str) -> None:
    assert name_of(member.ask_fetch(**fields).error_code) == expected


def test_unknown_acquire_mode_is_refused(member: ShareMember, topic: Topic) -> None:
    fetch_topic = FetchTopic(topic_id=topic.id, partitions=[FetchPartition(partition_index=0)])
    assert name_of(member.ask_fetch(fetch_topic, share_acquire_mode=2).error_code) == "UNKNOWN_SERVER_ERROR"
    stranger = ShareMember(member.wire, member.group_id)
    stranger.epoch = 1  # the session is looked at first
    assert name_of(stranger.ask_fetch(fetch_topic, share_acquire_mode=2).error_code) == "SHARE_SESSION_NOT_FOUND"
    stranger.epoch = 0  # without partitions nothing is acquired
    assert name_of(stranger.ask_fetch(share_acquire_mode=2).error_code) == "NONE"


def test_a_session_counts_its_requests(member: ShareMember, topic: Topic) -> None:
    member.fetch(topic)
    member.epoch = 2
    assert name_of(member.ask_fetch().error_code) == "INVALID_SHARE_SESSION_EPOCH"
    member.epoch = -2
    assert name_of(member.ask_fetch().error_code) == "INVALID_SHARE_SESSION_EPOCH"
    member.epoch = 1
    assert member.fetch(topic) == {}
    member.epoch = 0
    assert member.fetch(topic)[0].acquired == []
    assert member.epoch == 1


def test_the_first_request_of_a_session_acknowledges_nothing(member: ShareMember, topic: Topic) -> None:
    batch = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
    partition = FetchPartition(partition_index=0, acknowledgement_batches=[batch])
    answer = member.ask_fetch(FetchTopic(topic_id=topic.id, partitions=[partition]))
    assert name_of(answer.error_code) == "INVALID_REQUEST"


def test_a_new_session_leaves_to_the_member_what_it_had(member: ShareMember, topic: Topic) -> None:
    topic.append(10)
    member.take(topic, 10)
    member.epoch = 0
    assert member.fetch(topic)[0].acquired == []
    assert member.acknowledge(topic, (0, 9, ACCEPT)) == "NONE"


@pytest.mark.usefixtures("ottla_only")
def test_there_are_so_many_sessions_and_no_more() -> None:
    """group.share.max.share.sessions: who comes too late hears of it when it would have heard of an empty partition. Apache
    Kafka was seen to do so, once: it keeps the sessions of this test when their connection is gone, and is full from then on.
    """
    with EmbeddedBroker({"group.share.max.share.sessions": "2"}) as own:
        wire, group = Wire(own.address, is_kafka=False), group_name()
        for _ in range(2):
            assert ShareMember(wire, group).ask_fetch().error_code == 0
        begun = time.monotonic()
        late = ShareMember(wire.another(), group)
        assert name_of(late.ask_fetch(max_wait_ms=200).error_code) == "SHARE_SESSION_LIMIT_REACHED"
        assert time.monotonic() - begun > 0.15
        wire.socket().close()
        deadline = time.monotonic() + 10
        while late.ask_fetch().error_code:
            assert time.monotonic() < deadline
        wire.close()


def test_partitions_are_remembered_and_forgotten(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group = make_topic(2), group_name()
    initialize(broker, group, topic, 0, 1)
    member = ShareMember(broker, group)
    member.fetch(topic, 0)
    member.fetch(topic, 1)
    topic.append(3, partition=0)
    topic.append(3, partition=1)
    acquired: dict[int, list[tuple[int, int, int]]] = {}
    while len(acquired) < 2:
        acquired |= {
            index: partition.acquired for index, partition in member.fetch(topic, max_wait_ms=500, min_bytes=1).items()
        }
    assert acquired == {0: [(0, 2, 1)], 1: [(0, 2, 1)]}
    topic.append(3, partition=0)
    topic.append(3, partition=1)
    assert member.fetch(topic, forget=[0], max_wait_ms=500, min_bytes=1)[1].acquired == [(3, 5, 1)]
    assert member.fetch(topic) == {}


def test_a_partition_is_in_the_response_after_it_was_added(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group = make_topic(2), group_name()
    initialize(broker, group, topic, 0, 1)
    both = ShareMember(broker, group)
    assert set(both.fetch(topic, 0, 1, max_wait_ms=500, min_bytes=1)) == {0, 1}  # the states are loaded
    assert both.fetch(topic, max_wait_ms=100, min_bytes=1) == {}
    member = ShareMember(broker, group)
    assert set(member.fetch(topic, 0, max_wait_ms=100, min_bytes=1)) == {0}
    assert set(member.fetch(topic, 1, max_wait_ms=100, min_bytes=1)) == {1}
    assert member.fetch(topic, 1, max_wait_ms=100, min_bytes=1) == {}
    for _ in range(2):
        assert {index: partition.error for index, partition in member.fetch(topic, 9).items()} == {
            9: "UNKNOWN_TOPIC_OR_PARTITION"
        }


def test_the_first_request_of_a_session_forgets_nothing(member: ShareMember, topic: Topic) -> None:
    topic.append(3)
    partitions = member.fetch(topic, 0, forget=[0], max_wait_ms=1000, min_bytes=1)
    assert partitions[0].acquired == [(0, 2, 1)]


def test_all_named_partitions_are_acknowledged_if_one_is(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group = make_topic(2), group_name()
    initialize(broker, group, topic, 0, 1)
    member = ShareMember(broker, group)
    topic.append(4)
    assert member.take(topic, 4) == [(0, 3, 1)]
    unknown = FetchTopic(topic_id=b"\1" * 16, partitions=[FetchPartition(partition_index=0)])

    def acknowledged(*batches: AcknowledgementBatch, **fields: Any) -> dict[tuple[bytes, int], str]:
        rows = [FetchPartition(partition_index=index) for index in (1, 9)]
        rows.append(FetchPartition(partition_index=0, acknowledgement_batches=list(batches)))
        answer = member.ask_fetch(FetchTopic(topic_id=topic.id, partitions=rows), unknown, max_wait_ms=100, **fields)
        return {
            (result.topic_id, row.partition_index): name_of(row.acknowledge_error_code)
            for result in answer.responses
            for row in result.partitions
            if row.acknowledge_error_code or not row.error_code
        }

    errors = {(topic.id, 9): "UNKNOWN_TOPIC_OR_PARTITION", (b"\1" * 16, 0): "UNKNOWN_TOPIC_ID"}
    valid = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
    invalid = AcknowledgementBatch(first_offset=1, last_offset=0, acknowledge_types=[ACCEPT])
    assert acknowledged(valid) == {(topic.id, 0): "NONE", (topic.id, 1): "NONE", **errors}
    assert acknowledged(invalid) == {(topic.id, 0): "INVALID_REQUEST", **errors}
    assert acknowledged() == {}
    nothing = {"max_bytes": 0, "max_records": 0, "min_bytes": 0}
    last = acknowledged(
        AcknowledgementBatch(first_offset=1, last_offset=1, acknowledge_types=[ACCEPT]),
        share_session_epoch=-1,
        **nothing,
    )
    assert last == {(topic.id, 0): "NONE", (topic.id, 1): "NONE", **errors}


def test_partitions_that_are_not_there(member: ShareMember, topic: Topic, make_topic: TopicFactory) -> None:
    unknown = FetchTopic(topic_id=b"\1" * 16, partitions=[FetchPartition(partition_index=0)])
    known = FetchTopic(topic_id=topic.id, partitions=[FetchPartition(partition_index=9)])
    answer = member.ask_fetch(unknown, known)
    assert {
        (result.topic_id, part.partition_index): name_of(part.error_code)
        for result in answer.responses
        for part in result.partitions
    } == {
        (b"\1" * 16, 0): "UNKNOWN_TOPIC_ID",
        (topic.id, 9): "UNKNOWN_TOPIC_OR_PARTITION",
    }


def test_an_uninitialized_share_partition_cannot_be_read(broker: Wire, topic: Topic) -> None:
    member = ShareMember(broker, group_name())
    partitions = member.fetch(topic, max_wait_ms=2000, min_bytes=1)
    assert partitions[0].error == "UNKNOWN_SERVER_ERROR"
    assert member.acknowledge(topic, (0, 0, ACCEPT)) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_a_fetch_waits_for_records(broker: Wire, member: ShareMember, topic: Topic) -> None:
    member.fetch(topic)
    member.wire = broker.another()
    member.epoch = 0
    member.fetch(topic)
    member.wire.send_only(
        ShareFetchRequest(
            group_id=member.group_id,
            member_id=member.member_id,
            share_session_epoch=1,
            max_wait_ms=20_000,
            min_bytes=1,
            max_records=10,
            batch_size=10,
        ),
        2,
    )
    begun = time.monotonic()
    topic.append(3)
    answer = member.wire.receive()
    assert [
        (batch.first_offset, batch.last_offset) for batch in answer.responses[0].partitions[0].acquired_records
    ] == [(0, 2)]
    assert time.monotonic() - begun < 10


def test_a_fetch_waits_for_what_another_member_releases(broker: Wire, group: str, topic: Topic) -> None:
    topic.append(10)
    one, other = ShareMember(broker, group), ShareMember(broker.another(), group)
    one.take(topic, 10)
    other.fetch(topic)
    other.wire.send_only(
        ShareFetchRequest(
            group_id=group,
            member_id=other.member_id,
            share_session_epoch=1,
            max_wait_ms=6000,
            min_bytes=1,
            max_records=10,
            batch_size=10,
        ),
        2,
    )
    begun = time.monotonic()
    assert one.acknowledge(topic, (0, 9, RELEASE)) == "NONE"
    answer = other.wire.receive()
    (acquired,) = answer.responses[0].partitions[0].acquired_records
    assert (acquired.first_offset, acquired.last_offset, acquired.delivery_count) == (0, 9, 2)
    if not broker.is_kafka:  # which lets it wait until its time is over
        assert time.monotonic() - begun < 5


def test_a_fetch_without_records_returns_after_max_wait_ms(member: ShareMember, topic: Topic) -> None:
    member.fetch(topic)
    begun = time.monotonic()
    assert member.fetch(topic, max_wait_ms=300, min_bytes=1) == {}
    assert 0.25 < time.monotonic() - begun < 5


def test_a_member_that_begins_anew_while_its_fetch_waits(broker: Wire, member: ShareMember, topic: Topic) -> None:
    """The fetch is answered, and what comes then is the new session's. Apache Kafka may give it to the old one."""
    waiting = broker.another()
    member.wire = waiting
    member.fetch(topic)
    request = ShareFetchRequest(
        group_id=member.group_id,
        member_id=member.member_id,
        share_session_epoch=1,
        max_wait_ms=2000,
        min_bytes=1,
        max_records=10,
        batch_size=10,
    )
    waiting.send_only(request, 2)
    time.sleep(0.2)  # on another connection nothing tells that it has arrived
    member.wire, member.epoch = broker, 0
    member.fetch(topic)
    answer = waiting.receive()
    assert (answer.error_code, answer.responses) == (0, [])
    topic.append(3)
    assert member.take(topic, 3) == [(0, 2, 1)]


def test_acknowledgements_go_with_a_fetch(member: ShareMember, topic: Topic) -> None:
    topic.append(5)
    topic.append(5)
    assert ranges(member.take(topic, 10)) == [(0, 9, 1)]
    partitions = member.fetch(topic, acks={0: [(0, 4, ACCEPT), (5, 9, RELEASE)]}, max_wait_ms=500, min_bytes=1)
    assert partitions[0].acknowledged == "NONE"
    if not partitions[0].acquired:
        partitions = member.fetch(topic, max_wait_ms=500, min_bytes=1)
    assert ranges(partitions[0].acquired) == [(5, 9, 2)]
    partitions = member.fetch(topic, acks={0: [(5, 9, ACCEPT)], 7: [(0, 0, ACCEPT)]})
    assert (partitions[0].acknowledged, partitions[7].acknowledged) == ("NONE", "UNKNOWN_TOPIC_OR_PARTITION")
    assert partitions[0].acquired == []
    partitions = member.fetch(topic, acks={0: [(5, 9, [9])]})
    assert (partitions[0].error, partitions[0].acknowledged) == ("NONE", "INVALID_REQUEST")


def test_the_last_request_releases_what_is_left(broker: Wire, member: ShareMember, topic: Topic) -> None:
    topic.append(10)
    member.take(topic, 10)
    partitions = member.fetch(topic, acks={0: [(0, 3, ACCEPT)]}, share_session_epoch=-1)
    assert partitions[0].acknowledged == "NONE"
    assert partitions[0].acquired == []
    other = ShareMember(broker, member.group_id)
    assert ranges(other.take(topic, 6)) == [(4, 9, 2)]


def test_a_closed_connection_releases_the_records_of_its_members(broker: Wire, group: str, topic: Topic) -> None:
    topic.append(10)
    member = ShareMember(broker.another(), group)
    member.take(topic, 10)
    member.wire.socket().close()
    other = ShareMember(broker, group)
    assert ranges(other.take(topic, 10)) == [(0, 9, 2)]
    member.wire = broker
    assert name_of(member.ask_acknowledge().error_code) == "SHARE_SESSION_NOT_FOUND"


def test_locks_end(broker: Wire, member: ShareMember, topic: Topic) -> None:
    configure(broker, member.group_id, share_record_lock_duration_ms="1000")
    topic.append(10)
    member.take(topic, 10)
    begun = time.monotonic()
    other = ShareMember(broker, member.group_id)
    assert ranges(other.take(topic, 10)) == [(0, 9, 2)]
    assert 0.5 < time.monotonic() - begun < 10
    assert member.acknowledge(topic, (0, 9, ACCEPT)) == "INVALID_RECORD_STATE"
    assert member.ask_fetch().acquisition_lock_timeout_ms == 1000


def test_locks_are_renewed(broker: Wire, member: ShareMember, topic: Topic) -> None:
    configure(broker, member.group_id, share_record_lock_duration_ms="1500")
    topic.append(4)
    member.take(topic, 4)
    until = time.monotonic() + 3
    other = ShareMember(broker.another(), member.group_id)
    other.fetch(topic)
    while time.monotonic() < until:
        renewal: dict[str, Any] = {
            "is_renew_ack": True,
            "max_bytes": 0,
            "max_records": 0,
            "max_wait_ms": 0,
            "min_bytes": 0,
        }
        partitions = member.fetch(topic, acks={0: [(0, 3, RENEW)]}, **renewal)
        assert (partitions[0].acknowledged, partitions[0].acquired) == ("NONE", [])
        assert other.fetch(topic, max_wait_ms=400, min_bytes=1) == {}
    assert member.acknowledge(topic, (0, 3, ACCEPT)) == "NONE"


def test_records_are_archived_at_the_delivery_count_limit(broker: Wire, member: ShareMember, topic: Topic) -> None:
    configure(broker, member.group_id, share_delivery_count_limit="2")
    topic.append(3)
    assert member.take(topic, 3) == [(0, 2, 1)]
    assert member.acknowledge(topic, (0, 2, RELEASE)) == "NONE"
    assert ranges(member.take(topic, 3)) == [(0, 2, 2)]
    assert member.acknowledge(topic, (0, 2, RELEASE)) == "NONE"
    topic.append(1)
    assert member.take(topic, 1) == [(3, 3, 1)]


def test_batches_are_split_before_the_last_delivery_attempts(member: ShareMember, topic: Topic) -> None:
    """The fifth attempt is the last: from the third on fewer and fewer are delivered together, in the end one by one."""
    topic.append(8)
    seen = []
    for _ in range(12):
        acquired = ranges(member.take(topic, 1))
        seen += acquired
        for first, last, _ in acquired:
            assert member.acknowledge(topic, (first, last, RELEASE)) == "NONE"
    assert seen == [
        (0, 7, 1),
        (0, 7, 2),
        (0, 7, 3),
        (0, 3, 4),
        (0, 0, 5),
        (1, 1, 5),
        (2, 2, 5),
        (3, 3, 5),
        (4, 7, 4),
        (4, 4, 5),
        (5, 5, 5),
        (6, 6, 5),
    ]


def test_max_records_is_rounded_up_to_whole_batches(member: ShareMember, topic: Topic) -> None:
    for _ in range(4):
        topic.append(10)
    assert ranges(member.take(topic, 1, max_records=15)) == [(0, 19, 1)]
    assert ranges(member.take(topic, 1, max_records=10)) == [(20, 29, 1)]
    assert ranges(member.take(topic, 1, max_records=1)) == [(30, 39, 1)]


def test_batch_size_splits_where_batches_end(member: ShareMember, topic: Topic) -> None:
    for _ in range(6):
        topic.append(5)
    assert member.take(topic, 30, batch_size=10) == [(0, 9, 1), (10, 19, 1), (20, 29, 1)]
    member.leave()
    assert ranges(member.take(topic, 30, batch_size=2)) == [(0, 29, 2)]


def test_a_record_limit_is_kept(member: ShareMember, topic: Topic) -> None:
    topic.append(10)
    limited: dict[str, Any] = {"share_acquire_mode": 1, "max_records": 4}
    assert member.take(topic, 1, **limited) == [(0, 3, 1)]
    partitions = member.fetch(topic, max_wait_ms=500, min_bytes=1, **limited)
    assert partitions[0].acquired == [(4, 7, 1)]
    assert partitions[0].offsets == list(range(10))
    assert partitions[0].delivered == [4, 5, 6, 7]
    assert member.acknowledge(topic, (0, 3, RELEASE)) == "NONE"
    assert ranges(member.take(topic, 1, **limited)) == [(0, 3, 2)]
    assert ranges(member.take(topic, 1, **limited)) == [(8, 9, 1)]


def test_the_window_is_bounded(broker: Wire, member: ShareMember, topic: Topic) -> None:
    configure(broker, member.group_id, share_partition_max_record_locks="100")
    for _ in range(15):
        topic.append(10)
    assert ranges(member.take(topic, 100)) == [(0, 99, 1)]
    assert member.fetch(topic, max_wait_ms=200, min_bytes=1) == {}
    assert member.acknowledge(topic, (10, 19, ACCEPT)) == "NONE"
    assert member.fetch(topic, max_wait_ms=200, min_bytes=1) == {}  # they lie within the window still
    assert member.acknowledge(topic, (30, 39, RELEASE)) == "NONE"
    assert ranges(member.take(topic, 1)) == [(30, 39, 2)]
    assert member.acknowledge(topic, (0, 9, ACCEPT)) == "NONE"
    assert ranges(member.take(topic, 1)) == [(100, 119, 1)]


def test_partitions_have_their_turn(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group = make_topic(3), group_name()
    initialize(broker, group, topic, 0, 1, 2)
    for index in range(3):
        for _ in range(12):
            topic.append(1, partition=index)
    member = ShareMember(broker, group)
    fields: dict[str, Any] = {"max_records": 1, "batch_size": 1, "max_wait_ms": 1000, "min_bytes": 1}
    member.fetch(topic, 0, 1, 2, **fields)
    served: Counter[int] = Counter()
    for _ in range(12):
        served.update(index for index, partition in member.fetch(topic, **fields).items() if partition.acquired)
    assert min(served[index] for index in range(3)) >= 3


@pytest.mark.parametrize(("reset", "expected"), [("earliest", [(0, 9, 1)]), ("latest", [(5, 9, 1)])])
def test_share_auto_offset_reset_sets_the_start_of_a_new_group(
    broker: Wire, topic: Topic, reset: str, expected: list[tuple[int, int, int]]
) -> None:
    group = group_name()
    initialize(broker, group, topic, start=-1)
    configure(broker, group, share_auto_offset_reset=reset)
    topic.append(5)
    member = ShareMember(broker, group)
    partitions = member.fetch(topic, max_wait_ms=1000, min_bytes=1)
    taken = [] if 0 not in partitions else partitions[0].acquired
    topic.append(5)
    while not taken or taken[-1][1] != 9:
        taken += member.take(topic, 1)
    assert ranges(taken) == expected


def test_a_group_begins_some_time_ago(broker: Wire, topic: Topic) -> None:
    group, now = group_name(), int(time.time() * 1000)
    initialize(broker, group, topic, start=-1)
    configure(broker, group, share_auto_offset_reset="by_duration:PT1H")
    for age_ms in (7_200_000, 3_000_000, 10):
        topic.append(2, timestamp=now - age_ms)
    assert ranges(ShareMember(broker, group).take(topic, 4)) == [(2, 5, 1)]


def test_a_group_that_begins_after_the_last_record(broker: Wire, topic: Topic) -> None:
    group, now = group_name(), int(time.time() * 1000)
    initialize(broker, group, topic, start=-1)
    configure(broker, group, share_auto_offset_reset="by_duration:PT1H")
    topic.append(2, timestamp=now - 7_200_000)
    member = ShareMember(broker, group)
    partitions = member.fetch(topic, max_wait_ms=1000, min_bytes=1)
    assert partitions.get(0) is None or partitions[0].acquired == []
    topic.append(2, timestamp=now)
    assert ranges(member.take(topic, 2)) == [(2, 3, 1)]


def test_what_the_log_has_lost_is_not_delivered(broker: Wire, member: ShareMember, topic: Topic) -> None:
    for _ in range(3):
        topic.append(10)
    assert ranges(member.take(topic, 20, max_records=20)) == [(0, 19, 1)]
    assert member.acknowledge(topic, (5, 14, RELEASE)) == "NONE"
    cut = DeleteRecordsTopic(name=topic.name, partitions=[DeleteRecordsPartition(partition_index=0, offset=12)])
    (answer,) = broker.send(DeleteRecordsRequest(topics=[cut], timeout_ms=10_000), 2).topics
    assert name_of(answer.partitions[0].error_code) == "NONE"
    taken: list[tuple[int, int, int]] = []
    while sum(last - first + 1 for first, last, _ in taken) < 13:
        taken += member.take(topic, 1)
    assert ranges(taken) == [(12, 14, 2), (20, 29, 1)]
    assert member.acknowledge(topic, (0, 4, ACCEPT)) == "NONE"
    assert member.acknowledge(topic, (12, 29, ACCEPT)) == "NONE"
    assert member.acknowledge(topic, (15, 29, ACCEPT)) in ("NONE", "INVALID_RECORD_STATE")


def test_aborted_records_are_not_delivered_to_readers_of_committed_ones(
    broker: Wire, member: ShareMember, topic: Topic
) -> None:
    configure(broker, member.group_id, share_isolation_level="read_committed")
    producer = TransactionalProducer(broker)
    for commit in (True, False, True):
        producer.produce(topic, count=3)
        producer.end(commit=commit)
    producer.produce(topic, count=3)
    taken: list[tuple[int, int, int]] = []
    values: set[int] = set()
    deadline = time.monotonic() + 20
    while 10 not in values:
        assert time.monotonic() < deadline
        for partition in member.fetch(
            topic, *([0] if member.epoch == 0 else []), max_wait_ms=500, min_bytes=1
        ).values():
            taken += partition.acquired
            values |= set(partition.delivered)
    assert values - {3, 7, 11} == {0, 1, 2, 8, 9, 10}
    assert all(last < 4 or first > 6 for first, last, _ in taken)
    assert member.fetch(topic, max_wait_ms=300, min_bytes=1) == {}
    producer.end(commit=True)
    taken = member.take(topic, 3)
    assert taken[0][0] == 12
    for first, last, _ in taken:
        assert member.acknowledge(topic, (first, last, ACCEPT)) == "NONE"


def test_read_uncommitted_groups_get_records_of_open_transactions(
    broker: Wire, member: ShareMember, topic: Topic
) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(topic, count=3)
    assert ranges(member.take(topic, 3)) == [(0, 2, 1)]
    producer.end(commit=False)


@pytest.mark.parametrize("codec_id", [0, 1, 2, 3, 4])
def test_compressed_batches_are_acquired_whole(member: ShareMember, topic: Topic, codec_id: int) -> None:
    topic.append(20, codec_id=codec_id)
    partitions = member.fetch(topic, max_wait_ms=1000, min_bytes=1, max_records=5)
    while not partitions or not partitions[0].acquired:
        partitions = member.fetch(topic, max_wait_ms=1000, min_bytes=1, max_records=5)
    assert partitions[0].acquired == [(0, 19, 1)]
    assert partitions[0].offsets == list(range(20))


def test_bytes_are_bounded_by_batches(member: ShareMember, topic: Topic) -> None:
    value = b"x" * 1000
    for _ in range(10):
        answer = topic.produce(build([Record(0, 1_700_000_000_000, None, value)]))
        assert answer.error_code == 0
    partitions = member.fetch(topic, max_wait_ms=1000, min_bytes=1, max_bytes=3500)
    while not partitions or not partitions[0].acquired:
        partitions = member.fetch(topic, max_wait_ms=1000, min_bytes=1, max_bytes=3500)
    assert partitions[0].acquired == [(0, 2, 1)]
    assert partitions[0].offsets == [0, 1, 2]
    assert member.fetch(topic, max_wait_ms=1000, min_bytes=1, max_bytes=10)[0].acquired == [(3, 3, 1)]


def test_a_rejected_record_is_never_seen_again(broker: Wire, member: ShareMember, topic: Topic) -> None:
    topic.append(3)
    member.take(topic, 3)
    assert member.acknowledge(topic, (0, 2, [ACCEPT, REJECT, RELEASE])) == "NONE"
    assert ranges(member.take(topic, 1)) == [(2, 2, 2)]
    assert summary(broker, member.group_id, topic).delivery_complete_count == 2


@pytest.mark.usefixtures("ottla_only")
def test_a_group_that_is_set_back_reads_all_of_it_again(broker: Wire, member: ShareMember, topic: Topic) -> None:
    """Apache Kafka goes on with what it has loaded until the group has lost its last member, and here there never was one."""
    topic.append(10)
    member.take(topic, 10)
    assert member.acknowledge(topic, (0, 6, ACCEPT)) == "NONE"
    offsets = AlterShareGroupOffsetsRequestTopic(
        topic_name=topic.name,
        partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=2)],
    )
    deadline = time.monotonic() + 10
    while True:
        broker.send(FindCoordinatorRequest(key_type=0, coordinator_keys=[member.group_id]), 6)
        answer = broker.send(AlterShareGroupOffsetsRequest(group_id=member.group_id, topics=[offsets]), 0)
        if answer.error_code == 0:
            break
        assert time.monotonic() < deadline, name_of(answer.error_code)
    assert name_of(answer.responses[0].partitions[0].error_code) == "NONE"
    assert ranges(member.take(topic, 8)) == [(2, 9, 1)]
    assert member.acknowledge(topic, (2, 9, ACCEPT)) == "NONE"
    state = summary(broker, member.group_id, topic)
    assert (state.start_offset, state.delivery_complete_count) == (2, 8)


def test_a_topic_that_is_deleted_is_unknown(broker: Wire, member: ShareMember, topic: Topic) -> None:
    topic.append(3)
    member.take(topic, 3)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=10_000)
    assert broker.send(request, 6).responses[0].error_code == 0
    deadline = time.monotonic() + 10
    while not (partitions := member.fetch(topic, max_wait_ms=200, min_bytes=1)):
        assert time.monotonic() < deadline
    gone = ("UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC_OR_PARTITION")  # Apache Kafka forgets one part of it after the other
    assert partitions[0].error in gone
    assert member.acknowledge(topic, (0, 2, ACCEPT)) in gone


@pytest.fixture
def compacting(broker: Wire) -> Iterator[Wire]:
    """A broker that compacts at once: an Ottla of this test's own."""
    if broker.is_kafka:
        yield broker
        return
    with EmbeddedBroker({"log.cleaner.backoff.ms": "20", "log.initial.task.delay.ms": "20"}) as own:
        wire = Wire(own.address, is_kafka=False)
        yield wire
        wire.close()


def test_what_compaction_has_left(compacting: Wire) -> None:
    """Offsets that are gone are acquired with their neighbours, or not at all; records that are there come once."""
    broker = compacting
    topic = TopicFactory(broker)(
        cleanup_policy="compact",
        segment_bytes="1048576",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )
    group = group_name()
    initialize(broker, group, topic)
    now = int(time.time() * 1000)
    for key in (b"a", b"b", b"a", b"c", b"b", b"a"):
        assert topic.produce(build([Record(0, now, key, b"1")])).error_code == 0
    deadline = time.monotonic() + 60
    kept: set[int] = set()
    while not kept or len(kept) > 20:
        assert time.monotonic() < deadline
        topic.append(1, timestamp=int(time.time() * 1000))  # rolls the segment before it
        time.sleep(0.3)
        (answer,) = fetch_partitions(broker, topic, 0, committed=False)
        kept = {record.offset for record in records_of(answer.records or b"")}
        if {0, 1, 2} & kept:
            kept = set()
    member = ShareMember(broker, group)
    delivered: list[int] = []
    while not delivered or delivered[-1] != max(kept):
        assert time.monotonic() < deadline
        for partition in member.fetch(
            topic, *([0] if member.epoch == 0 else []), max_wait_ms=500, min_bytes=1
        ).values():
            delivered += partition.delivered
            for first, last, _ in partition.acquired:
                assert member.acknowledge(topic, (first, last, ACCEPT)) == "NONE"
    assert sorted(delivered) == sorted(kept)
    assert summary(broker, group, topic).delivery_complete_count > 0
