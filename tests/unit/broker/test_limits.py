"""How many connections are let in."""

import pytest

from ottla.broker.config import broker_config
from ottla.broker.limits import ConnectionLimits
from ottla.metadata.configs import InvalidConfig


def test_an_address_has_its_own_limit() -> None:
    limits = ConnectionLimits(most=100, per_ip=2, overrides={"10.0.0.7": 0, "10.0.0.8": 3})
    assert [limits.enter("10.0.0.1") for _ in range(3)] == [True, True, False]
    assert [limits.enter("10.0.0.2") for _ in range(3)] == [True, True, False]
    assert not limits.enter("10.0.0.7")
    assert [limits.enter("10.0.0.8") for _ in range(4)] == [True, True, True, False]
    limits.leave("10.0.0.1")
    assert [limits.enter("10.0.0.1") for _ in range(2)] == [True, False]


def test_full_is_full_until_somebody_leaves() -> None:
    limits = ConnectionLimits(most=2, per_ip=100, overrides={})
    seen = []
    for step, ip in ((limits.enter, "a"), (limits.enter, "b"), (limits.leave, "a")):
        step(ip)
        seen.append(limits.full)
    assert seen == [False, True, False]


def test_overrides_are_read() -> None:
    text = " 10.0.0.7:20, [::1]:5 ,localhost:0"
    config = broker_config({"max.connections.per.ip.overrides": text})
    assert config.connections_per_ip == {"10.0.0.7": 20, "::1": 5, "localhost": 0}
    assert broker_config({}).connections_per_ip == {}


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.7:x", ":5", "10.0.0.7:-1"])
def test_overrides_that_are_none(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"max\.connections\.per\.ip\.overrides"):
        broker_config({"max.connections.per.ip.overrides": text})
