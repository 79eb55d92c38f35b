"""Metrics of clients, collected by OpenTelemetry's SDK."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from math import isnan

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum

from ottla import Consumer, Producer, ShareConsumer, TopicPartition
from ottla.client import aio, opentelemetry
from ottla.client.errors import IllegalState
from ottla.client.metrics import MetricValues
from ottla.client.opentelemetry import observe
from ottla.client.telemetry.otlp import metric_name

Collected = dict[tuple[str, frozenset[tuple[str, object]]], float]


class Collection:
    """A meter provider, and what it collects."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.is_monotonic: dict[str, bool] = {}

    def collect(self) -> Collected:
        """Return the values by name and attributes."""
        data = self._reader.get_metrics_data()
        collected: Collected = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                assert scope.scope.name == "ottla"
                for metric in scope.metrics:
                    assert isinstance(metric.data, Sum | Gauge)
                    self.is_monotonic[metric.name] = isinstance(metric.data, Sum) and metric.data.is_monotonic
                    for point in metric.data.data_points:
                        collected[metric.name, frozenset((point.attributes or {}).items())] = point.value
        return collected


@pytest.fixture
def collection() -> Iterator[Collection]:
    collection = Collection()
    yield collection
    collection.provider.shutdown()


def keys(values: MetricValues) -> set[tuple[str, frozenset[tuple[str, object]]]]:
    """Return what is to be collected."""
    return {
        (metric_name(key.group, key.name), frozenset((tag.replace("-", "_"), text) for tag, text in key.tags))
        for key, value in values.items()
        if not isnan(value)
    }


def test_the_metrics_of_a_producer_are_collected_until_it_is_closed(
    bootstrap_servers: str, collection: Collection
) -> None:
    attributes = frozenset({("client_id", "observed")})
    sent = "org.apache.kafka.producer.record.send.total"
    with Producer(bootstrap_servers=bootstrap_servers, client_id="observed") as producer:
        observe(producer, collection.provider)
        assert collection.collect()[sent, attributes] == 0
        for expected in (10, 20):
            for number in range(10):
                producer.produce("observed", str(number))
            producer.flush(30)
            collected = collection.collect()
            assert collected[sent, attributes] == expected
            of_topic = "org.apache.kafka.producer.topic.record.send.total"
            assert collected[of_topic, attributes | {("topic", "observed")}] == expected
        assert keys(producer.metrics()) == collected.keys()
        assert collection.is_monotonic[sent]
        assert not collection.is_monotonic["org.apache.kafka.producer.request.latency.max"]
        states = [producer.closed]
    states.append(producer.closed)
    assert states == [False, True]
    assert collection.collect() == {}


def test_the_metrics_of_a_consumer_are_collected(bootstrap_servers: str, collection: Collection) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for number in range(5):
            producer.produce("read", str(number), partition=0)
    with Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", client_id="seen") as consumer:
        observe(consumer, collection.provider)
        consumer.assign([TopicPartition("read", 0)])
        assert len(consumer.consume(2, timeout=30.0)) == 2
        collected = collection.collect()
        assert keys(consumer.metrics()) == collected.keys()
        lag = frozenset({("client_id", "seen"), ("topic", "read"), ("partition", "0")})
        assert collected["org.apache.kafka.consumer.fetch.manager.records.lag", lag] == 3


def test_the_metrics_of_asyncio_clients_are_read_on_their_event_loop(
    bootstrap_servers: str, collection: Collection
) -> None:
    sent = "org.apache.kafka.producer.record.send.total", frozenset({("client_id", "awaited")})

    async def observed() -> None:
        async with (
            aio.Producer(bootstrap_servers=bootstrap_servers, client_id="awaited") as producer,
            aio.Consumer(bootstrap_servers=bootstrap_servers, client_id="reader") as consumer,
            aio.ShareConsumer(bootstrap_servers=bootstrap_servers, group_id="a", client_id="sharer") as sharer,
        ):
            for client in (producer, consumer, sharer):
                observe(client, collection.provider)
            await producer.produce("observed", "one")
            await producer.flush(30)
            elsewhere = await asyncio.to_thread(collection.collect)
            assert elsewhere[sent] == 1
            assert elsewhere.keys() == {
                *keys(producer.metrics()), *keys(consumer.metrics()), *keys(sharer.metrics())
            }  # fmt: skip
            assert collection.collect().keys() == elsewhere.keys()
        assert producer.closed
        assert await asyncio.to_thread(collection.collect) == {}

    asyncio.run(observed())


def test_an_event_loop_that_is_busy_or_closed_has_no_metrics(
    bootstrap_servers: str, collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opentelemetry, "_PATIENCE_S", 0.05)
    kept: list[aio.Producer] = []

    async def observed() -> None:
        async with aio.Producer(bootstrap_servers=bootstrap_servers) as producer:
            observe(producer, collection.provider)
            with ThreadPoolExecutor(1) as thread:
                assert thread.submit(collection.collect).result() == {}  # holds the event loop meanwhile
            assert collection.collect() != {}
        kept.append(producer)

    asyncio.run(observed())
    with pytest.raises(IllegalState, match="is closed"):
        kept[0].call_from_thread(kept[0].metrics, 1.0)
    assert collection.collect() == {}


def test_the_metrics_of_several_clients_have_their_client_ids(bootstrap_servers: str, collection: Collection) -> None:
    name = "org.apache.kafka.consumer.share.coordinator.heartbeat.total"
    with (
        ShareConsumer(bootstrap_servers=bootstrap_servers, group_id="a", client_id="one") as first,
        ShareConsumer(bootstrap_servers=bootstrap_servers, group_id="a", client_id="two") as second,
    ):
        observe(first, collection.provider)
        observe(second, collection.provider)
        client_ids = {dict(labels)["client_id"] for metric, labels in collection.collect() if metric == name}
    assert client_ids == {"one", "two"}
