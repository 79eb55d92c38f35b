"""A real client pushes its metrics once somebody has subscribed to them (KIP-714)."""

import time

from confluent_kafka import Producer

from ottla.observability.client_metrics import ClientMetrics
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.testing import EmbeddedBroker
from tests.conformance.conftest import Wire

CLIENT_METRICS = 16


def pushed(broker: EmbeddedBroker) -> dict[bytes, ClientMetrics]:
    """What has come, once it is more than that a client is there."""
    deadline = time.monotonic() + 60
    while True:
        found = broker.client_metrics()
        if any(each.otlp for each in found.values()):
            return found
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_librdkafka_pushes_what_is_subscribed_to() -> None:
    with EmbeddedBroker() as broker:
        configs = {"metrics": "*", "interval.ms": "200", "match": "client_software_name=.*confluent.*"}
        edits = [AlterableConfig(name=name, config_operation=0, value=value) for name, value in configs.items()]
        resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="all", configs=edits)
        wire = Wire(broker.address, is_kafka=False)
        answer = wire.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == 0
        wire.close()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "metric", "log_level": 3})
        producer.produce("t", b"v")
        assert producer.flush(30) == 0
        (instance,) = pushed(broker).values()
        assert instance.client_id == "metric"
        # OTLP names every metric in plain text.
        assert b"org.apache.kafka.producer.connection.creation.total" in instance.otlp
        assert broker.broker.telemetry.received.refused == 0
