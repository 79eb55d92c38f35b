"""Metrics that clients push to real brokers (KIP-714): Ottla takes them, Apache Kafka without a receiver does not."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from ottla import Admin, ConfigChange, ConfigResource, Consumer, Producer, ResourceType, ShareConsumer, aio
from ottla.client.config import ClientConfig
from ottla.client.errors import IllegalState
from ottla.observability.client_metrics import ClientMetrics
from ottla.protocol.uuids import uuid_text
from ottla.testing import EmbeddedBroker
from tests.client.conftest import QUICK
from tests.conformance.members import wait_for

INTERVAL_MS = 100
PREFIX = "org.apache.kafka."


def subscribe(bootstrap_servers: str, name: str, **configs: str) -> None:
    with Admin(bootstrap_servers=bootstrap_servers, enable_metrics_push=False) as admin:
        changes = [ConfigChange(key.replace("_", "."), value) for key, value in configs.items()]
        admin.incremental_alter_configs({ConfigResource(ResourceType.CLIENT_METRICS, name): changes}).check()


@pytest.fixture(scope="module")
def kafka() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(QUICK) as embedded:
        subscribe(embedded.bootstrap_servers, "all", metrics="*", interval_ms=str(INTERVAL_MS))
        yield embedded


def of(kafka: EmbeddedBroker, client_id: str) -> ClientMetrics:
    """Return what a client has pushed."""
    (pushed,) = [row for row in kafka.client_metrics().values() if row.client_id == client_id]
    return pushed


def wait_until(kafka: EmbeddedBroker, client_id: str, condition: Callable[[ClientMetrics], bool]) -> None:
    """Wait until a client has pushed, and its pushes fulfil a condition."""
    wait_for(lambda: any(row.client_id == client_id and condition(row) for row in kafka.client_metrics().values()))


def metrics(pushed: ClientMetrics) -> dict[str, Metric]:
    """Return the metrics of the newest push by name."""
    data = MetricsData.FromString(pushed.otlp)
    return {
        metric.name.removeprefix(PREFIX): metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def labels(pushed: ClientMetrics) -> dict[str, str]:
    attributes = MetricsData.FromString(pushed.otlp).resource_metrics[0].resource.attributes
    return {label.key: label.value.string_value for label in attributes}


def test_a_producer_pushes_and_ends_with_a_last_push(kafka: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=kafka.bootstrap_servers, client_id="p-1") as producer:
        instance_id = producer.client_instance_id(30)
        for number in range(10):
            producer.produce("pushed", str(number))
        producer.flush(30)
        wait_until(kafka, "p-1", lambda pushed: not pushed.terminated)
        count = of(kafka, "p-1").pushes
        wait_until(kafka, "p-1", lambda pushed: pushed.pushes >= count + 2)
        producer.produce("pushed", "another one")
    pushed = of(kafka, "p-1")
    assert pushed.terminated
    assert instance_id in {uuid_text(key) for key, row in kafka.client_metrics().items() if row is pushed}
    assert metrics(pushed)["producer.record.send.total"].sum.data_points[0].as_double == 1  # since the push before
    assert "producer.request.latency.max" in metrics(pushed)


def test_a_consumer_names_its_group(kafka: EmbeddedBroker) -> None:
    with (
        Producer(bootstrap_servers=kafka.bootstrap_servers) as producer,
        Consumer(
            bootstrap_servers=kafka.bootstrap_servers, client_id="c-1", group_id="g-1", auto_offset_reset="earliest"
        ) as consumer,
    ):
        producer.produce("read", "x")
        producer.flush(30)
        consumer.subscribe(["read"])
        assert consumer.poll(30) is not None
        consumer.commit()
        wait_until(kafka, "c-1", lambda pushed: "consumer.coordinator.commit.latency.avg" in metrics(pushed))
        names = set(metrics(of(kafka, "c-1")))
    assert {
        "consumer.connection.creation.total",
        "consumer.connection.creation.rate",
        "consumer.coordinator.assigned.partitions",
        "consumer.coordinator.commit.latency.avg",
        "consumer.coordinator.commit.latency.max",
        "consumer.fetch.manager.fetch.latency.avg",
        "consumer.fetch.manager.fetch.latency.max",
        "consumer.fetch.manager.records.lag",
    } <= names
    assert labels(of(kafka, "c-1"))["group_id"] == "g-1"
    assert labels(of(kafka, "c-1"))["group_member_id"]


def test_share_consumers_and_admins_push(kafka: EmbeddedBroker) -> None:
    with ShareConsumer(bootstrap_servers=kafka.bootstrap_servers, client_id="s-1", group_id="sg") as consumer:
        consumer.subscribe(["shared"])
        consumer.poll(0.2)
        assert consumer.client_instance_id(30)
        wait_until(kafka, "s-1", lambda pushed: "consumer.share.time.between.poll.avg" in metrics(pushed))
    assert of(kafka, "s-1").terminated
    with Admin(bootstrap_servers=kafka.bootstrap_servers, client_id="a-1") as admin:
        admin.describe_cluster()
        assert admin.client_instance_id(30)
        wait_until(kafka, "a-1", lambda pushed: pushed.pushes >= 1)
    assert of(kafka, "a-1").terminated
    assert set(metrics(of(kafka, "a-1"))) >= {"admin.client.connection.creation.total"}


def test_asyncio_clients_push(kafka: EmbeddedBroker) -> None:
    async def run() -> None:
        async with aio.Producer(bootstrap_servers=kafka.bootstrap_servers, client_id="p-2") as producer:
            await producer.produce("pushed", "1")
            assert await producer.client_instance_id(30)
            while not any(row.client_id == "p-2" for row in kafka.client_metrics().values()):
                await asyncio.sleep(0.01)

    asyncio.run(run())
    assert of(kafka, "p-2").terminated


def test_a_dropped_client_ends_with_a_last_push(kafka: EmbeddedBroker) -> None:
    producer = Producer(bootstrap_servers=kafka.bootstrap_servers, client_id="p-3")
    producer.client_instance_id(30)
    with pytest.warns(ResourceWarning, match="unclosed Producer p-3"):
        del producer
    wait_until(kafka, "p-3", lambda pushed: pushed.terminated)


def test_metrics_are_not_pushed_when_that_is_switched_off(kafka: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=kafka.bootstrap_servers, client_id="p-4", enable_metrics_push=False) as producer:
        producer.produce("pushed", "1")
        producer.flush(30)
        time.sleep(3 * INTERVAL_MS / 1000)
        with pytest.raises(IllegalState, match=r"enable\.metrics\.push"):
            producer.client_instance_id(1)
    assert all(row.client_id != "p-4" for row in kafka.client_metrics().values())


@contextmanager
def _spy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """List the clients whose pushes begin."""
    from ottla.client.telemetry.pushing import MetricsPush

    begun: list[str] = []
    original: Callable[..., None] = MetricsPush.__init__

    def initialize(self: MetricsPush, network: Any, config: ClientConfig, *args: Any, **options: Any) -> None:
        begun.append(config["client.id"])
        original(self, network, config, *args, **options)

    monkeypatch.setattr(MetricsPush, "__init__", initialize)
    yield begun


@pytest.mark.parametrize("has_subscription", [False, True])
def test_a_broker_without_a_receiver_gets_nothing(
    request: pytest.FixtureRequest,
    bootstrap_servers: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    has_subscription: bool,
) -> None:
    """Apache Kafka has a receiver only with a plugin for it; Ottla does with the first subscription."""
    if has_subscription:
        if not request.config.getoption("--broker"):
            pytest.skip("Ottla's broker takes metrics then")
        subscribe(bootstrap_servers, "all", metrics="*", interval_ms="100", match="client_id=lonely")
    try:
        with (
            _spy(monkeypatch) as begun,
            caplog.at_level(logging.INFO, "ottla.client"),
            Producer(bootstrap_servers=bootstrap_servers, client_id="lonely") as producer,
        ):
            producer.produce("lonely", "x")
            producer.flush(30)
            begun_s = time.monotonic()
            assert producer.client_instance_id(0.5) is None
            assert 0.5 <= time.monotonic() - begun_s < 5
        assert begun == []
        assert caplog.messages == []
    finally:
        if has_subscription:
            with Admin(bootstrap_servers=bootstrap_servers) as admin:
                resource = ConfigResource(ResourceType.CLIENT_METRICS, "all")
                names = ("metrics", "interval.ms", "match")
                admin.incremental_alter_configs({resource: [ConfigChange(name, None) for name in names]})
