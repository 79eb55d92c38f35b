"""DescribeProducers, over a socket."""

import time
from typing import Any

from ottla.protocol.errors import name_of
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.records.batch import build
from ottla.records.record import Record

from .conftest import Topic, TopicFactory, Wire
from .members import wait_for

API = DescribeProducersRequest


def described(wire: Wire, name: str, *indexes: int) -> list[Any]:
    (topic,) = wire.send(
        DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=list(indexes))]), 0
    ).topics
    assert topic.name == name
    return list(topic.partitions)


def produce(wire: Wire, topic: Topic, *timestamps: int) -> int:
    """A producer id, after batches of two records with these timestamps."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    wait_for(lambda: wire.send(request, 4).error_code == 0)
    producer_id = int(wire.send(request, 4).producer_id)
    for number, at in enumerate(timestamps):
        batch = build(
            [Record(0, at, b"k", b"v"), Record(1, at + 5, b"k", b"v")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=2 * number,
        )
        assert topic.produce(batch).error_code == 0
    return producer_id


def test_a_producer_and_what_it_did_last(broker: Wire, make_topic: TopicFactory) -> None:
    topic = make_topic(2)
    now = int(time.time() * 1000)
    producer_id = produce(broker, topic, now - 50, now)
    used, unused, absent, negative = described(broker, topic.name, 0, 1, 9, -1)
    (state,) = used.active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer_id, 0, 3)
    assert (state.last_timestamp, state.coordinator_epoch, state.current_txn_start_offset) == (now + 5, -1, -1)
    assert (unused.error_code, unused.active_producers) == (0, [])
    for partition in (absent, negative):
        assert (name_of(partition.error_code), partition.error_message) == ("UNKNOWN_TOPIC_OR_PARTITION", None)


def test_topics_that_are_not_there(broker: Wire) -> None:
    text = "This server does not host this topic-partition."
    for name, code, message in (
        ("no-such-topic", "UNKNOWN_TOPIC_OR_PARTITION", text),
        ("", "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed"),
    ):
        (partition,) = described(broker, name, 0)
        assert (name_of(partition.error_code), partition.error_message) == (code, message)
