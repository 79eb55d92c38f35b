"""Requests with very many rows are answered like those with few: in the order of the request, each row by itself."""

import uuid
from collections import Counter
from typing import Any

import pytest

from ottla.protocol.errors import INVALID_REQUEST, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record

from .conftest import TopicFactory, Wire

MANY = 1203
ONE = build([Record(0, 1_700_000_000_000, None, b"v")])


def names(count: int = MANY) -> list[str]:
    prefix = uuid.uuid4().hex[:8]
    return [f"{prefix}-{number}" for number in range(count)]


def group_that_is_served(broker: Wire) -> str:
    group = uuid.uuid4().hex
    for _ in range(1000):
        coordinator = broker.send(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4).coordinators[0]
        if coordinator.error_code == NONE:
            break
    for _ in range(1000):
        if broker.send(DescribeGroupsRequest(groups=[group]), 5).groups[0].error_code == NONE:
            return group
    raise AssertionError("the coordinator does not load")


def test_produce_to_many_partitions_of_a_topic_and_to_many_topics(broker: Wire, make_topic: TopicFactory) -> None:
    topic, unknown = make_topic(3), names(600)
    rows = [PartitionProduceData(index=index, records=ONE) for index in range(1100)]
    topics = [TopicProduceData(name=topic.name, partition_data=rows)]
    topics += [TopicProduceData(name=name, partition_data=rows[:1]) for name in unknown]
    answer = broker.send(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
    by_topic: dict[str, list[Any]] = {row.name: row.partition_responses for row in answer.responses}
    assert sorted(by_topic) == sorted([topic.name, *unknown])
    assert sorted(row.index for row in by_topic[topic.name]) == list(range(1100))
    written = {row.index: row.base_offset for row in by_topic[topic.name] if row.error_code == NONE}
    assert written == {0: 0, 1: 0, 2: 0}
    assert Counter(row.error_code for rows in by_topic.values() for row in rows) == {
        NONE: 3,
        UNKNOWN_TOPIC_OR_PARTITION: 1097 + 600,
    }


@pytest.mark.parametrize("list_version", [1, 5, 7])
def test_list_offsets(broker: Wire, make_topic: TopicFactory, list_version: int) -> None:
    topic, unknown = make_topic(2), names(700)
    topic.append(4)
    asked = [ListOffsetsTopic(name=topic.name, partitions=[_latest(index) for index in range(MANY)])]
    asked += [ListOffsetsTopic(name=name, partitions=[_latest(0)]) for name in unknown]
    answer = broker.send(ListOffsetsRequest(replica_id=-1, topics=asked), list_version)
    by_topic = {row.name: row.partitions for row in answer.topics}
    assert sorted(by_topic) == sorted([topic.name, *unknown])
    assert sorted(row.partition_index for row in by_topic[topic.name]) == list(range(MANY))
    offsets = {row.partition_index: row.offset for row in by_topic[topic.name] if row.error_code == NONE}
    assert offsets == {0: 4, 1: 0}


def _latest(index: int) -> ListOffsetsPartition:
    return ListOffsetsPartition(partition_index=index, timestamp=-1)


def test_metadata_and_groups_in_the_order_of_the_request(broker: Wire) -> None:
    asked = names()
    topics = [MetadataRequestTopic(name=name) for name in asked]
    answer = broker.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
    assert {row.name: row.error_code for row in answer.topics} == dict.fromkeys(asked, UNKNOWN_TOPIC_OR_PARTITION)
    assert len(answer.brokers) == 1
    group_that_is_served(broker)
    described = broker.send(DescribeGroupsRequest(groups=asked), 5).groups
    assert sorted((row.group_id, row.group_state) for row in described) == sorted((name, "Dead") for name in asked)
    coordinators = broker.send(FindCoordinatorRequest(key_type=0, coordinator_keys=asked), 4).coordinators
    assert [row.key for row in coordinators] == asked


def test_commit_and_fetch_offsets(broker: Wire, make_topic: TopicFactory) -> None:
    group, topic, unknown = group_that_is_served(broker), make_topic(2), names(600)
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=7) for index in range(MANY)]
    topics = [OffsetCommitRequestTopic(name=topic.name, partitions=partitions)]
    topics += [OffsetCommitRequestTopic(name=name, partitions=partitions[:1]) for name in unknown]
    answer = broker.send(OffsetCommitRequest(group_id=group, topics=topics), 8)
    codes = {(row.name, one.partition_index): one.error_code for row in answer.topics for one in row.partitions}
    assert len(codes) == MANY + 600
    assert [place for place, code in codes.items() if code == NONE] == [(topic.name, 0), (topic.name, 1)]
    asked = [OffsetFetchRequestTopics(name=topic.name, partition_indexes=list(range(MANY)))]
    asked += [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in unknown]
    groups = [OffsetFetchRequestGroup(group_id=group, topics=asked)]
    groups += [OffsetFetchRequestGroup(group_id=f"{group}-{number}", topics=asked[:2]) for number in range(3)]
    answer = broker.send(OffsetFetchRequest(groups=groups), 8)
    assert [row.group_id for row in answer.groups] == [one.group_id for one in groups]
    offsets = {
        (one.group_id, row.name, part.partition_index): part.committed_offset
        for one in answer.groups
        for row in one.topics
        for part in row.partitions
    }
    assert len(offsets) == MANY + 600 + 3 * (MANY + 1)
    assert {place: offset for place, offset in offsets.items() if offset >= 0} == {
        (group, topic.name, 0): 7,
        (group, topic.name, 1): 7,
    }


