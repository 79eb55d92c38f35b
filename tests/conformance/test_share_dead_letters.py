"""Dead letters (KIP-1191): what of rejected records, and of those delivered too often, comes to which topic."""

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.records.batch import build, records_of
from ottla.records.record import Record

from .conftest import Topic, TopicFactory, Wire
from .shares import ACCEPT, GAP, REJECT, RELEASE, ShareMember, configure, group_name, initialize, ranges, summary
from .transactions import fetch_partitions

SET: Final = 0
DELETE: Final = 1
TOPIC: Final = 2
BROKER: Final = 4
DYNAMIC_TOPIC: Final = 1
ENABLED: dict[str, Any] = {"errors_deadletterqueue_group_enable": "true"}
Letter = tuple[bytes | None, bytes | None, dict[str, str]]


def letters(wire: Wire, topic: Topic, count: int, partition: int = 0) -> list[Letter]:
    """Key, value and headers of the first records of a partition, once there are `count`."""
    deadline = time.monotonic() + 20
    while True:
        (answer,) = fetch_partitions(wire, topic, partition, committed=False)
        records = records_of(answer.records or b"")
        if len(records) >= count:
            return [
                (record.key, record.value, {name: (value or b"").decode() for name, value in record.headers})
                for record in records
            ]
        assert time.monotonic() < deadline, records


@pytest.fixture
def dead(make_topic: TopicFactory) -> Topic:
    return make_topic(2, name=f"dlq.{uuid.uuid4().hex[:12]}", **ENABLED)


def member_of(wire: Wire, topic: Topic, partitions: Sequence[int] = (0,), **configs: str) -> ShareMember:
    """A member of a group with these configs."""
    group = group_name()
    initialize(wire, group, topic, *partitions)
    configure(wire, group, **{f"errors_deadletterqueue_{name}": value for name, value in configs.items()})
    return ShareMember(wire, group)


def expected_headers(
    member: ShareMember, topic: Topic, offset: int, count: int, message: str, partition: int = 0
) -> dict[str, str]:
    return {
        "__dlq.errors.topic": topic.name,
        "__dlq.errors.partition": str(partition),
        "__dlq.errors.offset": str(offset),
        "__dlq.errors.group": member.group_id,
        "__dlq.errors.delivery.count": str(count),
        "__dlq.errors.message": message,
    }


def test_the_place_of_a_rejected_record_is_written_to_the_dead_letter_topic(
    broker: Wire, topic: Topic, dead: Topic
) -> None:
    member = member_of(broker, topic, topic_name=dead.name)
    topic.append(4)
    member.take(topic, 4)
    assert member.acknowledge(topic, (0, 3, [ACCEPT, REJECT, GAP, REJECT])) == "NONE"
    assert letters(broker, dead, 2) == [
        (None, None, expected_headers(member, topic, 1, 1, "Offset rejected by client.")),
        (None, None, expected_headers(member, topic, 3, 1, "Offset rejected by client.")),
    ]
    topic.append(1)
    assert member.take(topic, 1) == [(4, 4, 1)]
    assert member.acknowledge(topic, (4, 4, ACCEPT)) == "NONE"
    assert summary(broker, member.group_id, topic).delivery_complete_count >= 1


def test_a_record_is_copied_without_its_headers(broker: Wire, topic: Topic, dead: Topic) -> None:
    member = member_of(broker, topic, topic_name=dead.name, copy_record_enable="true")
    batch = build(
        [
            Record(0, 1_700_000_000_000, b"key", b"value", [("mine", b"1")]),
            Record(1, 1_700_000_000_000, None, None),
        ],
        codec=1,
    )
    assert topic.produce(batch).error_code == 0
    member.take(topic, 2)
    assert member.acknowledge(topic, (0, 1, REJECT)) == "NONE"
    assert letters(broker, dead, 2) == [
        (b"key", b"value", expected_headers(member, topic, 0, 1, "Offset rejected by client.")),
        (None, None, expected_headers(member, topic, 1, 1, "Offset rejected by client.")),
    ]


def test_a_record_that_was_delivered_too_often(broker: Wire, topic: Topic, dead: Topic) -> None:
    member = member_of(broker, topic, topic_name=dead.name)
    configure(broker, member.group_id, share_delivery_count_limit="2")
    topic.append(2)
    for count in (1, 2):
        assert ranges(member.take(topic, 2)) == [(0, 1, count)]
        assert member.acknowledge(topic, (0, 1, RELEASE)) == "NONE"
    message = "Offset delivery count exceeded the threshold."
    assert [headers for _, _, headers in letters(broker, dead, 2)] == [
        expected_headers(member, topic, offset, 2, message) for offset in (0, 1)
    ]


