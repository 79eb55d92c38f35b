"""DeleteRecords, over a socket."""

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

from .conftest import Topic, TopicFactory, Wire, versions
from .members import new_group
from .test_fetch import fetch

API = DeleteRecordsRequest


def delete(wire: Wire, topic: str, *offsets: tuple[int, int], version: int = 2) -> list[tuple[int, int, str]]:
    """(partition, low watermark, error) of each partition."""
    parts = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in offsets]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=parts)], timeout_ms=5000)
    (result,) = wire.send(request, version).topics
    assert result.name == topic
    return [(part.partition_index, part.low_watermark, name_of(part.error_code)) for part in result.partitions]


def earliest(topic: Topic) -> int:
    query = ListOffsetsTopic(name=topic.name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-2)])
    answer = topic.wire.send(ListOffsetsRequest(replica_id=-1, topics=[query]), 5)
    return int(answer.topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", versions(API))
def test_nothing_below_can_be_read(broker: Wire, topic: Topic, version: int) -> None:
    topic.append(5)
    topic.append(5)
    assert delete(broker, topic.name, (0, 3), version=version) == [(0, 3, "NONE")]
    assert earliest(topic) == 3
    assert name_of(fetch(topic, 2, 11).error_code) == "OFFSET_OUT_OF_RANGE"
    assert (fetch(topic, 3, 11).error_code, fetch(topic, 3, 11).log_start_offset) == (0, 3)
    assert delete(broker, topic.name, (0, 2), version=version) == [(0, 3, "NONE")]
    assert delete(broker, topic.name, (0, -1), version=version) == [(0, 10, "NONE")]
    assert earliest(topic) == 10
    assert topic.append(1) == 10


def test_an_empty_partition(broker: Wire, topic: Topic) -> None:
    assert delete(broker, topic.name, (0, -1)) == [(0, 0, "NONE")]
    assert delete(broker, topic.name, (0, 0)) == [(0, 0, "NONE")]


def test_offsets_out_of_range(broker: Wire, topic: Topic) -> None:
    topic.append(5)
    for offset in (6, 1 << 40, -2):
        assert delete(broker, topic.name, (0, offset)) == [(0, -1, "OFFSET_OUT_OF_RANGE")], offset


def test_the_last_row_of_a_partition_named_twice_counts(broker: Wire, topic: Topic) -> None:
    topic.append(5)
    assert delete(broker, topic.name, (0, 4), (0, 2)) == [(0, 2, "NONE")]


@pytest.mark.parametrize("codec", [0, 1], ids=["plain", "gzip"])
def test_deleted_records_are_not_found_by_time(broker: Wire, topic: Topic, codec: int) -> None:
    first = 1_700_000_000_000

    def offset_at(age: int) -> tuple[int, int]:
        partition = ListOffsetsPartition(partition_index=0, timestamp=first + age)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[partition])])
        row = broker.send(request, 7).topics[0].partitions[0]
        return row.offset, row.timestamp - first if row.timestamp >= 0 else -1

    for age in range(3):
        topic.append(1, timestamp=first + age, codec_id=codec)
    topic.append(4, timestamp=first + 10, codec_id=codec)
    assert [offset_at(age) for age in (-5, 1, 11)] == [(0, 0), (1, 1), (4, 11)]
    delete(broker, topic.name, (0, 2))
    assert [offset_at(age) for age in (-5, 1, 11)] == [(2, 2), (2, 2), (4, 11)]
    delete(broker, topic.name, (0, 5))  # within a batch
    assert [offset_at(age) for age in (-5, 1, 11, 13)] == [(5, 12), (5, 12), (5, 12), (6, 13)]
    delete(broker, topic.name, (0, -1))
    assert [offset_at(age) for age in (-5, 13)] == [(-1, -1), (-1, -1)]
    topic.append(1, timestamp=first + 5, codec_id=codec)
    assert [offset_at(age) for age in (-5, 5, 11)] == [(7, 5), (7, 5), (-1, -1)]


def test_compacted_internal_and_unknown_topics_are_refused(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic()
    assert delete(broker, topic.name, (9, 0)) == [(9, -1, "UNKNOWN_TOPIC_OR_PARTITION")]
    assert delete(broker, "no-such-topic", (0, 0)) == [(0, -1, "UNKNOWN_TOPIC_OR_PARTITION")]
    compacted = make_topic(cleanup_policy="compact")
    compacted.append(2)
    assert delete(broker, compacted.name, (0, 1)) == [(0, -1, "POLICY_VIOLATION")]
    kept = make_topic(cleanup_policy="")
    kept.append(2)
    assert delete(broker, kept.name, (0, 1)) == [(0, 1, "NONE")]
    new_group(broker)  # there is __consumer_offsets now
    assert delete(broker, "__consumer_offsets", (0, 0)) == [(0, -1, "INVALID_TOPIC_EXCEPTION")]


def test_no_topics(broker: Wire) -> None:
    assert broker.send(DeleteRecordsRequest(topics=[], timeout_ms=1000), 2).topics == []