@pytest.mark.parametrize("fetch_version", [4, 12])
@pytest.mark.parametrize("min_bytes", [0, 1 << 20])
def test_fetch(broker: Wire, make_topic: TopicFactory, fetch_version: int, min_bytes: int) -> None:
    topic, unknown = make_topic(2), names(700)
    topic.append(4)
    partitions = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(MANY)]
    asked = [FetchTopic(topic=topic.name, partitions=partitions)]
    asked += [FetchTopic(topic=name, partitions=partitions[:1]) for name in unknown]
    request = FetchRequest(
        replica_id=-1, max_wait_ms=300, min_bytes=min_bytes, max_bytes=1 << 22, session_epoch=-1, topics=asked
    )
    answer = broker.send(request, fetch_version)
    rows = [(row.topic, one) for row in answer.responses for one in row.partitions]
    assert len(rows) == MANY + 700
    assert {(name, one.partition_index): len(one.records) > 0 for name, one in rows if one.error_code == NONE} == {
        (topic.name, 0): True,
        (topic.name, 1): False,
    }


def test_what_must_be_unique_is_checked_among_the_rows_of_a_part(
    broker: Wire, make_topic: TopicFactory, ottla_only: None
) -> None:
    """Apache Kafka refuses a partition that a request has twice wherever its rows are."""
    topic = make_topic(1)
    near = [_latest(0), _latest(0), *(_latest(index) for index in range(1, MANY))]
    far = [_latest(0), *(_latest(index) for index in range(1, MANY)), _latest(0)]
    codes = []
    for partitions in (near, far):
        asked = [ListOffsetsTopic(name=topic.name, partitions=partitions)]
        answer = broker.send(ListOffsetsRequest(replica_id=-1, topics=asked), 7)
        codes.append([one.error_code for one in answer.topics[0].partitions if one.partition_index == 0])
    assert codes == [[INVALID_REQUEST], [NONE, NONE]]


def test_only_the_first_part_of_a_request_creates_topics(broker: Wire, ottla_only: None) -> None:
    asked = names()
    topics = [MetadataRequestTopic(name=name) for name in asked]
    broker.send(MetadataRequest(topics=topics, allow_auto_topic_creation=True), 9)
    created = {row.name for row in broker.send(MetadataRequest(topics=None), 9).topics}
    assert 0 < len(created & set(asked[:500])) <= 100
    assert not created & set(asked[500:])
