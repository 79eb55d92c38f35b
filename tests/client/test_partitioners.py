"""Partitioners beside librdkafka's, on ten thousand keys. Java's are in tests/unit/records/test_partitioner.py."""

import random

import pytest
from confluent_kafka import Message
from confluent_kafka import Producer as RdProducer

from ottla import Admin, NewTopic, Producer
from ottla.client.producer.accumulator import TopicBuffers
from ottla.client.producer.partitioners import partitioner
from ottla.environment.system import SystemRandom

from .conftest import fresh

PARTITIONS = 7
KEYS = 10_000


def keys() -> list[bytes]:
    dice = random.Random(7)
    return [b"", *(dice.randbytes(dice.randrange(1, 40)) for _ in range(KEYS - 1))]


@pytest.mark.parametrize(
    "name", ["murmur2", "consistent", "fnv1a", "murmur2_random", "consistent_random", "fnv1a_random"]
)
def test_partitioners_choose_the_partitions_of_librdkafka(bootstrap_servers: str, admin: Admin, name: str) -> None:
    topic = fresh()
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).check()
    theirs: dict[bytes, int] = {}

    def report(error: object, message: Message) -> None:
        assert error is None
        key, partition = message.key(), message.partition()
        assert isinstance(key, bytes)
        assert partition is not None
        theirs[key] = partition

    config = {"bootstrap.servers": bootstrap_servers, "partitioner": name, "log_level": 2}
    client = RdProducer(config)
    sent = keys()
    if name.startswith("consistent"):
        sent = sent[1:]  # confluent-kafka sends an empty key as none, which librdkafka's consistent ones take apart
    for key in sent:
        client.produce(topic, b"", key, on_delivery=report)
        client.poll(0)
    assert client.flush(30) == 0
    choose = partitioner(name, SystemRandom(), 16_384)
    buffers = TopicBuffers(topic, PARTITIONS)
    ours = {key: choose(buffers, key) for key in sent}
    different = {key: (ours[key], theirs[key]) for key in sent if key and ours[key] != theirs[key]}
    assert different == {}


@pytest.mark.parametrize("name", ["random", "murmur2_random", "consistent_random", "fnv1a_random"])
def test_chance_reaches_every_partition(name: str) -> None:
    choose = partitioner(name, SystemRandom(), 16_384)
    buffers = TopicBuffers("t", 4)
    assert {choose(buffers, None) for _ in range(500)} == {0, 1, 2, 3}


def test_round_robin_goes_round() -> None:
    choose = partitioner("round_robin", SystemRandom(), 16_384)
    one, two = TopicBuffers("one", 3), TopicBuffers("two", 2)
    assert [choose(one, b"k") for _ in range(4)] == [0, 1, 2, 0]
    assert [choose(two, None) for _ in range(3)] == [0, 1, 0]


@pytest.mark.parametrize("name", ["murmur2", "consistent", "fnv1a"])
def test_without_a_key_all_records_go_to_one_partition(name: str) -> None:
    choose = partitioner(name, SystemRandom(), 16_384)
    buffers = TopicBuffers("t", 5)
    assert len({choose(buffers, None) for _ in range(100)}) == 1


def test_sticky_moves_on_after_a_batchs_worth() -> None:
    choose = partitioner("murmur2_sticky", SystemRandom(), 100)
    buffers = TopicBuffers("t", 5)
    first = choose(buffers, None)
    buffers.sticky_bytes = 99
    assert choose(buffers, None) == first
    buffers.sticky_bytes = 100
    assert choose(buffers, None) != first
    ignoring = partitioner("murmur2_sticky", SystemRandom(), 100, ignore_keys=True)
    assert len({ignoring(buffers, key) for key in (b"a", b"b", b"c")}) == 1


def test_a_custom_function_chooses_the_partition(bootstrap_servers: str, topic: str) -> None:
    def last(buffers: TopicBuffers, key: bytes | None) -> int:
        del key
        return buffers.partitions - 1

    with Producer(bootstrap_servers=bootstrap_servers, choose=last) as producer:
        assert producer.send(topic, "x", "k").result(20).partition == 1


def test_batches_are_larger_than_with_kafkas_default(bootstrap_servers: str, admin: Admin) -> None:
    """Kafka's batch.size is 16384 by default, and 48 records of 1 KB would be three batches."""
    topic = fresh()
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).check()
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=1000) as producer:
        for _ in range(48):
            producer.produce(topic, bytes(1000), partition=0)
        producer.flush()
        assert producer.metrics().value("batch-size-max") > 48_000


def test_records_without_a_key_stick_no_longer_than_with_kafkas_default(bootstrap_servers: str, admin: Admin) -> None:
    topic = fresh()
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).check()
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=1000) as producer:
        outcomes = [producer.send(topic, bytes(1000)) for _ in range(48)]
        producer.flush()
    assert len({outcome.result().partition for outcome in outcomes}) > 1
