"""A real client pushes its metrics once there is a subscription to them (KIP-714)."""

import time
import urllib.request
from pathlib import Path

from confluent_kafka import Producer

from ottla.observability.client_metrics import ClientMetrics
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Wire
from tests.crash.conftest import Process

CLIENT_METRICS = 16


def pushed(broker: EmbeddedBroker) -> dict[bytes, ClientMetrics]:
    """Return the metrics by client, once a client has pushed some."""
    deadline = time.monotonic() + 60
    while True:
        metrics = broker.client_metrics()
        if any(client.otlp for client in metrics.values()):
            return metrics
        assert time.monotonic() < deadline
        time.sleep(0.05)


def subscribe(wire: Wire) -> None:
    """librdkafka is to push everything, five times a second."""
    configs = {"metrics": "*", "interval.ms": "200", "match": "client_software_name=.*confluent.*"}
    edits = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in configs.items()]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=edits)
    answer = wire.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0


def producing(bootstrap_servers: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "client.id": "metric", "log_level": 3})
    producer.produce("t", b"v")
    assert producer.flush(30) == 0
    return producer


def test_librdkafka_pushes_what_is_subscribed_to() -> None:
    with EmbeddedBroker() as broker:
        wire = Wire(broker.address, is_kafka=False)
        subscribe(wire)
        wire.close()
        producer = producing(broker.bootstrap_servers)
        (instance,) = pushed(broker).values()
        assert instance.client_id == "metric"
        # OTLP names every metric in plain text.
        assert b"org.apache.kafka.producer.connection.creation.total" in instance.otlp
        assert broker.broker.telemetry.received.refused == 0
        del producer


def test_a_served_broker_shows_them_to_prometheus(tmp_path: Path) -> None:
    broker = Process(tmp_path, "--metrics", "127.0.0.1:0")
    try:
        where = broker.says().removeprefix("serving metrics at ").strip()
        subscribe(broker.wire())
        producer = producing(broker.bootstrap_servers)
        text, deadline = "", time.monotonic() + 60
        while "client_org_apache_kafka_producer_connection_creation_total" not in text:
            assert time.monotonic() < deadline, text
            with urllib.request.urlopen(where, timeout=30) as answer:
                text = answer.read().decode()
        assert 'ottla_client_metrics_pushes_total{client_id="metric",client_instance_id="' in text
        del producer
    finally:
        broker.stop()
