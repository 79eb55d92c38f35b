"""Metrics that clients push to brokers (KIP-714), in virtual time."""

import logging
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from ottla.client.admin.core import AdminCore
from ottla.client.core import Core
from ottla.client.errors import BrokersUnreachable, IllegalState
from ottla.client.metrics import MetricValues
from ottla.client.telemetry.collection import Collection, Collector
from ottla.client.telemetry.instance import client_instance_id
from ottla.client.telemetry.plan import RETRY_MS, Subscription
from ottla.protocol.api import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from ottla.protocol.errors import (
    INVALID_RECORD,
    TELEMETRY_TOO_LARGE,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_SUBSCRIPTION_ID,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.protocol.uuids import uuid_text
from ottla.records.compression import decompress
from tests.unit.client.world import LOST, Broker, World

ID = bytes(range(16))
INTERVAL_MS = 60_000
PREFIX = "org.apache.kafka."


class Counts:
    """Metrics of a client: a total that grows, and a gauge."""

    def __init__(self, core: Core) -> None:
        self.sent = 0.0
        self.topics = 1
        core.observe(self.metrics, lambda: "m-1")

    def metrics(self) -> MetricValues:
        values, tags = MetricValues(), (("client-id", "ottla"),)
        gauges = [("batch-size-avg", 9.5), ("batch-size-max", float("nan"))]
        values.put("producer-metrics", tags, [("record-send-total", self.sent), *gauges])
        for number in range(self.topics):
            values.put("producer-topic-metrics", (*tags, ("topic", f"t{number}")), [("byte-total", self.sent)])
        return values


def response(**changes: Any) -> GetTelemetrySubscriptionsResponse:
    fields = {
        "client_instance_id": ID,
        "subscription_id": 7,
        "accepted_compression_types": [4, 3, 1, 2],
        "push_interval_ms": INTERVAL_MS,
        "telemetry_max_bytes": 1 << 20,
        "delta_temporality": True,
        "requested_metrics": ["*"],
    }
    return GetTelemetrySubscriptionsResponse(**{**fields, **changes})


def telemetric(world: World, host: str = "one", node: int = 1, **changes: Any) -> Broker:
    """Make a broker that takes metrics."""
    broker = world.broker(host, node)
    broker.ranges |= {GET_TELEMETRY_SUBSCRIPTIONS: (0, 0), PUSH_TELEMETRY: (0, 0)}
    broker.on(GetTelemetrySubscriptionsRequest, response(**changes))
    broker.on(PushTelemetryRequest, PushTelemetryResponse())
    return broker


def connect(world: World, **configs: Any) -> tuple[Core, Counts]:
    """Return a client that has a connection, and its subscription if the broker takes metrics."""
    core = world.core(**configs)
    counts = Counts(core)
    world.run(core, core.metadata.any_link())
    world.advance(5)
    return core, counts


def pushes(broker: Broker) -> list[PushTelemetryRequest]:
    return broker.sent(PushTelemetryRequest)


def decoded(push: PushTelemetryRequest) -> MetricsData:
    data: MetricsData = MetricsData.FromString(decompress(push.compression_type, push.metrics, 1 << 20))
    return data


def values(push: PushTelemetryRequest) -> dict[tuple[str, ...], float]:
    """Return the values of a push by name and attributes."""
    points = {}
    for metric in decoded(push).resource_metrics[0].scope_metrics[0].metrics:
        (point,) = (metric.sum if metric.HasField("sum") else metric.gauge).data_points
        labels = [f"{label.key}={label.value.string_value}" for label in point.attributes]
        points[(metric.name.removeprefix(PREFIX), *labels)] = point.as_double
    return points


def test_a_client_pushes_what_is_requested_every_interval() -> None:
    world = World()
    broker = telemetric(world)
    _, counts = connect(world)
    (request,) = broker.sent(GetTelemetrySubscriptionsRequest)
    assert request.client_instance_id == bytes(16)
    counts.sent = 5
    world.advance(INTERVAL_MS + 10)
    counts.sent = 12
    world.advance(2 * INTERVAL_MS + 10)
    first, second, third = pushes(broker)
    assert (first.client_instance_id, first.subscription_id, first.terminating) == (ID, 7, False)
    assert first.compression_type == 4
    assert values(first) == {
        ("producer.record.send.total",): 5,
        ("producer.batch.size.avg",): 9.5,
        ("producer.topic.byte.total", "topic=t0"): 5,
    }
    assert values(second)["producer.record.send.total",] == 7
    assert values(third)["producer.record.send.total",] == 0
    assert len(broker.sent(GetTelemetrySubscriptionsRequest)) == 1


def test_times_and_temporality_of_totals_since_the_last_push() -> None:
    world = World()
    broker = telemetric(world)
    connect(world)
    begun_ms = world.wall_ms()
    world.advance(2 * INTERVAL_MS + 10)
    times = []
    for push in pushes(broker):
        total = decoded(push).resource_metrics[0].scope_metrics[0].metrics[0].sum
        assert total.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        assert total.is_monotonic
        point = total.data_points[0]
        times += [point.start_time_unix_nano // 10**6, point.time_unix_nano // 10**6]
    assert times[0] == pytest.approx(begun_ms, abs=5)
    assert times[2] == times[1]
    assert times[3] - times[2] == pytest.approx(INTERVAL_MS, abs=5)


def test_totals_count_from_the_start_if_the_broker_wants_that() -> None:
    world = World()
    broker = telemetric(world, delta_temporality=False)
    _, counts = connect(world)
    for sent in (5, 12):
        counts.sent = sent
        world.advance(INTERVAL_MS + 10)
    assert [values(push)["producer.record.send.total",] for push in pushes(broker)] == [5, 12]
    total = decoded(pushes(broker)[1]).resource_metrics[0].scope_metrics[0].metrics[0].sum
    assert total.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def test_the_client_is_described_by_its_configs() -> None:
    world = World()
    broker = telemetric(world)
    connect(world, group_id="g", client_rack="r", transactional_id="x", group_instance_id="i")
    world.advance(INTERVAL_MS + 10)
    attributes = decoded(pushes(broker)[0]).resource_metrics[0].resource.attributes
    assert {label.key: label.value.string_value for label in attributes} == {
        "client_rack": "r",
        "group_id": "g",
        "group_instance_id": "i",
        "group_member_id": "m-1",
        "transactional_id": "x",
    }


@pytest.mark.parametrize(("accepted", "codec"), [([1], 1), ([2, 4], 2), ([3], 3), ([], 0), ([0, 4], 0)])
def test_the_first_accepted_codec_compresses(accepted: list[int], codec: int) -> None:
    world = World()
    broker = telemetric(world, accepted_compression_types=accepted)
    connect(world)
    world.advance(INTERVAL_MS + 10)
    (push,) = pushes(broker)
    assert push.compression_type == codec
    assert values(push)["producer.batch.size.avg",] == 9.5


def test_only_requested_metrics_are_pushed() -> None:
    world = World()
    broker = telemetric(world, requested_metrics=["org.apache.kafka.producer.topic.", "org.apache.kafka.consumer."])
    connect(world)
    world.advance(INTERVAL_MS + 10)
    assert set(values(pushes(broker)[0])) == {("producer.topic.byte.total", "topic=t0")}


def test_nothing_is_sent_to_a_broker_that_takes_no_metrics() -> None:
    world = World()
    broker = world.broker()
    core, _ = connect(world)
    world.advance(3_600_000)
    assert core.telemetry is None
    assert {type(request).__name__ for request, _ in broker.requests} == {"ApiVersionsRequest"}


def test_nothing_is_sent_when_it_is_switched_off() -> None:
    world = World()
    broker = telemetric(world)
    core, _ = connect(world, enable_metrics_push=False)
    world.advance(3_600_000)
    assert not broker.sent(GetTelemetrySubscriptionsRequest)
    with pytest.raises(IllegalState, match=r"enable\.metrics\.push=true"):
        world.run(core, client_instance_id(core, 1000))


def test_without_requested_metrics_the_client_looks_again() -> None:
    world = World()
    broker = telemetric(world, requested_metrics=[])
    connect(world)
    world.advance(INTERVAL_MS + 10)
    assert [asked.client_instance_id for asked in broker.sent(GetTelemetrySubscriptionsRequest)] == [bytes(16), ID]
    assert not pushes(broker)
    broker.on(GetTelemetrySubscriptionsRequest, response())
    world.advance(2 * INTERVAL_MS + 10)
    assert len(pushes(broker)) == 1


def test_without_requested_metrics_there_is_no_last_push() -> None:
    world = World()
    broker = telemetric(world, requested_metrics=[])
    core, _ = connect(world)
    assert core.telemetry is not None
    world.run(core, core.telemetry.close(1000))
    assert not pushes(broker)


@pytest.mark.parametrize("code", [UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE])
def test_after_a_stale_subscription_the_client_gets_another_one_at_once(code: int) -> None:
    world = World()
    broker = telemetric(world)
    broker.on(PushTelemetryRequest, PushTelemetryResponse(error_code=code), PushTelemetryResponse())
    _, counts = connect(world)
    counts.sent = 5
    broker.on(GetTelemetrySubscriptionsRequest, response(subscription_id=8))
    world.advance(INTERVAL_MS + 10)
    assert [asked.client_instance_id for asked in broker.sent(GetTelemetrySubscriptionsRequest)] == [bytes(16), ID]
    world.advance(INTERVAL_MS + 10)
    first, second = pushes(broker)
    assert (first.subscription_id, second.subscription_id) == (7, 8)
    assert values(second)["producer.record.send.total",] == 5  # the refused push does not count
    assert second.compression_type == (4 if code == UNKNOWN_SUBSCRIPTION_ID else 3)


@pytest.mark.parametrize("code", [TELEMETRY_TOO_LARGE, THROTTLING_QUOTA_EXCEEDED])
def test_after_a_push_that_came_too_early_or_was_too_large_the_client_waits(code: int) -> None:
    world = World()
    broker = telemetric(world)
    broker.on(PushTelemetryRequest, PushTelemetryResponse(error_code=code))
    connect(world)
    world.advance(2 * INTERVAL_MS - 10)
    assert len(broker.sent(GetTelemetrySubscriptionsRequest)) == 1
    world.advance(20)
    assert len(broker.sent(GetTelemetrySubscriptionsRequest)) == 2


def test_after_an_invalid_push_nothing_more_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    broker = telemetric(world)
    broker.on(PushTelemetryRequest, PushTelemetryResponse(error_code=INVALID_RECORD))
    core, _ = connect(world)
    with caplog.at_level(logging.INFO, "ottla.client"):
        world.advance(10 * INTERVAL_MS)
    assert len(pushes(broker)) == len(broker.sent(GetTelemetrySubscriptionsRequest)) == 1
    (message,) = caplog.messages
    assert message == "metrics of this client: PushTelemetry at one:9092: INVALID_RECORD; no more metrics are pushed"
    assert core.telemetry is not None
    world.run(core, core.telemetry.close(1000))
    assert len(pushes(broker)) == 1


def test_a_broker_that_chooses_no_id_gets_no_metrics(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    broker = telemetric(world, client_instance_id=bytes(16))
    with caplog.at_level(logging.INFO, "ottla.client"):
        connect(world)
        world.advance(10 * INTERVAL_MS)
    assert (len(broker.sent(GetTelemetrySubscriptionsRequest)), pushes(broker)) == (1, [])
    (message,) = caplog.messages
    assert message.endswith("the response has no client instance id; no more metrics are pushed")


def test_metrics_of_many_topics_are_encoded_in_steps() -> None:
    subscription = Subscription(ID, 7, INTERVAL_MS, (), ("*",), is_delta=True, max_bytes=1 << 20)
    counts = Counts((world := World()).core())
    counts.topics = 1200
    collection = Collection(world.wall_ms())
    assert sum(1 for _ in Collector(0).collect(counts.metrics(), subscription, collection)) == 3
    assert (len(collection.of_client), len(collection.of_parts)) == (2, 1200)


def test_an_error_is_logged_once_as_long_as_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    broker = telemetric(world)
    throttled = PushTelemetryResponse(error_code=THROTTLING_QUOTA_EXCEEDED)
    broker.on(PushTelemetryRequest, throttled, throttled, throttled, PushTelemetryResponse(), throttled)
    connect(world)
    with caplog.at_level(logging.INFO, "ottla.client"):
        world.advance(5 * INTERVAL_MS)
        assert len(caplog.messages) == 1
        world.advance(10 * INTERVAL_MS)
    assert len(pushes(broker)) > 5
    assert caplog.messages == ["metrics of this client: PushTelemetry at one:9092: THROTTLING_QUOTA_EXCEEDED"] * 2


def test_a_push_goes_to_another_broker_when_its_connection_is_lost() -> None:
    world = World()
    one = telemetric(world)
    two = telemetric(world, "two", 2)
    core, counts = connect(world, bootstrap_servers="one:9092,two:9092")
    counts.sent = 5
    one.on(PushTelemetryRequest, LOST)
    world.advance(INTERVAL_MS + 10)
    assert (len(pushes(one)), len(pushes(two))) == (1, 0)
    one.refuses = True
    core.network.brokers = {2: ("two", 9092)}
    world.run(core, core.metadata.any_link())
    world.advance(INTERVAL_MS + 10)
    (push,) = pushes(two)
    assert (push.client_instance_id, push.subscription_id) == (ID, 7)
    assert values(push)["producer.record.send.total",] == 0  # the first broker may have counted them
    assert not two.sent(GetTelemetrySubscriptionsRequest)


def test_no_connection_is_opened_for_metrics() -> None:
    world = World()
    broker = telemetric(world)
    connect(world)
    broker.lose_all()
    world.advance(10 * INTERVAL_MS)
    assert len(world.opened) == 1
    assert not pushes(broker)


def test_a_push_that_would_be_too_large_lacks_topics() -> None:
    world = World()
    broker = telemetric(world, telemetry_max_bytes=400, accepted_compression_types=[])
    _, counts = connect(world)
    counts.topics = 1000
    world.advance(INTERVAL_MS + 10)
    assert set(values(pushes(broker)[0])) == {("producer.record.send.total",), ("producer.batch.size.avg",)}


def test_a_push_that_is_too_large_in_any_case_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    broker = telemetric(world, telemetry_max_bytes=10)
    connect(world)
    with caplog.at_level(logging.INFO, "ottla.client"):
        world.advance(5 * INTERVAL_MS)
    assert not pushes(broker)
    assert caplog.messages == ["metrics of this client: metrics are larger than one:9092 accepts (10 bytes)"]


def test_a_subscription_without_a_response_is_requested_again_later() -> None:
    world = World()
    broker = telemetric(world)
    broker.on(GetTelemetrySubscriptionsRequest, LOST, response())
    core, _ = connect(world)
    world.advance(10)
    world.run(core, core.metadata.any_link())
    world.advance(RETRY_MS - 100)
    assert len(broker.sent(GetTelemetrySubscriptionsRequest)) == 1
    world.advance(200)
    assert len(broker.sent(GetTelemetrySubscriptionsRequest)) == 2


def test_the_last_push_comes_at_the_close() -> None:
    world = World()
    broker = telemetric(world)
    core = world.core()
    admin = AdminCore(core)
    world.run(core, core.metadata.any_link())
    world.advance(10)
    world.run(core, admin.close())
    core.close()
    (push,) = pushes(broker)
    assert push.terminating
    assert values(push)["admin.client.connection.creation.total",] == 1
    world.advance(10 * INTERVAL_MS)
    assert len(pushes(broker)) == 1


@pytest.mark.parametrize(("timeout_ms", "longest_ms"), [(0, 0), (300, 300), (30_000, 1000)])
def test_a_close_does_not_wait_for_a_broker_that_does_not_answer(timeout_ms: int, longest_ms: int) -> None:
    world = World()
    broker = telemetric(world)
    broker.on(PushTelemetryRequest, None)
    core, _ = connect(world)
    world.advance(10)
    assert core.telemetry is not None
    begun_ms = world.now
    world.run(core, core.telemetry.close(timeout_ms))
    assert world.now - begun_ms <= longest_ms
    world.advance(5)
    assert [push.terminating for push in pushes(broker)] == [True]


def test_a_push_in_flight_at_the_close_is_not_counted_twice() -> None:
    world = World()
    broker = telemetric(world)
    broker.on(PushTelemetryRequest, None, PushTelemetryResponse())
    core, counts = connect(world)
    counts.sent = 5
    world.advance(INTERVAL_MS + 10)
    counts.sent = 6
    assert core.telemetry is not None
    world.run(core, core.telemetry.close(1000))
    assert [values(push)["producer.record.send.total",] for push in pushes(broker)] == [5, 1]


def test_the_client_instance_id_is_that_of_the_broker() -> None:
    world = World()
    telemetric(world)
    core = world.core()
    Counts(core)
    assert world.run(core, client_instance_id(core, 1000)) == uuid_text(ID)


def test_a_broker_that_takes_no_metrics_gives_no_client_instance_id() -> None:
    world = World()
    world.broker()
    core = world.core()
    Counts(core)
    begun_ms = world.now
    assert world.run(core, client_instance_id(core, 700)) is None
    assert world.now - begun_ms == 700


def test_unreachable_brokers_give_no_client_instance_id() -> None:
    core = (world := World()).core()
    Counts(core)
    with pytest.raises(BrokersUnreachable):
        world.run(core, client_instance_id(core, 700))
