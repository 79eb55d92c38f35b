"""Other people's clients against Ottla, or against whatever `--broker HOST:PORT` names."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import EmbeddedBroker
from tests.crash.conftest import dice
from tests.interop.apache_kafka import skip_without

__all__ = ["dice"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 300
SHARES = [range(start, start + 60) for start in range(0, RECORDS, 60)]  # one for each of CODECS
PARTITIONS = 4


CONFIGS = {
    "group.initial.rebalance.delay.ms": "0",
    # Members of consumer groups ask the broker how often to call; the defaults, 5 s and 45 s, would make long tests.
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "10000",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.min.session.timeout.ms": "6000",
    # Transactions that took too long are looked for every 10 s.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


class Cluster:
    """A broker that can be restarted under the clients' feet: on the same port and directory."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._broker = self._started(0)
        self.bootstrap = self._broker.bootstrap_servers

    def _started(self, port: int) -> EmbeddedBroker:
        return EmbeddedBroker(CONFIGS, data_dir=self._data_dir, port=port)

    def restart(self) -> None:
        """Stop it well, and start it again."""
        port = self._broker.address[1]
        self._broker.close()
        self._broker = self._started(port)

    def close(self) -> None:
        self._broker.close()


class Foreign:
    """A broker that this test did not start and leaves running."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def restart(self) -> None:
        """Not ours to restart: committed offsets and records must be found all the same."""


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster | Foreign]:
    address = request.config.getoption("--broker")
    if address:
        yield Foreign(address)
        return
    own = Cluster(tmp_path_factory.mktemp("broker"))
    yield own
    own.close()


@pytest.fixture(scope="session")
def kafka_tools(request: pytest.FixtureRequest) -> None:
    """For modules that compare with Kafka's own tools."""
    skip_without("kafka-tools-4.3.1", request)


@pytest.fixture(scope="session")
def apache_kafka(request: pytest.FixtureRequest) -> None:
    """For modules that start an Apache Kafka."""
    skip_without("kafka-4.4.0", request)


@pytest.fixture
def topic() -> str:
    return f"interop-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:12]}"
