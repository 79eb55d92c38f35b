"""DescribeLogDirs, over a socket."""

from typing import Any

import pytest

from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.records.batch import build
from ottla.records.record import Record

from .conftest import TopicFactory, Wire, versions

API = DescribeLogDirsRequest


def described(wire: Wire, version: int, wanted: dict[str, list[int]] | None) -> list[Any]:
    topics = None
    if wanted is not None:
        topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in wanted.items()]
    answer = wire.send(DescribeLogDirsRequest(topics=topics), version)
    assert answer.error_code == 0
    return list(answer.results)


@pytest.mark.parametrize("version", versions(API))
def test_partitions_and_room(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(2)
    batch = build([Record(0, 1, b"k", b"v" * 100)])
    topic.produce(batch)
    topic.produce(batch)
    (found,) = described(broker, version, {topic.name: [0, 1, 99], "no-such-topic": [0]})
    assert (found.error_code, found.log_dir.startswith("/"), found.is_cordoned) == (0, True, False)
    assert [each.name for each in found.topics] == [topic.name]
    sizes = {part.partition_index: part.partition_size for part in found.topics[0].partitions}
    assert sizes == {0: 2 * len(batch), 1: 0}
    assert {(part.offset_lag, part.is_future_key) for part in found.topics[0].partitions} == {(0, False)}
    if version >= 4:
        assert found.total_bytes > found.usable_bytes > 0
    else:
        assert (found.total_bytes, found.usable_bytes) == (-1, -1)


@pytest.mark.parametrize("version", versions(API))
def test_null_is_everything_and_none_is_nothing(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    names = {make_topic().name for _ in range(2)}
    (found,) = described(broker, version, None)
    assert names <= {each.name for each in found.topics}
    (nothing,) = described(broker, version, {})
    assert nothing.topics == []


def test_what_is_not_here_and_what_is_asked_twice(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(3)
    wanted = [(topic.name, [0, 0, 9, -1]), (topic.name, [2]), (topic.name, []), ("a b", [0]), ("", [0])]
    topics = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in wanted]
    (found,) = broker.send(DescribeLogDirsRequest(topics=topics), 4).results
    (rows,) = found.topics
    assert (rows.name, sorted(part.partition_index for part in rows.partitions)) == (topic.name, [0, 2])
