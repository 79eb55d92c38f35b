"""DescribeLogDirs, over a socket."""

from typing import Any

import pytest

from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.records.batch import build
from ottla.records.record import Record

from .conftest import TopicFactory, Wire, versions

API = DescribeLogDirsRequest


def described(wire: Wire, version: int, partitions: dict[str, list[int]] | None) -> list[Any]:
    topics = None
    if partitions is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in partitions.items()]
    answer = wire.send(DescribeLogDirsRequest(topics=topics), version)
    assert answer.error_code == 0
    return list(answer.results)


@pytest.mark.parametrize("version", versions(API))
def test_partitions_and_room(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(2)
    batch = build([Record(0, 1, b"k", b"v" * 100)])
    topic.produce(batch)
    topic.produce(batch)
    (directory,) = described(broker, version, {topic.name: [0, 1, 99], "no-such-topic": [0]})
    assert (directory.error_code, directory.log_dir.startswith("/"), directory.is_cordoned) == (0, True, False)
    assert [row.name for row in directory.topics] == [topic.name]
    sizes = {part.partition_index: part.partition_size for part in directory.topics[0].partitions}
    assert sizes == {0: 2 * len(batch), 1: 0}
    assert {(part.offset_lag, part.is_future_key) for part in directory.topics[0].partitions} == {(0, False)}
    if version >= 4:
        assert directory.total_bytes > directory.usable_bytes > 0
    else:
        assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)


@pytest.mark.parametrize("version", versions(API))
def test_null_selects_all_topics_and_an_empty_list_none(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    names = {make_topic().name for _ in range(2)}
    (directory,) = described(broker, version, None)
    assert names <= {row.name for row in directory.topics}
    (nothing,) = described(broker, version, {})
    assert nothing.topics == []


def test_unknown_partitions_are_left_out_and_repeated_ones_merged(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(3)
    selection = [(topic.name, [0, 0, 9, -1]), (topic.name, [2]), (topic.name, []), ("a b", [0]), ("", [0])]
    topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in selection]
    (directory,) = broker.send(DescribeLogDirsRequest(topics=topics), 4).results
    (rows,) = directory.topics
    assert (rows.name, sorted(part.partition_index for part in rows.partitions)) == (topic.name, [0, 2])
