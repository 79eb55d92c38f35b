"""Times at which a client requests its subscription and pushes its metrics (KIP-714)."""

import pytest

from ottla.client.telemetry.plan import DEFAULT_INTERVAL_MS, RETRY_MS, PushPlan
from ottla.protocol.errors import (
    INVALID_RECORD,
    INVALID_REQUEST,
    NONE,
    TELEMETRY_TOO_LARGE,
    THROTTLING_QUOTA_EXCEEDED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_SUBSCRIPTION_ID,
    UNSUPPORTED_COMPRESSION_TYPE,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse

ID = bytes(range(16))
INTERVAL_MS = 60_000


class Chance:
    def __init__(self, share: float = 0.5) -> None:
        self._share = share

    def bytes16(self) -> bytes:
        raise AssertionError("brokers choose the id")

    def below(self, bound: int) -> int:
        return int((bound - 1) * self._share)


def response(
    metrics: tuple[str, ...] = ("*",), interval_ms: int = INTERVAL_MS, *, instance_id: bytes = ID, code: int = NONE
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        error_code=code,
        client_instance_id=instance_id,
        subscription_id=7,
        accepted_compression_types=[4, 3, 1, 2],
        push_interval_ms=interval_ms,
        telemetry_max_bytes=1000,
        delta_temporality=True,
        requested_metrics=list(metrics),
    )


def subscribed(share: float = 0.5, metrics: tuple[str, ...] = ("*",)) -> PushPlan:
    """Return a plan whose subscription has come at 0 ms."""
    plan = PushPlan(Chance(share), 0)
    plan.on_subscription(response(metrics), 0)
    return plan


def test_the_subscription_is_requested_at_once_without_an_id() -> None:
    plan = PushPlan(Chance(), 5)
    assert (plan.pushes, plan.due_ms, plan.instance_id) == (False, 5, bytes(16))


@pytest.mark.parametrize(("share", "due_ms"), [(0, 30_000), (0.5, 60_000), (1, 90_000)])
def test_the_first_push_is_spread_over_half_to_one_and_a_half_intervals(share: float, due_ms: int) -> None:
    plan = subscribed(share)
    assert (plan.pushes, plan.due_ms, plan.instance_id) == (True, due_ms, ID)


def test_later_pushes_come_every_interval() -> None:
    plan = subscribed()
    plan.on_pushed(NONE, 60_010)
    assert (plan.pushes, plan.due_ms) == (True, 120_010)


def test_without_requested_metrics_the_subscription_is_requested_every_interval() -> None:
    plan = subscribed(metrics=())
    assert (plan.pushes, plan.due_ms, plan.instance_id) == (False, INTERVAL_MS, ID)


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_an_invalid_interval_is_five_minutes(interval_ms: int) -> None:
    plan = PushPlan(Chance(), 0)
    plan.on_subscription(response(interval_ms=interval_ms), 0)
    assert plan.due_ms == DEFAULT_INTERVAL_MS


@pytest.mark.parametrize(
    ("code", "due_ms"),
    [
        (UNKNOWN_SUBSCRIPTION_ID, 1000),
        (UNSUPPORTED_COMPRESSION_TYPE, 1000),
        (TELEMETRY_TOO_LARGE, 1000 + INTERVAL_MS),
        (THROTTLING_QUOTA_EXCEEDED, 1000 + INTERVAL_MS),
        (INVALID_REQUEST, None),
        (INVALID_RECORD, None),
        (UNSUPPORTED_VERSION, None),
        (UNKNOWN_SERVER_ERROR, None),
    ],
)
def test_after_an_error_of_a_push_the_subscription_is_requested_again(code: int, due_ms: int | None) -> None:
    plan = subscribed()
    plan.on_pushed(code, 1000)
    assert (plan.pushes, plan.due_ms, plan.instance_id) == (False, due_ms, ID)


@pytest.mark.parametrize(
    ("code", "due_ms"),
    [
        (UNKNOWN_SUBSCRIPTION_ID, RETRY_MS),
        (THROTTLING_QUOTA_EXCEEDED, DEFAULT_INTERVAL_MS),
        (INVALID_REQUEST, None),
        (UNSUPPORTED_VERSION, None),
    ],
)
def test_an_error_of_the_subscription_causes_no_tight_loop(code: int, due_ms: int | None) -> None:
    plan = PushPlan(Chance(), 0)
    plan.on_subscription(response(code=code), 0)
    assert (plan.pushes, plan.due_ms) == (False, due_ms)


def test_a_broker_that_chooses_no_id_gets_no_metrics() -> None:
    plan = PushPlan(Chance(), 0)
    plan.on_subscription(response(instance_id=bytes(16)), 0)
    assert (plan.pushes, plan.due_ms) == (False, None)


def test_a_push_without_a_response_is_repeated_after_an_interval() -> None:
    plan = subscribed()
    plan.on_unanswered(70_000)
    assert (plan.pushes, plan.due_ms) == (True, 130_000)


def test_a_subscription_without_a_response_is_requested_again() -> None:
    plan = PushPlan(Chance(), 0)
    plan.on_unanswered(100)
    assert (plan.pushes, plan.due_ms) == (False, 100 + RETRY_MS)


def test_a_codec_that_was_refused_is_not_used_again() -> None:
    plan = subscribed()
    codecs = [plan.codec]
    for _ in range(4):
        plan.on_pushed(UNSUPPORTED_COMPRESSION_TYPE, 0)
        plan.on_subscription(response(), 0)
        codecs.append(plan.codec)
    assert codecs == [4, 3, 1, 2, 0]


def test_unknown_codecs_are_passed_over() -> None:
    plan = PushPlan(Chance(), 0)
    answer = response()
    answer.accepted_compression_types = [9, 1]
    plan.on_subscription(answer, 0)
    assert plan.codec == 1


@pytest.mark.parametrize(
    ("prefixes", "names"),
    [
        (("*",), {"org.apache.kafka.producer.record.send.total", "org.apache.kafka.consumer.x"}),
        (("org.apache.kafka.producer.",), {"org.apache.kafka.producer.record.send.total"}),
        (("a.", "org.apache.kafka.c"), {"org.apache.kafka.consumer.x"}),
    ],
)
def test_a_subscription_has_metrics_by_prefix(prefixes: tuple[str, ...], names: set[str]) -> None:
    subscription = subscribed(metrics=prefixes).subscription
    assert subscription is not None
    every = ("org.apache.kafka.producer.record.send.total", "org.apache.kafka.consumer.x")
    assert {name for name in every if subscription.has(name)} == names
