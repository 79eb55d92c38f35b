"""GetTelemetrySubscriptions and PushTelemetry. Apache Kafka serves them without advertising them unless it has a reporter."""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.protocol.errors import (
    INVALID_CONFIG,
    INVALID_RECORD,
    INVALID_REQUEST,
    NONE,
    TELEMETRY_TOO_LARGE,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_SUBSCRIPTION_ID,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest
from ottla.records.compression import compress

from .conftest import Wire

CLIENT_METRICS = 16
SET, DELETE = 0, 1
FIVE_MINUTES = 300_000
Subscribe = Callable[..., None]


@pytest.fixture
def client(broker: Wire) -> Wire:
    wire = broker.another()
    wire.client_id = f"c-{uuid.uuid4().hex[:12]}"
    wire.send(ApiVersionsRequest(client_software_name="telemetric", client_software_version="1.2"), 3)
    return wire


@pytest.fixture
def subscribe(broker: Wire, client: Wire) -> Iterator[Subscribe]:
    """Make or change a subscription of this client alone."""
    made: list[str] = []

    def alter(name: str, configs: dict[str, str | None]) -> None:
        edits = [
            AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in configs.items()
        ]
        resource = AlterConfigsResource(
            resource_type=CLIENT_METRICS, resource_name=f"{client.client_id}-{name}", configs=edits
        )
        answer = broker.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert answer.responses[0].error_code == NONE

    def change(name: str, metrics: str, interval_ms: int, match: str = "") -> None:
        made.append(name)
        match = ",".join(filter(None, [f"client_id={client.client_id}", match]))
        alter(name, {"metrics": metrics, "interval.ms": str(interval_ms), "match": match})

    yield change
    for name in made:
        alter(name, {"metrics": None, "interval.ms": None, "match": None})


def get(client: Wire, instance: bytes = bytes(16)) -> Any:
    return client.send(GetTelemetrySubscriptionsRequest(client_instance_id=instance), 0)


def subscribed(client: Wire, metrics: list[str]) -> Any:
    """The answer to a new instance, once the broker knows of the subscriptions."""
    deadline = time.monotonic() + 10
    while sorted((answer := get(client)).requested_metrics) != metrics:
        assert time.monotonic() < deadline
    return answer


def push(client: Wire, instance: bytes, subscription: int, metrics: bytes = b"", **fields: Any) -> int:
    request = PushTelemetryRequest(client_instance_id=instance, subscription_id=subscription, metrics=metrics, **fields)
    return int(client.send(request, 0).error_code)


def test_a_client_without_subscriptions(client: Wire) -> None:
    answer = get(client)
    assert answer.error_code == NONE
    assert answer.client_instance_id != bytes(16)
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (FIVE_MINUTES, 1_048_576)
    assert (answer.delta_temporality, answer.requested_metrics) == (True, [])


def test_an_id_of_its_own_is_kept(client: Wire) -> None:
    instance = uuid.uuid4().bytes
    answer = get(client, instance)
    assert (answer.error_code, answer.client_instance_id) == (NONE, instance)


def test_asking_again_within_the_interval_is_throttled(client: Wire) -> None:
    instance = get(client).client_instance_id
    again = get(client, instance)
    assert again.error_code == THROTTLING_QUOTA_EXCEEDED
    assert (again.client_instance_id, again.subscription_id, again.accepted_compression_types) == (bytes(16), 0, [])


def test_subscriptions_are_put_together(client: Wire, subscribe: Subscribe) -> None:
    subscribe("a", "org.apache.kafka.producer.,org.apache.kafka.consumer.", 1000)
    subscribe("b", "org.apache.kafka.producer.node.", 500, "client_software_name=telem.*,client_software_version=1[.].")
    subscribe("c", "*", 200, "client_software_name=another")
    subscribe("d", "*", 300, "client_source_address=127[.]0[.]0[.]2")
    expected = ["org.apache.kafka.consumer.", "org.apache.kafka.producer.", "org.apache.kafka.producer.node."]
    assert subscribed(client, expected).push_interval_ms == 500
    subscribe("e", "*", 700, "client_source_address=127.0.0.1,client_source_port=[0-9]+")
    assert subscribed(client, ["*"]).push_interval_ms == 500


def test_one_push_for_each_interval(client: Wire, subscribe: Subscribe) -> None:
    subscribe("a", "*", 400)
    answer = subscribed(client, ["*"])
    instance, subscription = answer.client_instance_id, answer.subscription_id
    assert push(client, instance, subscription, b"") == NONE
    assert push(client, instance, subscription, b"") == THROTTLING_QUOTA_EXCEEDED
    deadline = time.monotonic() + 10
    while push(client, instance, subscription) != NONE:
        assert time.monotonic() < deadline


def test_another_subscription_is_unknown_and_may_be_asked_for_at_once(client: Wire, subscribe: Subscribe) -> None:
    subscribe("a", "*", 100)
    answer = subscribed(client, ["*"])
    instance, subscription = answer.client_instance_id, answer.subscription_id
    assert push(client, instance, subscription + 1) == UNKNOWN_SUBSCRIPTION_ID
    again = get(client, instance)
    assert (again.error_code, again.subscription_id) == (NONE, subscription)
    subscribe("a", "org.apache.kafka.", 60_000)
    subscribed(client, ["org.apache.kafka."])
    assert push(client, instance, subscription) == UNKNOWN_SUBSCRIPTION_ID
    changed = get(client, instance)
    assert (changed.error_code, changed.requested_metrics) == (NONE, ["org.apache.kafka."])
    assert changed.subscription_id != subscription


def test_a_push_without_a_subscription_is_refused(client: Wire) -> None:
    assert push(client, uuid.uuid4().bytes, 7) == UNKNOWN_SUBSCRIPTION_ID
    assert push(client, bytes(16), 7) == INVALID_REQUEST


def test_the_last_push(client: Wire) -> None:
    answer = get(client)
    instance, subscription = answer.client_instance_id, answer.subscription_id
    assert push(client, instance, subscription) == NONE
    assert push(client, instance, subscription, terminating=True) == NONE
    assert push(client, instance, subscription, terminating=True) == INVALID_REQUEST
    assert push(client, instance, subscription) == INVALID_REQUEST


@pytest.mark.parametrize(
    ("codec", "metrics", "code"),
    [
        (9, b"abc", UNSUPPORTED_COMPRESSION_TYPE),
        (0, bytes(1_048_577), TELEMETRY_TOO_LARGE),
        (4, b"not zstd", INVALID_RECORD),
    ],
)
def test_metrics_that_are_not_taken(client: Wire, codec: int, metrics: bytes, code: int) -> None:
    answer = get(client)
    instance, subscription = answer.client_instance_id, answer.subscription_id
    assert push(client, instance, subscription, metrics, compression_type=codec) == code


@pytest.mark.usefixtures("ottla_only")
def test_telemetry_is_advertised_as_long_as_somebody_is_subscribed(client: Wire, subscribe: Subscribe) -> None:
    """Apache Kafka advertises it as long as it has a reporter."""

    def advertised() -> set[int]:
        answer = client.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
        return {71, 72} & {row.api_key for row in answer.api_keys}

    assert advertised() == set()
    subscribe("a", "*", 400)
    assert advertised() == {71, 72}


@pytest.mark.usefixtures("ottla_only")
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_metrics_are_taken(client: Wire, subscribe: Subscribe, codec: int) -> None:
    """Apache Kafka hands them to its reporters; one without refuses them."""
    subscribe("a", "*", 400)
    answer = subscribed(client, ["*"])
    metrics = b"otlp" * 1000
    packed = compress(codec, metrics) if codec else metrics
    assert push(client, answer.client_instance_id, answer.subscription_id, packed, compression_type=codec) == NONE


def test_metrics_without_a_subscription_are_refused(client: Wire) -> None:
    """They are not decompressed: 16 MB of them may come in some KB."""
    answer = get(client)
    packed = compress(4, bytes(1 << 20))
    instance, subscription = answer.client_instance_id, answer.subscription_id
    assert push(client, instance, subscription, packed, compression_type=4) == INVALID_RECORD


@pytest.mark.usefixtures("ottla_only")
@pytest.mark.parametrize("expression", ["(?=a)b", r"(a)\1", "a{100000}"])
def test_patterns_of_clients_are_those_of_re2(broker: Wire, expression: str) -> None:
    """Apache Kafka takes Java's, whose time may grow exponentially."""
    match = AlterableConfig(name="match", config_operation=SET, value=f"client_id={expression}")
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name="refused", configs=[match])
    answer = broker.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == INVALID_CONFIG


@pytest.mark.usefixtures("ottla_only")
def test_a_pattern_with_exponential_backtracking_is_matched_quickly(client: Wire, subscribe: Subscribe) -> None:
    """28 letters held a broker for 42 s; Apache Kafka's threads likewise."""
    client.client_id = "a" * 249
    subscribe("a", "*", 400, "client_id=(a|a)*(a*)*b")
    begun = time.monotonic()
    get(client)
    assert time.monotonic() - begun < 10
