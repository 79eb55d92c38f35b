"""Fetch, over a socket."""

import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from ottla.protocol.errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.records.batch import records_of, scan

from .conftest import Topic, TopicFactory, Wire, versions

API = FetchRequest
WITH_BATCHES = [version for version in versions(API) if version >= 4]  # below: test_fetch_message_sets.py
WITH_SESSIONS = [version for version in versions(API) if version >= 7]


def fetch_topic(
    topic: Topic, offsets: Mapping[int, int], version: int, max_bytes: int = 1 << 20, **fields: Any
) -> FetchTopic:
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes, **fields)
        for index, offset in offsets.items()
    ]
    if version >= 13:
        return FetchTopic(topic_id=topic.id, partitions=partitions)
    return FetchTopic(topic=topic.name, partitions=partitions)


def ask(*topics: FetchTopic, max_wait_ms: int = 0, min_bytes: int = 0, **fields: Any) -> FetchRequest:
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=list(topics), **fields)


def fetch(topic: Topic, offset: int, version: int = 12, *, partition: int = 0, **fields: Any) -> Any:
    """One partition's answer."""
    in_partition = {name: fields.pop(name) for name in ("current_leader_epoch", "last_fetched_epoch") if name in fields}
    max_bytes = fields.pop("partition_max_bytes", 1 << 20)
    request = ask(fetch_topic(topic, {partition: offset}, version, max_bytes, **in_partition), **fields)
    answer = topic.wire.send(request, version)
    assert answer.error_code == NONE
    return answer.responses[0].partitions[0]


def offsets_in(data: Any) -> list[int]:
    """Offsets of the records of the whole batches in a partition's answer."""
    return [record.offset for record in records_of(bytes(data.records))]


def batches_in(data: Any) -> list[int]:
    return [header.base_offset for header in scan(bytes(data.records)).batches]


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_every_version_reads(broker: Wire, topic: Topic, version: int) -> None:
    topic.append(3)
    topic.append(2)
    answer = broker.send(ask(fetch_topic(topic, {0: 0}, version)), version)
    (response,) = answer.responses
    assert (response.topic, response.topic_id) == (("", topic.id) if version >= 13 else (topic.name, bytes(16)))
    (data,) = response.partitions
    assert (data.partition_index, data.error_code, data.high_watermark, data.last_stable_offset) == (0, NONE, 5, 5)
    assert data.log_start_offset == (0 if version >= 5 else -1)
    assert (data.preferred_read_replica, data.aborted_transactions) == (-1, None)
    assert offsets_in(data) == [0, 1, 2, 3, 4]
    assert answer.session_id == 0
    assert offsets_in(fetch(topic, 3, version)) == [3, 4]
    assert offsets_in(fetch(topic, 1, version)) == [
        0,
        1,
        2,
        3,
        4,
    ]  # whole batches: the reader leaves out what is before


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", [version for version in versions(API) if version >= 12])
def test_a_reader_whose_log_diverges(topic: Topic, version: int, isolation_level: int) -> None:
    topic.append(3)
    data = fetch(topic, 5, version, last_fetched_epoch=0, isolation_level=isolation_level)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 3)
    assert (data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset) == (NONE, 3, 3, 0)
    assert (data.aborted_transactions, bytes(data.records)) == (None, b"")


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_the_end_is_empty_and_beyond_it_out_of_range(topic: Topic, version: int) -> None:
    topic.append(3)
    data = fetch(topic, 3, version)
    assert (data.error_code, data.high_watermark, bytes(data.records)) == (NONE, 3, b"")
    for offset in (4, 1 << 40, -1, -2):
        data = fetch(topic, offset, version)
        assert (data.error_code, data.high_watermark, bytes(data.records)) == (OFFSET_OUT_OF_RANGE, -1, b""), offset
        assert (data.last_stable_offset, data.log_start_offset, data.aborted_transactions) == (-1, -1, None)


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_topics_that_do_not_exist_come_last(broker: Wire, topic: Topic, version: int) -> None:
    """They have an empty list of aborted transactions; other errors have none."""
    unknown = Topic(broker, "no-such-topic", uuid.uuid4().bytes)
    answer = broker.send(
        ask(fetch_topic(unknown, {0: 0}, version), fetch_topic(topic, {7: 0, 0: 99}, version)), version
    )
    rows = [
        (row.topic_id if version >= 13 else row.topic, part.partition_index, part.aborted_transactions)
        for row in answer.responses
        for part in row.partitions
    ]
    name, missing = (topic.id, unknown.id) if version >= 13 else (topic.name, unknown.name)
    assert rows[0] == (name, 0, None)
    assert rows[1:] in ([(missing, 0, []), (name, 7, [])], [(name, 7, []), (missing, 0, [])])


