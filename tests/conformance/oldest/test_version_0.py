"""Version 0 of the oldest APIs, which Apache Kafka 0.8.2, 0.9.0 and 0.10.2 judge: newer releases refuse some of them.

    tests/conformance/oldest --broker HOST:PORT --kafka-version 0.8.2.2

Where the three differ, Ottla follows the oldest, whose clients can send nothing newer; docs/differences.md has a row then.
"""

import time
import uuid
from typing import Any, Final

import pytest

from ottla.protocol.errors import (
    INVALID_REQUIRED_ACKS,
    LEADER_NOT_AVAILABLE,
    NONE,
    OFFSET_OUT_OF_RANGE,
    REQUEST_TIMED_OUT,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.conformance.conftest import Wire
from tests.conformance.message_sets import message

SETTLED_S: Final = 20


@pytest.fixture
def release(request: pytest.FixtureRequest) -> str:
    """Release of the Apache Kafka under test, "" for Ottla."""
    return str(request.config.getoption("--kafka-version")) if request.config.getoption("--broker") else ""


@pytest.fixture(autouse=True)
def _only_old_releases(request: pytest.FixtureRequest, release: str) -> None:
    if release and not release.startswith("0."):
        pytest.skip("newer releases are no judges of version 0")


def described(broker: Wire, name: str) -> Any:
    return broker.send(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 0).topics[0]


@pytest.fixture
def name(broker: Wire) -> str:
    """A topic of one partition, which a request for its metadata has created."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    deadline = time.monotonic() + SETTLED_S
    while time.monotonic() < deadline:
        topic = described(broker, name)
        if topic.error_code == NONE and topic.partitions and listed(broker, name).error_code == NONE:
            return name
        time.sleep(0.05)
    raise AssertionError(f"{name} has no leader")


def produce(broker: Wire, name: str, *, acks: int = 1, partition: int = 0) -> Any:
    data = PartitionProduceData(index=partition, records=message(0, b"k", b"v", 0))
    topic = TopicProduceData(name=name, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=2_000, topic_data=[topic])
    return broker.send(request, 0).responses[0].partition_responses[0]


def listed(broker: Wire, name: str, timestamp: int = -1, count: int = 10, partition: int = 0) -> Any:
    row = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, max_num_offsets=count)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[row])])
    return broker.send(request, 0).topics[0].partitions[0]


def fetched(broker: Wire, name: str, offset: int, partition: int = 0) -> Any:
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=10, min_bytes=0, topics=[FetchTopic(topic=name, partitions=[row])])
    return broker.send(request, 0).responses[0].partitions[0]


def commit(broker: Wire, group: str, name: str, offset: int, metadata: str = "m", partition: int = 0) -> int:
    place = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=name, partitions=[place])])
    return int(broker.send(request, 0).topics[0].partitions[0].error_code)


def committed(broker: Wire, group: str, name: str, partition: int = 0) -> tuple[int, int, str]:
    """Error, offset and metadata."""
    topic = OffsetFetchRequestTopic(name=name, partition_indexes=[partition])
    row = broker.send(OffsetFetchRequest(group_id=group, topics=[topic]), 0).topics[0].partitions[0]
    return row.error_code, row.committed_offset, row.metadata


def test_topic_that_is_being_created_has_no_leader(broker: Wire, release: str) -> None:
    """Ottla creates it first, so that it has its leader; Kafka from 1.0 on answers UNKNOWN_TOPIC_OR_PARTITION."""
    topic = described(broker, f"t-{uuid.uuid4().hex[:12]}")
    if release:
        assert (topic.error_code, topic.partitions) == (LEADER_NOT_AVAILABLE, [])
    else:
        assert topic.error_code in (NONE, UNKNOWN_TOPIC_OR_PARTITION)


def test_produce_and_fetch(broker: Wire, name: str) -> None:
    assert [(row.error_code, row.base_offset) for row in (produce(broker, name), produce(broker, name))] == [
        (NONE, 0),
        (NONE, 1),
    ]
    row = fetched(broker, name, 0)
    assert (row.error_code, row.high_watermark) == (NONE, 2)
    assert len(row.records) == 2 * len(message(0, b"k", b"v", 0))
    assert fetched(broker, name, 2).records in (b"", None)
    assert fetched(broker, name, 3).error_code == OFFSET_OUT_OF_RANGE


def test_partition_that_does_not_exist(broker: Wire, name: str) -> None:
    assert produce(broker, name, partition=7).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert fetched(broker, name, 0, partition=7).error_code == UNKNOWN_TOPIC_OR_PARTITION
    assert listed(broker, name, partition=7).error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_acks_of_two(broker: Wire, name: str, release: str) -> None:
    """Kafka 0.8 appends, and waits for two replicas until the timeout even where the partition has one; Ottla waits for those
    that are in sync. Later releases refuse the request.
    """
    code = produce(broker, name, acks=2).error_code
    is_appended = not release or release.startswith("0.8")
    assert code == (INVALID_REQUIRED_ACKS if not is_appended else REQUEST_TIMED_OUT if release else NONE)
    assert listed(broker, name).old_style_offsets[0] == is_appended


@pytest.mark.parametrize(("timestamp", "offsets"), [(-1, [3, 0]), (-2, [0])])
def test_offsets_of_segments(broker: Wire, name: str, timestamp: int, offsets: list[int]) -> None:
    for _ in range(3):
        produce(broker, name)
    row = listed(broker, name, timestamp)
    assert (row.error_code, row.old_style_offsets) == (NONE, offsets)
    assert listed(broker, name, timestamp, 1).old_style_offsets == offsets[:1]
    assert listed(broker, name, timestamp, 0).old_style_offsets == []


@pytest.mark.parametrize("timestamp", [-1, -2, 0])
def test_negative_number_of_offsets_is_an_error(broker: Wire, name: str, timestamp: int) -> None:
    produce(broker, name)
    row = listed(broker, name, timestamp, -1)
    assert (row.error_code, row.old_style_offsets) == (UNKNOWN_SERVER_ERROR, [])


def test_committed_offset_is_returned_without_its_metadata(broker: Wire, name: str) -> None:
    group = f"g-{name}"
    assert commit(broker, group, name, 7) == NONE
    assert committed(broker, group, name) == (NONE, 7, "")


def test_offset_that_was_never_committed(broker: Wire, name: str) -> None:
    assert committed(broker, f"g-{name}", name) == (UNKNOWN_TOPIC_OR_PARTITION, -1, "")


def test_offset_of_a_partition_or_topic_that_does_not_exist(broker: Wire, name: str) -> None:
    assert committed(broker, f"g-{name}", name, 7) == (UNKNOWN_TOPIC_OR_PARTITION, -1, "")
    assert committed(broker, f"g-{name}", "no-such-topic") == (UNKNOWN_TOPIC_OR_PARTITION, -1, "")


def test_commit_for_a_topic_that_does_not_exist(broker: Wire, name: str) -> None:
    assert commit(broker, f"g-{name}", f"no-{name}", 1) == UNKNOWN_TOPIC_OR_PARTITION