def test_a_record_whose_lock_ended_too_often(broker: Wire, topic: Topic, dead: Topic) -> None:
    member = member_of(broker, topic, topic_name=dead.name)
    configure(broker, member.group_id, share_delivery_count_limit="2", share_record_lock_duration_ms="1000")
    topic.append(1)
    for count in (1, 2):
        assert member.take(topic, 1) == [(0, 0, count)]
    message = "Offset delivery count exceeded the threshold."
    ((_, _, headers),) = letters(broker, dead, 1)
    assert headers == expected_headers(member, topic, 0, 2, message)
    topic.append(1)
    assert member.take(topic, 1) == [(1, 1, 1)]


def test_partitions_keep_their_numbers(broker: Wire, make_topic: TopicFactory, dead: Topic) -> None:
    topic = make_topic(4)
    member = member_of(broker, topic, (0, 3), topic_name=dead.name)
    topic.append(1, partition=3)
    partitions = member.fetch(topic, 3, max_wait_ms=1000, min_bytes=1)
    while not partitions or not partitions[3].acquired:
        partitions = member.fetch(topic, max_wait_ms=1000, min_bytes=1)
    assert member.acknowledge(topic, (0, 0, REJECT), partition=3) == "NONE"
    ((_, _, headers),) = letters(broker, dead, 1, partition=1)
    assert headers == expected_headers(member, topic, 0, 1, "Offset rejected by client.", partition=3)


@pytest.mark.parametrize("name", ["dlq.{}", "other.{}"])
def test_a_topic_that_takes_no_dead_letters(broker: Wire, topic: Topic, make_topic: TopicFactory, name: str) -> None:
    silent = make_topic(name=name.format(uuid.uuid4().hex[:12]))
    member = member_of(broker, topic, topic_name=silent.name)
    topic.append(2)
    member.take(topic, 2)
    assert member.acknowledge(topic, (0, 1, REJECT)) == "NONE"
    topic.append(1)
    assert member.take(topic, 1) == [(2, 2, 1)]
    assert member.acknowledge(topic, (2, 2, ACCEPT)) == "NONE"
    (answer,) = fetch_partitions(broker, silent, 0, committed=False)
    assert not answer.records


def test_a_topic_without_the_prefix(broker: Wire, topic: Topic, make_topic: TopicFactory) -> None:
    """errors.deadletterqueue.topic.name.prefix."""
    other = make_topic(name=f"other.{uuid.uuid4().hex[:12]}", **ENABLED)
    member = member_of(broker, topic, topic_name=other.name)
    topic.append(2)
    member.take(topic, 2)
    assert member.acknowledge(topic, (0, 0, REJECT)) == "NONE"
    topic.append(1)
    assert member.take(topic, 1) == [(2, 2, 1)]
    (answer,) = fetch_partitions(broker, other, 0, committed=False)
    assert not answer.records


def test_a_topic_that_is_not_there(broker: Wire, topic: Topic) -> None:
    member = member_of(broker, topic, topic_name=f"dlq.{uuid.uuid4().hex[:12]}")
    topic.append(2)
    member.take(topic, 2)
    assert member.acknowledge(topic, (0, 1, REJECT)) == "NONE"
    topic.append(1)
    assert member.take(topic, 1) == [(2, 2, 1)]


@pytest.fixture
def topics_are_made(broker: Wire) -> Iterator[None]:
    """The broker makes dead-letter topics by itself."""
    name = "errors.deadletterqueue.auto.create.topics.enable"
    for operation in (SET, DELETE):
        config = AlterableConfig(name=name, config_operation=operation, value="true" if operation == SET else None)
        resource = AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[config])
        (answer,) = broker.send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        assert answer.error_code == 0, answer.error_message
        if operation == SET:
            yield


@pytest.mark.usefixtures("topics_are_made")
def test_a_topic_that_is_made(broker: Wire, topic: Topic) -> None:
    name = f"dlq.{uuid.uuid4().hex[:12]}"
    member = member_of(broker, topic, topic_name=name)
    topic.append(1)
    member.take(topic, 1)
    assert member.acknowledge(topic, (0, 0, REJECT)) == "NONE"
    deadline = time.monotonic() + 20
    while True:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        (row,) = broker.send(request, 12).topics
        if row.error_code == 0:
            break
        assert time.monotonic() < deadline
    assert len(row.partitions) == 1
    assert len(letters(broker, Topic(broker, name, row.topic_id), 1)) == 1
    query = DescribeConfigsResource(resource_type=TOPIC, resource_name=name)
    (described,) = broker.send(DescribeConfigsRequest(resources=[query]), 4).results
    own = {config.name: config.value for config in described.configs if config.config_source == DYNAMIC_TOPIC}
    assert own == {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