@pytest.mark.parametrize("version", versions(API))
def test_unknown_topics_and_partitions(broker: Wire, topic: Topic, version: int) -> None:
    unknown = Topic(broker, "no-such-topic", uuid.uuid4().bytes)
    data = fetch(unknown, 0, version)
    expected = UNKNOWN_TOPIC_ID if version >= 13 else UNKNOWN_TOPIC_OR_PARTITION
    assert (data.error_code, data.high_watermark, bytes(data.records)) == (expected, -1, b"")
    for partition in (1, -1):
        data = fetch(topic, 0, version, partition=partition)
        assert (data.partition_index, data.error_code) == (partition, UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 9])
def test_leader_epochs_are_compared_with_the_current_one(topic: Topic, version: int) -> None:
    topic.append(1)
    for epoch, expected in ((0, NONE), (-1, NONE), (-2, NONE), (1, UNKNOWN_LEADER_EPOCH)):
        assert fetch(topic, 0, version, current_leader_epoch=epoch).error_code == expected, epoch


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_readers_of_committed_data_get_a_list_of_aborted_transactions(topic: Topic, version: int) -> None:
    topic.append(3)
    data = fetch(topic, 0, version, isolation_level=1)
    assert (offsets_in(data), data.last_stable_offset, data.aborted_transactions) == ([0, 1, 2], 3, [])
    assert fetch(topic, 3, version, isolation_level=1).aborted_transactions == []


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_the_first_batch_is_whole_even_beyond_the_limits(topic: Topic, version: int) -> None:
    topic.append(20)
    topic.append(20)
    for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}, {"partition_max_bytes": 0}):
        assert batches_in(fetch(topic, 0, version, **limits)) == [0], limits
    assert batches_in(fetch(topic, 25, version, max_bytes=1)) == [20]


