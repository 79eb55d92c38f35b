"""Fixtures of the console's tests. The extra `console` may be missing here: the test modules skip themselves."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ottla import Admin, TopicPartition
from ottla.testing import EmbeddedBroker
from tests.console import Broker
from tests.console.flights import fill

if TYPE_CHECKING:
    from tests.console.browser import Browse, Browser

BROKER_CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="package")
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """An embedded broker, or that of `--broker`: an empty one, with BROKER_CONFIGS."""
    address = request.config.getoption("--broker")
    if address is not None:
        yield Broker(address)
        return
    with EmbeddedBroker(BROKER_CONFIGS) as embedded:
        yield Broker(embedded.bootstrap_servers)


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def browse(broker: Broker) -> "Iterator[Browse]":
    """Start consoles with these options; return a browser at each."""
    from ottla.console.application import console_application
    from tests.console.browser import browsing, settings_for

    with ExitStack() as stack:

        def start(base: str = "/c/test", broker_of_console: Broker = broker, **options: Any) -> "Browser":
            settings = settings_for(broker_of_console, **options)
            return stack.enter_context(browsing(console_application(settings), base))

        yield start


@pytest.fixture
def browser(browse: "Browse") -> "Browser":
    return browse()


@pytest.fixture(scope="package")
def flights(broker: Broker) -> None:
    """A topic with three partitions and 30 records."""
    fill(broker)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    from tests.console.chromium import start_chromium

    with start_chromium() as driver:
        yield driver


@pytest.fixture(scope="package")
def address(broker: Broker, flights: None) -> Iterator[str]:
    """URL of a cluster at a console with a group, a schema registry and a Spark query."""
    from ottla.schemas.registry import SchemaRegistry
    from tests.console.chromium import serving
    from tests.console.test_schemas import FIRST, SECOND
    from tests.console.test_spark import TEXT, publishing
    from tests.spark import schema_registry

    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_consumer_group_offsets("board", {TopicPartition("flights", 0): 4})
    with schema_registry.serving() as registry, publishing(TEXT) as metrics:
        registry.add("flights-value", FIRST)
        registry.add("flights-value", SECOND)
        options = {"registry": SchemaRegistry(location=registry.address, retries=0), "spark_metrics": (metrics,)}
        with serving(broker, **options) as url:
            yield f"{url}/c/test"
