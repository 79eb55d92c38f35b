"""How many connections are let in."""

from collections.abc import Mapping
from typing import Any

import pytest

from ottla.broker.config import broker_config
from ottla.broker.limits import ConnectionLimits, LimitConfigs
from ottla.metadata.configs import InvalidConfig


def limits_of(
    most: int = 100, per_ip: int = 100, overrides: Mapping[str, int] | None = None, **more: Any
) -> ConnectionLimits:
    return ConnectionLimits(LimitConfigs(most, per_ip, overrides or {}, **{"by_listener": {}, **more}))


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


def test_overrides_are_read() -> None:
    text = " 10.0.0.7:20, [::1]:5 ,localhost:0"
    config = broker_config({"max.connections.per.ip.overrides": text})
    assert config.connections_per_ip == {"10.0.0.7": 20, "::1": 5, "localhost": 0}
    assert broker_config({}).connections_per_ip == {}


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.7:x", ":5", "10.0.0.7:-1"])
def test_overrides_that_are_none(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"max\.connections\.per\.ip\.overrides"):
        broker_config({"max.connections.per.ip.overrides": text})