def test_limits_are_kept_behind_the_first_batch(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(2)
    for _ in range(100):
        topic.append(10)
        topic.append(10, partition=1)
    size = len(bytes(fetch(topic, 990).records))
    data = fetch(topic, 0, partition_max_bytes=10 * size)
    assert 0 < len(bytes(data.records)) <= 10 * size
    answer = broker.send(ask(fetch_topic(topic, {0: 0, 1: 0}, 12), max_bytes=50 * size), 12)
    first, second = answer.responses[0].partitions
    # Apache Kafka cuts the last batch at the limit; here an answer ends with a batch that the index knows.
    assert 50 * size - 8192 < len(bytes(first.records)) <= 50 * size
    assert len(bytes(first.records)) + len(bytes(second.records)) <= 50 * size
    answer = broker.send(ask(fetch_topic(topic, {0: 0, 1: 0}, 12, 20 * size), max_bytes=30 * size), 12)
    first, second = answer.responses[0].partitions
    assert 0 < len(bytes(first.records)) <= 20 * size
    assert 0 < len(bytes(first.records)) + len(bytes(second.records)) <= 30 * size


def test_every_offset_is_found_in_a_long_log(make_topic: TopicFactory) -> None:
    topic = make_topic(segment_bytes=str(1 << 20))
    for _ in range(40):
        topic.append(2000)
    for offset in range(0, 80_000, 1_111):
        data = fetch(topic, offset, partition_max_bytes=100)
        offsets = offsets_in(data)
        assert offsets[0] <= offset <= offsets[-1]


def test_many_partitions_are_answered_in_the_order_asked(broker: Wire, make_topic: TopicFactory) -> None:
    one, two = make_topic(3), make_topic(2)
    one.append(1, partition=2)
    two.append(2, partition=1)
    answer = broker.send(ask(fetch_topic(two, {1: 0, 0: 0}, 12), fetch_topic(one, {2: 0, 0: 0, 7: 0}, 12)), 12)
    rows = [
        (response.topic, data.partition_index, data.error_code, len(offsets_in(data)))
        for response in answer.responses
        for data in response.partitions
    ]
    assert sorted(rows) == sorted(
        [(two.name, 1, 0, 2), (two.name, 0, 0, 0), (one.name, 2, 0, 1), (one.name, 0, 0, 0), (one.name, 7, 3, 0)]
    )


def test_a_request_for_nothing_is_answered_at_once(broker: Wire) -> None:
    answer = broker.send(ask(max_wait_ms=20_000, min_bytes=1), 12)
    assert (answer.error_code, answer.responses, answer.session_id) == (NONE, [], 0)


# Long polls


def test_a_fetch_without_records_returns_after_max_wait_ms(topic: Topic) -> None:
    began = time.monotonic()
    assert offsets_in(fetch(topic, 0, max_wait_ms=300, min_bytes=1)) == []
    assert 0.28 <= time.monotonic() - began < 5


@pytest.mark.parametrize("version", WITH_BATCHES)
def test_an_append_wakes_a_long_poll(broker: Wire, topic: Topic, version: int) -> None:
    reader = broker.another()
    reader.send_only(ask(fetch_topic(topic, {0: 0}, version), max_wait_ms=20_000, min_bytes=1), version)
    topic.append(1)
    began = time.monotonic()
    assert offsets_in(reader.receive().responses[0].partitions[0]) == [0]
    assert time.monotonic() - began < 5


def test_a_long_poll_waits_for_min_bytes(broker: Wire, topic: Topic) -> None:
    topic.append(1)
    size = len(bytes(fetch(topic, 0).records))
    reader = broker.another()
    reader.send_only(ask(fetch_topic(topic, {0: 0}, 12), max_wait_ms=20_000, min_bytes=3 * size), 12)
    topic.append(1)
    reader.socket().settimeout(0.2)
    with pytest.raises(TimeoutError):
        reader.receive()
    reader.socket().settimeout(30)
    topic.append(1)
    assert offsets_in(reader.receive().responses[0].partitions[0]) == [0, 1, 2]


def test_min_bytes_is_the_sum_over_partitions(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(2)
    topic.append(1)
    size = len(bytes(fetch(topic, 0).records))
    reader = broker.another()
    reader.send_only(ask(fetch_topic(topic, {0: 0, 1: 0}, 12), max_wait_ms=20_000, min_bytes=2 * size), 12)
    topic.append(1, partition=1)
    assert [offsets_in(data) for data in reader.receive().responses[0].partitions] == [[0], [0]]


def test_records_below_min_bytes_are_returned_after_max_wait_ms(topic: Topic) -> None:
    topic.append(2)
    assert offsets_in(fetch(topic, 0, max_wait_ms=200, min_bytes=1 << 20)) == [0, 1]


def test_an_error_does_not_wait(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(2)
    began = time.monotonic()
    answer = broker.send(ask(fetch_topic(topic, {0: 0, 1: 9}, 12), max_wait_ms=20_000, min_bytes=1), 12)
    assert [data.error_code for data in answer.responses[0].partitions] == [NONE, OFFSET_OUT_OF_RANGE]
    assert fetch(topic, 0, partition=7, max_wait_ms=20_000, min_bytes=1).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert time.monotonic() - began < 5


def test_an_unknown_partition_does_not_keep_the_others_from_waiting(broker: Wire, topic: Topic) -> None:
    began = time.monotonic()
    answer = broker.send(ask(fetch_topic(topic, {0: 0, 1: 0}, 12), max_wait_ms=300, min_bytes=1), 12)
    codes = {data.partition_index: data.error_code for data in answer.responses[0].partitions}
    assert codes == {0: NONE, 1: UNKNOWN_TOPIC_OR_PARTITION}
    assert 0.28 <= time.monotonic() - began < 5


def test_many_readers_wake_at_once(broker: Wire, topic: Topic) -> None:
    readers = [broker.another() for _ in range(20)]
    for reader in readers:
        reader.send_only(ask(fetch_topic(topic, {0: 0}, 12), max_wait_ms=20_000, min_bytes=1), 12)
    producer = threading.Thread(target=topic.append, args=(1,))
    producer.start()
    assert [offsets_in(reader.receive().responses[0].partitions[0]) for reader in readers] == [[0]] * 20
    producer.join()


def test_requests_behind_a_long_poll_wait_their_turn(broker: Wire, topic: Topic) -> None:
    reader = broker.another()
    reader.send_only(ask(fetch_topic(topic, {0: 0}, 12), max_wait_ms=20_000, min_bytes=1), 12)
    for _ in range(3):
        reader.send_only(ask(fetch_topic(topic, {0: 1}, 12)), 12)
    topic.append(1)
    assert offsets_in(reader.receive().responses[0].partitions[0]) == [0]
    assert [offsets_in(reader.receive().responses[0].partitions[0]) for _ in range(3)] == [[]] * 3


# Sessions (KIP-227)


class Session:
    """A client with a fetch session, on one connection."""

    def __init__(self, wire: Wire, version: int) -> None:
        self.wire = wire.another()
        self.version = version
        self.id = 0
        self.epoch = 0

    def forgetting(self, topic: Topic, indexes: list[int]) -> ForgottenTopic:
        if self.version >= 13:
            return ForgottenTopic(topic_id=topic.id, partitions=indexes)
        return ForgottenTopic(topic=topic.name, partitions=indexes)

    def fetch(
        self, *topics: FetchTopic, forgotten: Iterable[ForgottenTopic] = (), **fields: Any
    ) -> dict[int, list[int]]:
        """Offsets by partition, of the partitions that the answer holds."""
        answer = self.send(*topics, forgotten=forgotten, **fields)
        assert answer.error_code == NONE
        assert answer.session_id != 0
        self.id = answer.session_id
        self.epoch += 1
        return {data.partition_index: offsets_in(data) for response in answer.responses for data in response.partitions}

    def send(self, *topics: FetchTopic, forgotten: Iterable[ForgottenTopic] = (), **fields: Any) -> Any:
        wanted_session = {"session_id": self.id, "session_epoch": self.epoch} | fields
        request = ask(*topics, forgotten_topics_data=list(forgotten), **wanted_session)
        return self.wire.send(request, self.version)


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_a_session_returns_changed_partitions_only(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(3)
    session = Session(broker, version)
    topic.append(1, partition=1)
    assert session.fetch(fetch_topic(topic, {0: 0, 1: 0, 2: 0}, version)) == {0: [], 1: [0], 2: []}
    assert session.fetch(fetch_topic(topic, {1: 1}, version)) == {}
    topic.append(2, partition=2)
    assert session.fetch() == {2: [0, 1]}
    assert session.fetch() == {2: [0, 1]}  # it did not say that it has them
    assert session.fetch(fetch_topic(topic, {2: 2}, version)) == {}
    topic.append(1, partition=0)
    topic.append(1, partition=1)
    assert session.fetch() == {0: [0], 1: [1]}


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_partitions_come_and_go_within_a_session(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(3)
    for index in range(3):
        topic.append(1, partition=index)
    session = Session(broker, version)
    assert session.fetch(fetch_topic(topic, {0: 0}, version)) == {0: [0]}
    assert session.fetch(fetch_topic(topic, {1: 0}, version)) == {0: [0], 1: [0]}
    assert session.fetch(forgotten=[session.forgetting(topic, [0])]) == {1: [0]}
    assert session.fetch(fetch_topic(topic, {2: 0}, version), forgotten=[session.forgetting(topic, [1, 7])]) == {2: [0]}


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_a_session_is_over_when_nothing_is_left_of_it(broker: Wire, topic: Topic, version: int) -> None:
    session = Session(broker, version)
    assert session.fetch(fetch_topic(topic, {0: 0}, version)) == {0: []}
    answer = session.send(forgotten=[session.forgetting(topic, [0])])
    assert (answer.error_code, answer.session_id, answer.responses) == (NONE, 0, [])
    assert session.send(session_epoch=2).error_code == FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_a_session_long_polls_over_all_its_partitions(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(2)
    session = Session(broker, version)
    session.fetch(fetch_topic(topic, {0: 0, 1: 0}, version))
    request = ask(max_wait_ms=20_000, min_bytes=1, session_id=session.id, session_epoch=1)
    session.wire.send_only(request, version)
    topic.append(1, partition=1)
    answer = session.wire.receive()
    assert [(data.partition_index, offsets_in(data)) for data in answer.responses[0].partitions] == [(1, [0])]
    assert answer.session_id == session.id


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_epochs_and_ids_of_sessions_are_checked(broker: Wire, topic: Topic, version: int) -> None:
    session = Session(broker, version)
    session.fetch(fetch_topic(topic, {0: 0}, version))
    for epoch in (2, 0x7FFFFFFF):
        answer = session.send(session_epoch=epoch)
        assert (answer.error_code, answer.session_id, answer.responses) == (INVALID_FETCH_SESSION_EPOCH, 0, [])
    answer = session.send(session_id=session.id ^ 1, session_epoch=1)
    assert (answer.error_code, answer.session_id, answer.responses) == (FETCH_SESSION_ID_NOT_FOUND, 0, [])
    assert session.fetch() == {}  # it lives on
    assert session.send(session_epoch=1).error_code == INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_the_last_epoch_closes_a_session(broker: Wire, topic: Topic, version: int) -> None:
    topic.append(1)
    session = Session(broker, version)
    session.fetch(fetch_topic(topic, {0: 0}, version))
    answer = session.send(fetch_topic(topic, {0: 0}, version), session_epoch=-1)
    assert (answer.error_code, answer.session_id) == (NONE, 0)
    assert offsets_in(answer.responses[0].partitions[0]) == [0]
    assert session.send().error_code == FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_epoch_0_starts_a_new_session(broker: Wire, topic: Topic, version: int) -> None:
    session = Session(broker, version)
    session.fetch(fetch_topic(topic, {0: 0}, version))
    old = session.id
    session.epoch = 0
    assert session.fetch(fetch_topic(topic, {0: 0}, version)) == {0: []}
    assert session.send(session_id=old, session_epoch=1).error_code == (
        FETCH_SESSION_ID_NOT_FOUND if session.id != old else NONE
    )
    assert session.fetch() == {}


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_a_session_may_begin_with_nothing(broker: Wire, topic: Topic, version: int) -> None:
    session = Session(broker, version)
    assert session.fetch() == {}
    topic.append(1)
    assert session.fetch(fetch_topic(topic, {0: 0}, version)) == {0: [0]}


@pytest.mark.parametrize("version", WITH_SESSIONS)
def test_an_error_in_a_session_is_repeated(broker: Wire, topic: Topic, version: int) -> None:
    session = Session(broker, version)
    assert session.fetch(fetch_topic(topic, {0: 5, 1: 0}, version)) == {0: [], 1: []}
    for _ in range(2):
        answer = session.send()
        session.epoch += 1
        codes = {data.partition_index: data.error_code for data in answer.responses[0].partitions}
        assert codes == {0: OFFSET_OUT_OF_RANGE, 1: UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(("first", "then"), [(12, 13), (13, 12)])
def test_a_session_does_not_mix_names_and_ids(broker: Wire, topic: Topic, first: int, then: int) -> None:
    session = Session(broker, first)
    session.fetch(fetch_topic(topic, {0: 0}, first))
    session.version = then
    answer = session.send(fetch_topic(topic, {0: 0}, then))
    assert (answer.error_code, answer.session_id) == (FETCH_SESSION_TOPIC_ID_ERROR, 0)
    session.version = first
    assert session.fetch() == {}


@pytest.mark.parametrize("version", [13, 18])
def test_an_unknown_id_in_a_session_can_be_forgotten(broker: Wire, topic: Topic, version: int) -> None:
    unknown = Topic(broker, "", uuid.uuid4().bytes)
    session = Session(broker, version)
    answer = session.send(fetch_topic(unknown, {0: 0}, version), fetch_topic(topic, {0: 0}, version))
    codes = {(response.topic_id, response.partitions[0].error_code) for response in answer.responses}
    assert codes == {(unknown.id, UNKNOWN_TOPIC_ID), (topic.id, NONE)}
    session.id, session.epoch = answer.session_id, 1
    assert session.fetch() == {0: []}
    assert session.fetch(forgotten=[session.forgetting(unknown, [0])]) == {}


def test_a_partition_with_records_moves_to_the_end_of_the_session(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(3)
    for index in range(3):
        topic.append(10, partition=index)
    session = Session(broker, 12)

    def first_with_records(*topics: FetchTopic) -> int:
        by_partition = session.fetch(*topics, max_bytes=1)
        return next(index for index, offsets in by_partition.items() if offsets)

    assert first_with_records(fetch_topic(topic, {0: 0, 1: 0, 2: 0}, 12)) == 0
    assert [first_with_records() for _ in range(5)] == [0, 1, 2, 0, 1]  # a full fetch moves nothing
