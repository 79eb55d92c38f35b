"""Pytest plugin with brokers as fixtures.

kafka           a broker for one test
kafka_class     a broker for the tests of a class
kafka_module    a broker for the tests of a module
kafka_session   a broker for all tests; what a test has left in it is deleted after the test
kafka_factory   creates any number of brokers: `kafka_factory({"num.partitions": 3})`
kafka_cluster   starts a cluster of several brokers: `kafka_cluster(3)`
kafka_config    configs of all these brokers; override it in a conftest.py, with scope="session"

`@pytest.mark.kafka(**{"auto.create.topics.enable": "false"})` sets configs of the brokers that are started for one test, class
or module. A mark that no fixture can apply is a usage error. The rest of Ottla is only imported when a test uses one of these
fixtures.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster import KafkaCluster
    from ottla.testing.kafka import Kafka
    from ottla.testing.shared import SharedKafka

_MARKED_AT: Final[Mapping[str, tuple[type[pytest.Collector | pytest.Item], ...]]] = {
    "kafka": (pytest.Item, pytest.Collector),
    "kafka_factory": (pytest.Item, pytest.Collector),
    "kafka_cluster": (pytest.Item, pytest.Collector),
    "kafka_class": (pytest.Collector,),
    "kafka_module": (pytest.Module, pytest.Package),
    "kafka_session": (),
}
"""Nodes whose marks are known when a fixture starts its broker."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `kafka`."""
    config.addinivalue_line("markers", "kafka(**configs): configs of the brokers that the fixtures of a test start")


# Marks.


_useless_mark: pytest.StashKey[str] = pytest.StashKey()


def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Refuse marks that have no effect. Raises UsageError; in a worker of xdist, which cannot, the test fails."""
    for item in items:
        for node, mark in item.iter_markers_with_node("kafka"):
            reason = _why_useless(item, node, mark)
            if reason is None:
                continue
            message = f"{item.nodeid}: @pytest.mark.kafka {reason}"
            if not hasattr(config, "workerinput"):
                raise pytest.UsageError(message)
            item.stash[_useless_mark] = message


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test with a mark that has no effect."""
    message = item.stash.get(_useless_mark, None)
    if message is not None:
        pytest.fail(message, pytrace=False)


def _why_useless(item: pytest.Item, node: object, mark: pytest.Mark) -> str | None:
    if mark.args:
        return f'takes configs by name, **{{"num.partitions": 3}}, not {mark.args[0]!r}'
    fixtures = getattr(item, "fixturenames", ())
    used = [name for name in _MARKED_AT if name in fixtures]
    late = [name for name in used if not isinstance(node, _MARKED_AT[name])]
    if late == ["kafka_session"]:
        return "does not reach kafka_session, which other tests share: use kafka or kafka_factory, or set kafka_config"
    if late:
        return (
            f"does not reach {late[0]}, which is started for several tests: mark the {late[0].removeprefix('kafka_')}"
        )
    if not used and node is item and "request" not in fixtures:
        return f"has no effect: the test uses none of {', '.join(_MARKED_AT)}"
    return None


def _configs_of(request: pytest.FixtureRequest, kafka_config: Mapping[str, object]) -> dict[str, object]:
    """Return the configs for the scope of a fixture: those of `kafka_config`, then of marks, the nearest last."""
    configs = dict(kafka_config)
    for mark in reversed(list(request.node.iter_markers("kafka"))):
        configs.update(mark.kwargs)
    return configs


# Fixtures.


@pytest.fixture(scope="session")
def kafka_config() -> Mapping[str, object]:
    """Configs of the brokers that these fixtures start, by Kafka's names; empty by default."""
    return {}


def _run_broker(configs: Mapping[str, object]) -> "Iterator[Kafka]":
    from ottla.testing.kafka import Kafka

    with Kafka(configs) as broker:
        yield broker


@pytest.fixture
def kafka(request: pytest.FixtureRequest, kafka_config: Mapping[str, object]) -> "Iterator[Kafka]":
    """A new Kafka broker in this process, for one test."""
    yield from _run_broker(_configs_of(request, kafka_config))


@pytest.fixture(scope="class")
def kafka_class(request: pytest.FixtureRequest, kafka_config: Mapping[str, object]) -> "Iterator[Kafka]":
    """A Kafka broker for the tests of a class; nothing in it is deleted between them."""
    yield from _run_broker(_configs_of(request, kafka_config))


@pytest.fixture(scope="module")
def kafka_module(request: pytest.FixtureRequest, kafka_config: Mapping[str, object]) -> "Iterator[Kafka]":
    """A Kafka broker for the tests of a module; nothing in it is deleted between them."""
    yield from _run_broker(_configs_of(request, kafka_config))


@pytest.fixture
def kafka_factory(
    request: pytest.FixtureRequest, kafka_config: Mapping[str, object]
) -> "Iterator[Callable[..., Kafka]]":
    """Function that starts a Kafka broker as a cluster of its own; all are stopped after the test."""
    from ottla.testing.calls import checked
    from ottla.testing.kafka import Kafka

    defaults = _configs_of(request, kafka_config)
    with ExitStack() as brokers:

        @checked
        def kafka_factory(configs: Mapping[str, object] | None = None) -> "Kafka":
            return brokers.enter_context(Kafka({**defaults, **(configs or {})}))

        yield kafka_factory


@pytest.fixture
def kafka_cluster(
    request: pytest.FixtureRequest, kafka_config: Mapping[str, object]
) -> "Iterator[Callable[..., KafkaCluster]]":
    """Function that starts a cluster of Kafka brokers; all are stopped after the test."""
    from ottla.testing.calls import checked
    from ottla.testing.cluster import KafkaCluster

    defaults = _configs_of(request, kafka_config)
    with ExitStack() as clusters:

        @checked
        def kafka_cluster(
            brokers: int = 3, configs: Mapping[str, object] | None = None, *, racks: Sequence[str] = ()
        ) -> "KafkaCluster":
            return clusters.enter_context(KafkaCluster(brokers, {**defaults, **(configs or {})}, racks=racks))

        yield kafka_cluster


# The shared broker.

_shared: "pytest.StashKey[SharedKafka]" = pytest.StashKey()


@pytest.fixture(scope="session")
def kafka_session(request: pytest.FixtureRequest, kafka_config: Mapping[str, object]) -> "Iterator[Kafka]":
    """A Kafka broker for all tests, and for fixtures of any scope.

    After each test its topics and groups are deleted, except those that fixtures of a wider scope have made and still use.
    """
    from ottla.testing.shared import SharedKafka

    with SharedKafka(kafka_config) as broker:
        request.config.stash[_shared] = broker
        try:
            yield broker
        finally:
            del request.config.stash[_shared]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Note what fixtures of a wider scope than a test create in the shared broker."""
    broker = request.config.stash.get(_shared, None)
    if broker is None or fixturedef.scope == "function":
        return (yield)
    with broker.creating(fixturedef, uses_broker="kafka_session" in fixturedef.argnames):
        return (yield)


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    """Let the next test delete what a fixture has created."""
    broker = request.config.stash.get(_shared, None)
    if broker is not None:
        broker.release(fixturedef)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Clear the shared broker after a test that used it, and after the last test of a fixture that did."""
    try:
        return (yield)
    finally:
        broker = item.config.stash.get(_shared, None)
        is_used = "kafka_session" in getattr(item, "fixturenames", ())
        if broker is not None and (is_used or broker.has_released):
            broker.clear()
