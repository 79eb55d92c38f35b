"""Metrics of clients while they work, under Kafka's names."""

import asyncio
from math import isnan

from ottla import Consumer, Producer, TopicPartition, aio
from ottla.client.metrics import MetricName


def test_a_producer_measures_what_it_sends(bootstrap_servers: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers, client_id="writer") as producer:
        for number in range(50):
            producer.produce("measured", str(number))
        producer.flush(30)
        metrics = producer.metrics()
        tags = (("client-id", "writer"),)
        assert metrics[MetricName("producer-metrics", "record-send-total", tags)] == 50
        assert metrics.value("record-send-total", topic="measured") == 50
        assert metrics.value("record-send-rate") > 0
        assert metrics.value("request-latency-avg") >= 0
        assert metrics.value("request-latency-max") >= metrics.value("request-latency-avg")
        assert metrics.value("record-error-total") == 0
        assert metrics.value("requests-in-flight") == 0
        assert metrics.value("connection-count") >= 1
        assert metrics.value("buffer-available-bytes") == metrics.value("buffer-total-bytes")


def test_a_consumer_measures_its_fetches_lag_and_commits(bootstrap_servers: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(30):
            producer.produce("lagging", str(number), partition=0)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id="laggards", client_id="reader") as consumer:
        part = TopicPartition("lagging", 0)
        consumer.assign([part])
        consumer.seek_to_beginning([part])
        assert isnan(consumer.metrics().value("records-lag-max"))
        assert len(consumer.consume(10, timeout=30.0)) == 10
        consumer.commit()
        metrics = consumer.metrics()
        assert metrics.value("records-lag-max") == 20
        assert metrics.value("records-lag", topic="lagging", partition="0") == 20
        assert metrics.value("records-consumed-total") == 30  # fetched
        assert metrics.value("bytes-consumed-total") > 30
        assert metrics.value("fetch-total") >= 1
        assert metrics.value("fetch-latency-avg") >= 0
        assert metrics.value("commit-total", "consumer-coordinator-metrics") == 1
        assert metrics.value("commit-latency-avg") >= 0
        assert metrics.value("assigned-partitions") == 1


def test_asynchronous_clients_have_the_same_metrics(bootstrap_servers: str) -> None:
    async def run() -> None:
        async with aio.Producer(bootstrap_servers=bootstrap_servers) as producer:
            await (await producer.send("asynchronous", "value"))
            assert producer.metrics().value("record-send-total") == 1
        async with aio.Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("asynchronous", 0)])
            await consumer.consume(1, timeout=30.0)
            assert consumer.metrics().value("records-consumed-total") == 1

    asyncio.run(run())
