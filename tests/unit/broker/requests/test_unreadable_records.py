"""Records that cannot be parsed, and the limits of a fetch: what a consumer is answered."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.conftest import Topic, TopicFactory, Wire

from ottla.protocol.errors import CORRUPT_MESSAGE, NONE
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.records.batch import build, scan
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"fetch.max.bytes": "1024"}, data_dir=tmp_path) as broker:
        yield broker


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Iterator[Topic]:
    wire = Wire(broker.address, is_kafka=False)
    yield TopicFactory(wire)(name="t")
    wire.close()


def fetch(topic: Topic, offset: int, *, max_bytes: int = 1 << 20, min_bytes: int = 1) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=20_000,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic.name, partitions=[partition])],
    )
    return topic.wire.send(request, 11).responses[0].partitions[0]


def zero_batch(directory: Path, number: int) -> int:
    """Overwrite a batch by zeros; return its position."""
    path = directory / "t-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    header = scan(bytes(data)).batches[number]
    with path.open("r+b") as file:
        file.seek(header.start)
        file.write(bytes(header.size))
    return header.start


@pytest.mark.parametrize("restart", [False, True], ids=["running", "restarted"])
def test_zeroed_batch_is_answered_with_corrupt_message_and_logged_once(
    broker: EmbeddedBroker, topic: Topic, tmp_path: Path, caplog: pytest.LogCaptureFixture, restart: bool
) -> None:
    """Apache Kafka 4.4 answers so for the offset of the batch; a read from before it is sent up to its limit."""
    for _ in range(60):
        assert topic.produce(build([Record(0, 1_700_000_000_000, None, bytes(100))])).error_code == NONE
    if restart:
        broker._end(lambda server: server.stop())
    position = zero_batch(tmp_path, 20)
    if restart:
        broker._start_broker()
        topic.wire.close()
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            row = fetch(topic, 20)
            assert (row.error_code, row.records or b"") == (CORRUPT_MESSAGE, b"")
    lines = [line for line in caplog.messages if f"00000000000000000000.log at position {position}" in line]
    assert len(lines) == 1
    row = fetch(topic, 18, max_bytes=200)
    assert row.error_code == NONE
    assert [header.base_offset for header in scan(row.records).batches] == [18]
    partition = ListOffsetsPartition(partition_index=0, timestamp=1_800_000_000_000)
    listed = topic.wire.send(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])]), 7
    )
    assert (listed.topics[0].partitions[0].error_code, listed.topics[0].partitions[0].offset) == (NONE, -1)


def test_response_is_limited_by_fetch_max_bytes_of_the_broker(topic: Topic) -> None:
    for _ in range(5):
        assert topic.produce(build([Record(0, 1_700_000_000_000, None, bytes(400))])).error_code == NONE
    row = fetch(topic, 0)
    assert [header.base_offset for header in scan(row.records).batches] == [0, 1]


def test_fetch_for_more_bytes_than_the_broker_sends_does_not_wait(topic: Topic) -> None:
    """Apache Kafka lowers min_bytes to the limit, too."""
    for _ in range(5):
        topic.produce(build([Record(0, 1_700_000_000_000, None, bytes(400))]))
    topic.wire.socket().settimeout(10)
    assert fetch(topic, 0, min_bytes=2_000).error_code == NONE
