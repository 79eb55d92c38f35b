"""The pytest plugin that comes with an installed Ottla: brokers as fixtures.

kafka           a broker for one test
kafka_session   one broker for all tests that ask for it; topics and groups are deleted after each
kafka_factory   as many brokers as a test wants: `kafka_factory({"num.partitions": 3})`
kafka_config    the configs of them all; override it in a conftest.py, with scope="session" if kafka_session is used

`@pytest.mark.kafka(**{"auto.create.topics.enable": "false"})` gives the broker of one test configs of its own. Nothing of Ottla
is imported before a test asks for one of these.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.kafka import Kafka


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "kafka(**configs): configs of the broker that the fixture `kafka` starts")


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, object]:
    """Configs of the brokers that these fixtures start, by Kafka's names; none unless overridden."""
    return {}


@pytest.fixture
def kafka(request: pytest.FixtureRequest, kafka_config: Mapping[str, object]) -> "Iterator[Kafka]":
    """A fresh Kafka broker in this process, for this test alone."""
    from ottla.testing.kafka import Kafka

    configs = dict(kafka_config)
    for marker in reversed(list(request.node.iter_markers("kafka"))):
        configs.update(marker.kwargs)
    with Kafka(configs) as broker:
        yield broker


@pytest.fixture
def kafka_factory(kafka_config: Mapping[str, object]) -> "Iterator[Callable[..., Kafka]]":
    """Starts Kafka brokers, each a cluster of its own; all are gone after the test."""
    from ottla.testing.kafka import Kafka

    with ExitStack() as brokers:

        def start(configs: Mapping[str, object] | None = None) -> "Kafka":
            return brokers.enter_context(Kafka({**kafka_config, **(configs or {})}))

        yield start


@pytest.fixture(scope="session")
def _broker_of_session(kafka_config: Mapping[str, object]) -> "Iterator[Kafka]":
    from ottla.testing.kafka import Kafka

    with Kafka(kafka_config) as broker:
        yield broker


@pytest.fixture
def kafka_session(_broker_of_session: "Kafka") -> "Iterator[Kafka]":
    """A Kafka broker that all tests share; its topics and groups are deleted after each test."""
    yield _broker_of_session
    _broker_of_session.clear()
