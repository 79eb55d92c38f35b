"""Requests that change topics, with a timeout of 0 or below: they have timed out when they come, and change nothing."""

import uuid
from typing import Any

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

from .conftest import Topic, Wire, versions

TIMED_OUT = "REQUEST_TIMED_OUT"
timeouts = pytest.mark.parametrize("timeout_ms", [0, -1])


def described(wire: Wire, name: str) -> tuple[str, int]:
    """Return the error of a topic in Metadata, and its number of partitions."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (row,) = wire.send(request, 12).topics
    return name_of(row.error_code), len(row.partitions)


def errors(rows: list[Any]) -> list[tuple[str | None, str, str | None]]:
    return [(row.name, name_of(row.error_code), row.error_message) for row in rows]


def create(wire: Wire, version: int, timeout_ms: int, *names: str, **fields: bool) -> Any:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return errors(wire.send(CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, **fields), version).topics)


@timeouts
@pytest.mark.api(request=CreateTopicsRequest)
@pytest.mark.parametrize("version", versions(CreateTopicsRequest))
def test_create_topics(broker: Wire, topic: Topic, version: int, timeout_ms: int) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    no_message = None if version else ""  # version 0 has no messages

    def timed_out(*names: str) -> list[tuple[str, str, str | None]]:
        return [(topic_name, TIMED_OUT, no_message) for topic_name in names]

    names = name, topic.name, "not valid"
    assert create(broker, version, timeout_ms, *names) == timed_out(*names)
    assert described(broker, name) == ("UNKNOWN_TOPIC_OR_PARTITION", 0)
    twice = [(name, "INVALID_REQUEST", "Duplicate topic name." if version else "")]
    assert create(broker, version, timeout_ms, name, name) == twice
    assert create(broker, version, timeout_ms, name, name, topic.name) == timed_out(name, name, topic.name)
    assert create(broker, version, timeout_ms) == []
    if version:
        assert create(broker, version, timeout_ms, name, validate_only=True) == timed_out(name)


@timeouts
@pytest.mark.api(request=DeleteTopicsRequest)
@pytest.mark.parametrize("version", versions(DeleteTopicsRequest))
def test_delete_topics(broker: Wire, topic: Topic, version: int, timeout_ms: int) -> None:
    def delete(*names: str) -> Any:
        request = DeleteTopicsRequest(timeout_ms=timeout_ms)
        if version >= 6:
            request.topics = [DeleteTopicState(name=name) for name in names]
        else:
            request.topic_names = list(names)
        return errors(broker.send(request, version).responses)

    assert delete(topic.name, "nowhere") == [(topic.name, TIMED_OUT, None), ("nowhere", TIMED_OUT, None)]
    twice = [(topic.name, "INVALID_REQUEST", "Duplicate topic name." if version >= 5 else None)]
    assert delete(topic.name, topic.name) == twice
    assert delete(topic.name, topic.name, "nowhere") == [
        (name, TIMED_OUT, None) for name in (topic.name, topic.name, "nowhere")
    ]
    assert delete() == []
    assert described(broker, topic.name) == ("NONE", 1)


@timeouts
def test_delete_topics_by_id(broker: Wire, topic: Topic, timeout_ms: int) -> None:
    states = [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in (topic.id, uuid.uuid4().bytes)]
    rows = broker.send(DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms), 6).responses
    assert errors(rows) == [(None, TIMED_OUT, None)] * 2
    assert [row.topic_id for row in rows] == [state.topic_id for state in states]
    assert described(broker, topic.name) == ("NONE", 1)


@timeouts
@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.api(request=CreatePartitionsRequest)
@pytest.mark.parametrize("version", versions(CreatePartitionsRequest))
def test_create_partitions(broker: Wire, topic: Topic, version: int, validate_only: bool, timeout_ms: int) -> None:
    def grow(*names: str) -> Any:
        topics = [CreatePartitionsTopic(name=name, count=3) for name in names]
        request = CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=validate_only)
        return errors(broker.send(request, version).results)

    assert grow(topic.name, "nowhere") == [(topic.name, TIMED_OUT, None), ("nowhere", TIMED_OUT, None)]
    assert grow(topic.name, topic.name) == [(topic.name, "INVALID_REQUEST", "Duplicate topic name.")]
    assert grow() == []
    assert described(broker, topic.name) == ("NONE", 1)


@timeouts
@pytest.mark.api(request=ElectLeadersRequest)
@pytest.mark.parametrize("version", versions(ElectLeadersRequest))
def test_elect_leaders(broker: Wire, topic: Topic, version: int, timeout_ms: int) -> None:
    def elect(topics: list[TopicPartitions] | None, election_type: int = 0) -> Any:
        request = ElectLeadersRequest(
            topic_partitions=topics, election_type=election_type if version else 0, timeout_ms=timeout_ms
        )
        answer = broker.send(request, version)
        rows = [
            (of_topic.topic, row.partition_id, name_of(row.error_code), row.error_message)
            for of_topic in answer.replica_election_results
            for row in of_topic.partition_result
        ]
        return name_of(answer.error_code), rows

    whole = TIMED_OUT if version else "NONE"
    topics = [TopicPartitions(topic=topic.name, partitions=[0, 9]), TopicPartitions(topic="nowhere", partitions=[0])]
    rows = [(name, index, TIMED_OUT, None) for name, index in ((topic.name, 0), (topic.name, 9), ("nowhere", 0))]
    assert elect(topics) == (whole, rows)
    assert elect(topics, 7) == (whole, rows)
    assert elect(None) == (whole, [])
    assert elect(None, 7) == (whole, [])
    assert elect([]) == ("NONE", [])


@timeouts
@pytest.mark.api(request=AlterPartitionReassignmentsRequest)
@pytest.mark.parametrize("version", versions(AlterPartitionReassignmentsRequest))
def test_alter_partition_reassignments(broker: Wire, topic: Topic, version: int, timeout_ms: int) -> None:
    def alter(*topics: ReassignableTopic) -> Any:
        answer = broker.send(AlterPartitionReassignmentsRequest(topics=list(topics), timeout_ms=timeout_ms), version)
        rows = [
            (of_topic.name, row.partition_index, name_of(row.error_code), row.error_message)
            for of_topic in answer.responses
            for row in of_topic.partitions
        ]
        return name_of(answer.error_code), rows

    cancelled = [ReassignablePartition(partition_index=index, replicas=None) for index in (0, 9)]
    assert alter(ReassignableTopic(name=topic.name, partitions=cancelled)) == (
        TIMED_OUT,
        [(topic.name, index, TIMED_OUT, None) for index in (0, 9)],
    )
    assert alter(ReassignableTopic(name=topic.name, partitions=[])) == (TIMED_OUT, [])
    assert alter() == ("NONE", [])
