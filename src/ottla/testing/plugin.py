"""Pytest plugin with brokers as fixtures.

kafka           a broker for one test
kafka_session   one broker shared by all tests that use it; topics and groups are deleted after each test
kafka_factory   creates any number of brokers: `kafka_factory({"num.partitions": 3})`
kafka_cluster   starts a cluster of several brokers: `kafka_cluster(3)`
kafka_config    configs of all these brokers; override it in a conftest.py, with scope="session" for kafka_session

`@pytest.mark.kafka(**{"auto.create.topics.enable": "false"})` sets configs of the broker of one test. The rest of Ottla is only
imported when a test uses one of these fixtures.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import KafkaCluster
    from ottla.testing.kafka import Kafka


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `kafka`."""
    config.addinivalue_line("markers", "kafka(**configs): configs of the broker that the fixture `kafka` starts")


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, object]:
    """Configs of the brokers that these fixtures start, by Kafka's names; empty by default."""
    return {}


@pytest.fixture
def kafka(request: pytest.FixtureRequest, kafka_config: Mapping[str, object]) -> "Iterator[Kafka]":
    """A new Kafka broker in this process, for one test."""
    from ottla.testing.kafka import Kafka

    configs = dict(kafka_config)
    for marker in reversed(list(request.node.iter_markers("kafka"))):
        configs.update(marker.kwargs)
    with Kafka(configs) as broker:
        yield broker


@pytest.fixture
def kafka_factory(kafka_config: Mapping[str, object]) -> "Iterator[Callable[..., Kafka]]":
    """Function that starts a Kafka broker as a cluster of its own; all are stopped after the test."""
    from ottla.testing.kafka import Kafka

    with ExitStack() as brokers:

        def start(configs: Mapping[str, object] | None = None) -> "Kafka":
            return brokers.enter_context(Kafka({**kafka_config, **(configs or {})}))

        yield start


@pytest.fixture
def kafka_cluster(kafka_config: Mapping[str, object]) -> "Iterator[Callable[..., KafkaCluster]]":
    """Function that starts a cluster of Kafka brokers; all are stopped after the test."""
    from ottla.testing.cluster import KafkaCluster

    with ExitStack() as clusters:

        def start(
            brokers: int = 3, configs: Mapping[str, object] | None = None, *, racks: Sequence[str] = ()
        ) -> "KafkaCluster":
            return clusters.enter_context(KafkaCluster(brokers, {**kafka_config, **(configs or {})}, racks=racks))

        yield start


@pytest.fixture(scope="session")
def _broker_of_session(kafka_config: Mapping[str, object]) -> "Iterator[Kafka]":
    from ottla.testing.kafka import Kafka

    with Kafka(kafka_config) as broker:
        yield broker


@pytest.fixture
def kafka_session(_broker_of_session: "Kafka") -> "Iterator[Kafka]":
    """A Kafka broker shared by all tests; its topics and groups are deleted after each test."""
    yield _broker_of_session
    _broker_of_session.clear()
