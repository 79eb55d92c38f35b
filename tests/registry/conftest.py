"""A registry for tests: Ottla's, or the one at --schema-registry."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from ottla.registry.service import RegistryConfig, RegistryThread
from ottla.testing import Kafka
from tests.registry.apicurio import DIFFERENCES
from tests.registry.client import Registry


@pytest.fixture(scope="module")
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    """A registry for the tests of a module; each uses subjects of its own."""
    url = request.config.getoption("--schema-registry")
    if url is not None:
        yield Registry(url)
        return
    with Kafka() as kafka:
        thread = RegistryThread(RegistryConfig(kafka.client_config, port=0))
        thread.run(thread.service.wait_ready())
        yield Registry(thread.url)
        thread.stop()


@pytest.fixture
def own_registry() -> Iterator[Registry]:
    """A registry of Ottla for one test, which may change global settings and contexts."""
    with Kafka() as kafka:
        thread = RegistryThread(RegistryConfig(kafka.client_config, port=0))
        thread.run(thread.service.wait_ready())
        yield Registry(thread.url)
        thread.stop()


@pytest.fixture(autouse=True)
def skip_differences(request: pytest.FixtureRequest) -> None:
    """Skip a test that the registry at --schema-registry does not pass, and say why."""
    if request.config.getoption("--schema-registry") is None:
        return
    reason = DIFFERENCES.get(request.function.__name__)
    if reason is not None or "registry" not in request.fixturenames:
        pytest.skip(reason or "a registry of its own")


@pytest.fixture
def subject() -> str:
    """A subject that nothing else uses."""
    return f"orders-{uuid4().hex[:8]}"
