"""Limits on connections: their number and their rate."""

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.broker.config import broker_config
from ottla.broker.connections.limits import ConnectionLimits, LimitConfigs
from ottla.metadata.configs import InvalidConfig
from ottla.security.quotas import Window


def limits_of(
    most: int = 100, per_ip: int = 100, overrides: Mapping[str, int] | None = None, **more: Any
) -> ConnectionLimits:
    configs = LimitConfigs(most, per_ip, overrides or {}, **{"by_listener": {}, **more})
    return ConnectionLimits(configs, Window(samples=11, size_ms=1000))


def test_an_address_has_its_own_limit() -> None:
    limits = limits_of(per_ip=2, overrides={"10.0.0.7": 0, "10.0.0.8": 3})
    assert [limits.enter("10.0.0.1", "A") for _ in range(3)] == [True, True, False]
    assert [limits.enter("10.0.0.2", "A") for _ in range(3)] == [True, True, False]
    assert not limits.enter("10.0.0.7", "A")
    assert [limits.enter("10.0.0.8", "A") for _ in range(4)] == [True, True, True, False]
    limits.leave("10.0.0.1", "A")
    assert [limits.enter("10.0.0.1", "A") for _ in range(2)] == [True, False]


def test_a_broker_at_its_limit_accepts_no_connection_until_one_closes() -> None:
    limits = limits_of(most=2)
    seen = []
    for step, ip in ((limits.enter, "a"), (limits.enter, "b"), (limits.leave, "a")):
        step(ip, "A")
        seen.append(limits.is_full("A"))
    assert seen == [False, True, False]


def test_a_listener_at_its_limit_does_not_stop_others() -> None:
    limits = limits_of(by_listener={"A": 1})
    assert not limits.is_full("A")
    limits.enter("a", "A")
    limits.enter("b", "B")
    assert limits.is_full("A")
    assert not limits.is_full("B")
    limits.leave("a", "A")
    assert not limits.is_full("A")


def test_brokers_connect_above_the_limit_of_the_broker_but_not_of_their_listener() -> None:
    limits = limits_of(most=1, by_listener={"INNER": 2}, protected="INNER")
    limits.enter("a", "A")
    assert (limits.is_full("A"), limits.is_full("INNER"), limits.is_exceeded) == (True, False, False)
    limits.enter("b", "INNER")
    assert (limits.is_full("INNER"), limits.is_exceeded) == (False, True)
    limits.enter("b", "INNER")
    assert limits.is_full("INNER")


def waits(limits: ConnectionLimits, count: int, *, listener: str = "A", now_ms: int = 0) -> list[int]:
    """Waiting times of connections, each of which arrives when the one before was accepted; as Apache Kafka's."""
    delays = []
    for _ in range(count):
        delays.append(limits.wait_ms(listener, now_ms))
        now_ms += delays[-1]
    return delays


def test_a_listener_waits_above_the_rate_of_the_broker() -> None:
    """Two a second for ten seconds are free; then the rate is reached after half a second, and a second at most."""
    assert waits(limits_of(rate=2), 24) == [0] * 20 + [500, 500, 1000, 1000]
    assert waits(limits_of(), 1000) == [0] * 1000


def test_a_listener_waits_above_its_own_rate() -> None:
    limits = limits_of(rates={"A": 3})
    assert waits(limits, 33) == [0] * 30 + [333, 334, 333]
    assert waits(limits, 33, listener="B") == [0] * 33


def test_connections_of_all_listeners_count_but_those_of_the_protected_one() -> None:
    limits = limits_of(rate=2, protected="INNER")
    assert waits(limits, 50, listener="INNER") == [0] * 50
    assert waits(limits, 20) == [0] * 20
    assert waits(limits, 1, listener="B") == [500]
    assert waits(limits_of(rate=2, rates={"INNER": 1}, protected="INNER"), 11, listener="INNER")[-1] == 1000


def test_a_rate_of_zero_lets_in_one_connection_a_second() -> None:
    assert waits(limits_of(rate=0), 2) == [1000, 1000]


def test_overrides_are_read() -> None:
    text = " 10.0.0.7:20, [::1]:5 ,localhost:0"
    config = broker_config({"max.connections.per.ip.overrides": text})
    assert config.connections_per_ip == {"10.0.0.7": 20, "::1": 5, "localhost": 0}
    assert broker_config({}).connections_per_ip == {}


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.7:x", ":5", "10.0.0.7:-1"])
def test_malformed_overrides_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"max\.connections\.per\.ip\.overrides"):
        broker_config({"max.connections.per.ip.overrides": text})
