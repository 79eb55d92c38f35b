"""Fetch and ListOffsets of readers of committed data, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.records.batch import read_header, records_of, scan

from .conftest import Topic, TopicFactory, Wire, versions
from .message_sets import parsed
from .transactions import TransactionalProducer, fetch_partitions

API = FetchRequest
WITH_ISOLATION = [version for version in versions(API) if version >= 4]


def aborted(part: Any) -> list[tuple[int, int]] | None:
    if part.aborted_transactions is None:
        return None
    return sorted((transaction.producer_id, transaction.first_offset) for transaction in part.aborted_transactions)


def batches(part: Any) -> list[tuple[int, bool, int]]:
    """(base offset, is it a marker, number of records)."""
    data = bytes(part.records or b"")
    return [(batch.base_offset, batch.is_control, batch.count) for batch in scan(data).batches]


def read(part: Any) -> list[int]:
    """The offsets of records that a reader of committed data is left with, as a client works it out."""
    data = bytes(part.records or b"")
    pending = sorted(
        ((transaction.first_offset, transaction.producer_id) for transaction in part.aborted_transactions), reverse=True
    )
    skipped: set[int] = set()
    offsets = []
    for header in scan(data).batches:
        while pending and pending[-1][0] <= header.base_offset + header.last_offset_delta:
            skipped.add(pending.pop()[1])
        batch = data[header.start : header.end]
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in skipped):
            offsets += [read_header(batch, 0).base_offset + delta for delta in range(len(records_of(batch)))]
    return offsets


@pytest.mark.parametrize("version", WITH_ISOLATION)
def test_an_open_transaction_and_what_came_after_it_is_not_seen(broker: Wire, topic: Topic, version: int) -> None:
    topic.append(2)
    producer = TransactionalProducer(broker)
    producer.produce(topic)
    topic.append(1)
    (committed,) = fetch_partitions(broker, topic, 0, version=version)
    (everything,) = fetch_partitions(broker, topic, 0, version=version, committed=False)
    for part in (committed, everything):
        assert (part.high_watermark, part.last_stable_offset) == (4, 2)
    assert (batches(committed), aborted(committed)) == ([(0, False, 2)], [])
    assert aborted(everything) is None
    assert batches(everything)[0] == (0, False, 2)
    for offset in (2, 3, 4):
        (part,) = fetch_partitions(broker, topic, 0, version=version, offset=offset)
        assert (name_of(part.error_code), batches(part), aborted(part)) == ("NONE", [], [])
    (part,) = fetch_partitions(broker, topic, 0, version=version, offset=5)
    assert name_of(part.error_code) == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize("version", WITH_ISOLATION)
def test_aborted_transactions_are_named(broker: Wire, topic: Topic, version: int) -> None:
    """Offsets: 0-1 of one, 2 of two, 3 plain, 4 of one, 5 aborts one, 6 of three, 7 commits two, 8 aborts three, 9 plain."""
    one, two, three = (TransactionalProducer(broker) for _ in range(3))
    one.produce(topic, count=2)
    two.produce(topic)
    topic.append(1)
    one.produce(topic)
    one.end(commit=False)
    (open_still,) = fetch_partitions(broker, topic, 0, version=version)
    assert (open_still.last_stable_offset, aborted(open_still)) == (2, [(one.producer_id, 0)])
    assert read(open_still) == []
    three.produce(topic)
    two.end(commit=True)
    three.end(commit=False)
    topic.append(1)
    everything: list[int] = []
    offset = 0
    while offset < 10:
        (part,) = fetch_partitions(broker, topic, 0, version=version, offset=offset)
        assert (part.high_watermark, part.last_stable_offset) == (10, 10)
        headers = batches(part)
        names = aborted(part)
        assert names is not None
        # Kafka names every transaction that ends behind the beginning and begins before the end of what is returned.
        assert ((one.producer_id, 0) in names) == (offset <= 5)
        everything += [number for number in read(part) if number >= offset]
        offset = headers[-1][0] + max(1, headers[-1][2])
    assert everything == [2, 3, 9]


@pytest.mark.parametrize("version", WITH_ISOLATION)
def test_several_partitions(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(3)
    aborts, commits = TransactionalProducer(broker), TransactionalProducer(broker)
    for index in (0, 1):
        aborts.produce(topic, index)
    for index in (1, 2):
        commits.produce(topic, index)
    commits.end(commit=True)
    aborts.end(commit=False)
    parts = {part.partition_index: part for part in fetch_partitions(broker, topic, 0, 1, 2, version=version)}
    assert {index: aborted(part) for index, part in parts.items()} == {
        0: [(aborts.producer_id, 0)],
        1: [(aborts.producer_id, 0)],
        2: [],
    }
    assert {index: part.last_stable_offset for index, part in parts.items()} == {0: 2, 1: 4, 2: 2}


@pytest.mark.parametrize("version", [version for version in WITH_ISOLATION if version >= 7])
def test_within_a_session(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    """A session tells of partitions that have news: records, offsets that moved."""
    topic = make_topic(2)
    producer = TransactionalProducer(broker)
    request: dict[str, Any] = {"session_id": 0, "session_epoch": 0}
    first = send(broker, topic, version, (0, 1), **request)
    session = first.session_id
    assert session != 0
    producer.produce(topic, 0)
    news = send(broker, topic, version, (), session_id=session, session_epoch=1)
    (part,) = partitions(news)
    assert (part.partition_index, part.high_watermark, part.last_stable_offset) == (0, 1, 0)
    assert batches(part) == []
    assert partitions(send(broker, topic, version, (), session_id=session, session_epoch=2)) == []
    producer.end(commit=False)
    (part,) = partitions(send(broker, topic, version, (), session_id=session, session_epoch=3))
    assert (part.partition_index, part.last_stable_offset) == (0, 2)
    assert (batches(part)[0], aborted(part)) == ((0, False, 1), [(producer.producer_id, 0)])
    assert read(part) == []


def send(broker: Wire, topic: Topic, version: int, indexes: tuple[int, ...], **fields: Any) -> Any:
    fetch_topic = FetchTopic(
        partitions=[FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in indexes]
    )
    if version >= 13:
        fetch_topic.topic_id = topic.id
    else:
        fetch_topic.topic = topic.name
    body: dict[str, Any] = {"max_wait_ms": 50, "min_bytes": 1, "isolation_level": 1}
    if version < 15:
        body["replica_id"] = -1
    return broker.send(FetchRequest(topics=[fetch_topic] if indexes else [], **(body | fields)), version)


def partitions(response: Any) -> list[Any]:
    return [partition for topic in response.responses for partition in topic.partitions]


@pytest.mark.parametrize("version", [4, 12, 18])
def test_a_fetch_that_waits_is_answered_when_the_transaction_ends(broker: Wire, topic: Topic, version: int) -> None:
    producer = TransactionalProducer(broker)
    producer.produce(topic)
    fetch_topic = FetchTopic(partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)])
    if version >= 13:
        fetch_topic.topic_id = topic.id
    else:
        fetch_topic.topic = topic.name
    body: dict[str, Any] = {"max_wait_ms": 20_000, "min_bytes": 1, "isolation_level": 1, "topics": [fetch_topic]}
    if version < 15:
        body["replica_id"] = -1
    reader = broker.another()
    reader.send_only(FetchRequest(**body), version)
    producer.produce(topic)
    producer.end(commit=True)
    (part,) = partitions(reader.receive())
    assert read(part) == [0, 1]


@pytest.mark.parametrize("version", [2, 3])
def test_old_readers_see_everything(broker: Wire, topic: Topic, version: int) -> None:
    """They know neither markers nor transactions: records come as message sets, aborted ones too."""
    producer = TransactionalProducer(broker)
    producer.add(topic)  # as version 1 of transactions: Apache Kafka 3.9 is the judge
    producer.produce(topic, count=2, version=11)
    producer.end(commit=False, version=4)
    topic.append(1)
    (part,) = fetch_partitions(broker, topic, 0, version=version, committed=False)
    assert part.high_watermark == 4
    offsets = [message[0] for message in parsed(bytes(part.records))]
    assert offsets == [0, 1, 3]


def listed(broker: Wire, topic: Topic, version: int, timestamp: int, isolation: int) -> tuple[str, int]:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic.name, partitions=[part])]
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
    (row,) = broker.send(request, version).topics[0].partitions
    return name_of(row.error_code), row.offset


@pytest.mark.parametrize("version", [version for version in versions(ListOffsetsRequest) if version >= 2])
@pytest.mark.api(request=ListOffsetsRequest)
def test_offsets_of_readers_of_committed_data_end_at_the_last_stable_one(
    broker: Wire, topic: Topic, version: int
) -> None:
    early = 1_600_000_000_000
    topic.append(2, timestamp=early)
    producer = TransactionalProducer(broker)
    producer.produce(topic)
    topic.append(1, timestamp=early + 10)
    for isolation, latest in ((0, 4), (1, 2)):
        assert listed(broker, topic, version, -1, isolation) == ("NONE", latest)
        assert listed(broker, topic, version, -2, isolation) == ("NONE", 0)
        assert listed(broker, topic, version, early + 1, isolation) == ("NONE", 1)
        assert listed(broker, topic, version, early + 5, isolation) == ("NONE", 2 if isolation == 0 else -1)
        if version >= 7:
            assert listed(broker, topic, version, -3, isolation) == ("NONE", 2 if isolation == 0 else -1)
    producer.end(commit=False)
    for isolation in (0, 1):
        assert listed(broker, topic, version, -1, isolation) == ("NONE", 5)
        assert listed(broker, topic, version, early + 5, isolation) == ("NONE", 2)
