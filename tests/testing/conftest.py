"""The fixtures that testers get, also where Ottla is not installed with its entry points, and a connection to speak over."""

from collections.abc import Iterator

import pytest

from ottla.testing import Kafka
from ottla.testing.plugin import (  # noqa: F401
    kafka,
    kafka_class,
    kafka_cluster,
    kafka_config,
    kafka_factory,
    kafka_module,
    kafka_session,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_fixture_post_finalizer,
    pytest_fixture_setup,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)
from tests.conformance.conftest import Topic, TopicFactory, Wire


@pytest.fixture
def wire(kafka: Kafka) -> Iterator[Wire]:  # noqa: F811
    connection = Wire(kafka.address, is_kafka=False)
    yield connection
    connection.close()


@pytest.fixture
def topic(wire: Wire) -> Topic:
    """A topic of one partition, on the broker of this test."""
    return TopicFactory(wire)(name="orders")
