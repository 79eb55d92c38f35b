"""Clients of other projects on a cluster of three brokers."""

import asyncio
import warnings
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ottla.testing import KafkaCluster

with warnings.catch_warnings():
    warnings.filterwarnings(
        "ignore", r"\w+_text is deprecated", DeprecationWarning
    )  # kafka-python reads its schemas so
    from kafka import KafkaConsumer, KafkaProducer

REPLICATED = {"default.replication.factor": 3, "min.insync.replicas": 2}


def test_aiokafka_uses_all_brokers_and_finds_them_again(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    cluster.create_topic("t", 6)
    cluster.create_topic("u", 3)

    async def produce(topic: str, count: int) -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True) as producer:
            for number in range(count):
                await producer.send_and_wait(topic, b"%03d" % number, key=b"%d" % number)

    async def consume(topic: str, count: int) -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=cluster.bootstrap_servers, group_id="aio", auto_offset_reset="earliest"
        )
        values: list[bytes] = []
        async with consumer:
            while len(values) < count:
                values.append((await asyncio.wait_for(consumer.getone(), 20)).value)
        return sorted(values)

    asyncio.run(produce("t", 60))
    assert asyncio.run(consume("t", 60)) == [b"%03d" % number for number in range(60)]
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
        cluster.restart(node_id)
    asyncio.run(produce("u", 30))
    assert asyncio.run(consume("u", 30)) == [b"%03d" % number for number in range(30)]


@pytest.mark.usefixtures("sockets_of_kafka_python")
def test_kafka_python_uses_all_brokers(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3)
    cluster.create_topic("t", 6)
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers.split(","))
    for number in range(60):
        producer.send("t", b"%03d" % number, key=b"%d" % number)
    producer.flush(20)
    producer.close()
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        group_id="python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    values = [next(consumer).value for _ in range(60)]
    consumer.close()
    assert sorted(values) == [b"%03d" % number for number in range(60)]


def test_aiokafka_loses_nothing_while_brokers_die(kafka_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster(3, REPLICATED)
    cluster.create_topic("t", 3)

    async def produce() -> list[bytes]:
        sent = []
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, metadata_max_age_ms=1000
        ) as producer:
            for round_number, node_id in enumerate(cluster.brokers):
                waiting = []
                for number in range(30):
                    value = b"%d-%d" % (round_number, number)
                    waiting.append(await producer.send("t", value, partition=number % 3))
                    sent.append(value)
                    if number == 15:
                        await asyncio.to_thread(cluster.kill, node_id)
                await asyncio.gather(*waiting)
                await asyncio.to_thread(cluster.restart, node_id)
        return sent

    sent = asyncio.run(asyncio.wait_for(produce(), 60))
    assert_stored(cluster, sent)


def assert_stored(cluster: KafkaCluster, sent: list[bytes]) -> None:
    """Assert that each value is stored once, in the order of its partition, at the leader."""
    for index in range(3):
        leader = cluster[cluster.leader_of("t", index)]
        values = [record.value for record in leader.records("t", partition=index)]
        assert values == [value for value in sent if int(value.split(b"-")[1]) % 3 == index]
