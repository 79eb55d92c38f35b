"""CreatePartitions, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.records.batch import build
from ottla.records.record import Record

from .conftest import Topic, TopicFactory, Wire, versions
from .members import wait_for

API = CreatePartitionsRequest
ONE = build([Record(0, 1_700_000_000_000, b"k", b"v")])


def grow(
    wire: Wire,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    version: int = 3,
    times: int = 1,
    **fields: Any,
) -> tuple[str, str | None]:
    rows = (
        None if assignments is None else [CreatePartitionsAssignment(broker_ids=replicas) for replicas in assignments]
    )
    topic = CreatePartitionsTopic(name=name, count=count, assignments=rows)
    request = CreatePartitionsRequest(topics=[topic] * times, timeout_ms=10_000, **fields)
    (result,) = wire.send(request, version).results
    assert result.name == name
    return name_of(result.error_code), result.error_message


def partitions(topic: Topic) -> list[Any]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=False)
    return sorted(
        topic.wire.send(request, 12).topics[0].partitions, key=lambda partition: int(partition.partition_index)
    )


@pytest.mark.parametrize("version", versions(API))
def test_more_partitions(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(2)
    topic.append(3)
    assert grow(broker, topic.name, 4, version=version) == ("NONE", None)
    wait_for(lambda: [part.leader_id >= 0 for part in partitions(topic)] == [True] * 4)
    node = partitions(topic)[0].leader_id
    assert [part.replica_nodes for part in partitions(topic)] == [[node]] * 4
    wait_for(lambda: topic.produce(ONE, partition=3).error_code == NONE)
    assert topic.append(2, partition=3) == 1
    assert topic.append(1) == 3


def test_counts_that_are_no_increase(broker: Wire, make_topic: TopicFactory) -> None:
    name = make_topic(3).name
    assert grow(broker, name, 3) == ("INVALID_PARTITIONS", "Topic already has 3 partition(s).")
    for count in (2, 0, -1):
        text = f"The topic {name} currently has 3 partition(s); {count} would not be an increase."
        assert grow(broker, name, count) == ("INVALID_PARTITIONS", text)
    text = "Excessively large number of additional partitions per request."
    assert grow(broker, name, 10_004) == ("POLICY_VIOLATION", text)


def test_partitions_that_a_request_adds_are_counted_together(broker: Wire, make_topic: TopicFactory) -> None:
    first, second = make_topic(1).name, make_topic(1).name
    for counts, code in (((5_001, 5_001), "NONE"), ((5_001, 5_002), "POLICY_VIOLATION")):
        rows = [
            CreatePartitionsTopic(name=name, count=count, assignments=None)
            for name, count in zip((first, second), counts, strict=True)
        ]
        rows.append(CreatePartitionsTopic(name="no-such-topic", count=5, assignments=None))
        answer = broker.send(CreatePartitionsRequest(topics=rows, timeout_ms=10_000, validate_only=True), 3)
        codes = [name_of(row.error_code) for row in answer.results]
        assert codes == ([code, code, "UNKNOWN_TOPIC_OR_PARTITION"] if code == "NONE" else [code] * 3)


def test_topics_that_are_not_there(broker: Wire) -> None:
    for name in ("no-such-topic", ""):
        assert grow(broker, name, 3) == ("UNKNOWN_TOPIC_OR_PARTITION", None)


def test_a_topic_named_twice(broker: Wire, topic: Topic) -> None:
    assert grow(broker, topic.name, 2, times=2) == ("INVALID_REQUEST", "Duplicate topic name.")


def test_assignments(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(2)
    node = partitions(topic)[0].leader_id
    assert grow(broker, topic.name, 3, [[node]]) == ("NONE", None)
    text = "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified."
    assert grow(broker, topic.name, 4, [[node], [node]]) == ("INVALID_REPLICA_ASSIGNMENT", text)
    for replicas, text in (
        ([77], "The manual partition assignment includes broker 77, but no such broker is registered."),
        ([], "The manual partition assignment includes an empty replica list."),
        ([node, node], f"The manual partition assignment includes the broker {node} more than once."),
    ):
        assert grow(broker, topic.name, 4, [replicas]) == ("INVALID_REPLICA_ASSIGNMENT", text)


def test_validate_only_makes_nothing(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(1)
    assert grow(broker, topic.name, 2, validate_only=True) == ("NONE", None)
    assert len(partitions(topic)) == 1
    assert grow(broker, topic.name, 1, validate_only=True)[0] == "INVALID_PARTITIONS"
