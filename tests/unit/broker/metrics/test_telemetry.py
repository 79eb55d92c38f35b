"""State of client instances that push metrics: bounded, and only for those with a subscription."""

from types import MappingProxyType
from typing import Any

import pytest
from tests.unit.observability.test_client_metrics import names_in, push_of

from ottla.broker.metrics.telemetry import _MOST_INSTANCES, Telemetry
from ottla.environment.system import SystemRandom
from ottla.metadata.configs.alteration import CLIENT_METRICS
from ottla.metadata.image import EMPTY, Image
from ottla.metadata.refusal import Refused
from ottla.protocol.context import NO_CONTEXT
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest

OTLP = push_of("a.x", "b.y")


def image(metrics: str | None) -> Image:
    """Metadata with a subscription to these metrics, or without any."""
    if metrics is None:
        return EMPTY
    configs: Any = {(CLIENT_METRICS, "s"): {"metrics": metrics, "interval.ms": "100"}}
    return EMPTY._replace(configs=MappingProxyType(configs))


def push(telemetry: Telemetry, metadata: Image, metrics: bytes) -> bytes:
    """Push once, as a new instance; returns its id."""
    instance, subscribed = telemetry.subscribe(bytes(16), NO_CONTEXT, metadata, 0)
    request = PushTelemetryRequest(
        client_instance_id=instance, subscription_id=subscribed.id, metrics=metrics, compression_type=0
    )
    telemetry.push(request, NO_CONTEXT, metadata, 0, 0)
    return instance


def test_client_instances_are_limited() -> None:
    telemetry = Telemetry(1 << 20, SystemRandom())
    for _ in range(_MOST_INSTANCES + 100):
        telemetry.subscribe(bytes(16), NO_CONTEXT, EMPTY, 0)
    assert len(telemetry._instances) == _MOST_INSTANCES


def test_a_push_is_reduced_to_the_subscription_of_its_client() -> None:
    telemetry = Telemetry(1 << 20, SystemRandom())
    instance = push(telemetry, image("a."), OTLP)
    assert names_in(telemetry.received.instances()[instance].otlp) == ["a.x"]
    instance = push(telemetry, image("*"), OTLP)
    assert telemetry.received.instances()[instance].otlp == OTLP


def test_a_push_without_a_subscription_leaves_nothing() -> None:
    telemetry = Telemetry(1 << 20, SystemRandom())
    for _ in range(20):
        with pytest.raises(Refused):
            push(telemetry, image(None), OTLP)
    assert telemetry.received.instances() == {}
