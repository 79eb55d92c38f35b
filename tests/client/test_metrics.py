"""Metrics of clients while they work, under Kafka's names."""

import asyncio
from math import isnan
from pathlib import Path

import pytest

from ottla import (
    Admin,
    ConfigChange,
    ConfigResource,
    Consumer,
    Producer,
    ResourceType,
    ShareConsumer,
    TopicPartition,
    aio,
)
from ottla.client.metrics import MetricName
from tests.client.conftest import fresh


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
        assert 0 <= metrics.value("record-queue-time-avg") <= metrics.value("record-queue-time-max") < 30_000
        assert metrics.value("request-latency-max", "producer-node-metrics", node_id="node-1") >= 0
        assert metrics.value("connection-creation-rate") > 0
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


def _from_the_start(bootstrap_servers: str, group: str) -> None:
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        change = ConfigChange("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, group): [change]}).check()


def test_a_share_consumer_measures_fetches_acknowledgements_and_heartbeats(bootstrap_servers: str) -> None:
    _from_the_start(bootstrap_servers, "sharers")
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(30):
            producer.produce("shared", str(number), partition=0)
    with ShareConsumer(bootstrap_servers=bootstrap_servers, group_id="sharers", client_id="taker") as consumer:
        before = consumer.metrics()
        assert before.value("last-poll-seconds-ago") == -1
        assert before.value("fetch-total") == 0
        consumer.subscribe(["shared"])
        taken = 0
        while taken < 30:
            taken += len(consumer.poll(30.0))
        consumer.commit()
        metrics = consumer.metrics()
        tags = (("client-id", "taker"),)
        assert metrics[MetricName("consumer-share-fetch-manager-metrics", "records-consumed-total", tags)] == 30
        assert metrics.value("acknowledgements-send-total") == 30
        assert metrics.value("acknowledgements-error-total") == 0
        assert metrics.value("bytes-consumed-total") > 30
        assert 1 <= metrics.value("records-per-request-max") <= 30
        assert metrics.value("fetch-latency-max") >= metrics.value("fetch-latency-avg") >= 0
        assert metrics.value("heartbeat-total", "consumer-share-coordinator-metrics") >= 1
        assert metrics.value("last-heartbeat-seconds-ago") >= 0
        assert metrics.value("rebalance-total") >= 1
        assert metrics.value("last-poll-seconds-ago") >= 0
        assert 0 <= metrics.value("poll-idle-ratio-avg") <= 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_measures_rebalances_and_how_long_it_waits(bootstrap_servers: str, protocol: str) -> None:
    topic = fresh()
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.produce(topic, "x")
    with Consumer(
        bootstrap_servers=bootstrap_servers, group_id=fresh(), group_protocol=protocol, auto_offset_reset="earliest"
    ) as consumer:
        assert consumer.metrics().value("rebalance-total") == 0
        assert isnan(consumer.metrics().value("rebalance-latency-avg"))
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        consumer.poll(0.3)  # waits to its end
        consumer.poll(0.3)
        metrics = consumer.metrics()
        assert metrics.value("rebalance-total") == 1
        assert 0 <= metrics.value("rebalance-latency-avg") <= metrics.value("rebalance-latency-total") < 30_000
        assert metrics.value("rebalance-rate-per-hour") > 0
        assert 0.5 < metrics.value("poll-idle-ratio-avg") <= 1
        assert metrics.value("request-latency-avg", "consumer-node-metrics", node_id="node-1") >= 0


def test_metrics_of_a_share_consumer_have_the_names_of_kafka(bootstrap_servers: str) -> None:
    """kafka_share_consumer_metrics.tsv was recorded with Apache Kafka's own share consumer."""
    lines = (Path(__file__).parent / "kafka_share_consumer_metrics.tsv").read_text().splitlines()
    recorded = {tuple(line.split("\t")) for line in lines if not line.startswith("#")}
    with ShareConsumer(bootstrap_servers=bootstrap_servers, group_id="named") as consumer:
        ours = {(key.group, key.name) for key in consumer.metrics()}
    assert ours <= recorded
    # Those of Kafka's threads and event queues, and of its network client, have no counterpart.
    without = {
        (group, name)
        for group, name in recorded - ours
        if group == "consumer-metrics" or (group == "consumer-share-metrics" and ("queue" in name or "event" in name))
    }
    assert recorded - ours - without == {
        ("consumer-share-metrics", "time-between-network-thread-poll-avg"),
        ("consumer-share-metrics", "time-between-network-thread-poll-max"),
    }


def test_asynchronous_clients_have_the_same_metrics(bootstrap_servers: str) -> None:
    async def run() -> None:
        async with aio.Producer(bootstrap_servers=bootstrap_servers) as producer:
            await (await producer.send("asynchronous", "value"))
            assert producer.metrics().value("record-send-total") == 1
        async with aio.Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("asynchronous", 0)])
            await consumer.consume(1, timeout=30.0)
            assert consumer.metrics().value("records-consumed-total") == 1
        async with aio.ShareConsumer(bootstrap_servers=bootstrap_servers, group_id="asynchronous") as sharing:
            assert sharing.metrics().value("fetch-total", "consumer-share-fetch-manager-metrics") == 0

    asyncio.run(run())
