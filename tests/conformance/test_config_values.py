"""Odd values of configs of every type, from the request to the description, as in Apache Kafka 4.4.0."""

import pytest

from ottla.metadata.configs.alteration import BROKER, SET
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest

from . import config_values
from .conftest import Topic, Wire
from .test_incremental_alter_configs import incremental


@pytest.mark.parametrize(
    ("kind", "config", "values"), config_values.ROWS, ids=[config for _, config, _ in config_values.ROWS]
)
def test_odd_values(broker: Wire, topic: Topic, kind: int, config: str, values: tuple[str, ...]) -> None:
    outcomes = {value: config_values.outcome(broker, kind, topic.name, config, value) for value in values}
    assert outcomes == config_values.recorded()[config]


@pytest.mark.parametrize(
    ("config", "value"),
    [
        ("log.cleanup.policy", "compact,compact"),
        ("sasl.enabled.mechanisms", "PLAIN,PLAIN"),
        ("cordoned.log.dirs", "*,*"),
        ("metric.reporters", "a.B,a.B"),
        ("ssl.enabled.protocols", "TLSv1.2,TLSv1.2"),
    ],
)
def test_duplicates_in_lists_of_a_broker_are_refused(broker: Wire, config: str, value: str) -> None:
    """Those of topics and subscriptions are dropped."""
    resource = "" if config in ("log.cleanup.policy", "metric.reporters") else str(node(broker))
    outcome = incremental(broker, (BROKER, resource, [(config, SET, value)]))
    assert outcome == [("INVALID_REQUEST", f"Configuration '{config}' values must not be duplicated.")]


def node(broker: Wire) -> int:
    node_id: int = broker.send(DescribeClusterRequest(), 0).brokers[0].broker_id
    return node_id
