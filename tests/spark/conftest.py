"""One Spark session for all tests of this folder, and topics with known content on Ottla or on `--broker HOST:PORT`."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from pyspark.sql import DataFrame, SparkSession

from ottla.spark.releases import RELEASE
from ottla.spark.session import session_builder, stop_session
from ottla.testing import EmbeddedBroker
from tests.client.conftest import QUICK

T0 = 1_700_000_000_000


def pytest_itemcollected(item: pytest.Item) -> None:
    """Allow for PySpark before 4.2, which leaves the sockets to its JVM open."""
    if RELEASE < (4, 2):
        for category in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"ignore::{category}"))


@pytest.fixture(scope="session")
def a_spark_of_its_own(request: pytest.FixtureRequest) -> None:
    """For tests that start another Spark: half a minute and most of the machine each."""
    if not request.config.getoption("--interop"):
        pytest.skip("starts a Spark of its own: with --interop")


class Sent(NamedTuple):
    """A record: headers as confluent-kafka takes them, timestamp in ms."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes | None]] | None = None
    timestamp: int = T0
    partition: int = 0


class Cluster:
    """The broker under test, filled and read by a client that is not ours."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def name(self) -> str:
        """Return a unique topic name."""
        return f"spark-{uuid.uuid4().hex[:12]}"

    def topic(
        self,
        records: Sequence[Sent] = (),
        partitions: int = 1,
        name: str | None = None,
        topic_configs: dict[str, str] | None = None,
        **configs: Any,
    ) -> str:
        """A new topic with these records; `configs` are the producer's, with _ for the dot."""
        name = name or self.name()
        self._admin.create_topics([NewTopic(name, partitions, 1, config=topic_configs or {})])[name].result(20)
        self.send(name, records, **configs)
        return name

    def send(self, topic: str, records: Sequence[Sent], **configs: Any) -> None:
        """Append records, each partition in their order."""
        client_configs = {key.replace("_", "."): value for key, value in configs.items()}
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 5, "log_level": 0, **client_configs})
        failed: list[Any] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                headers=record.headers,  # type: ignore[arg-type]  # None values are fine, its stubs do not know
                timestamp=record.timestamp,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert (producer.flush(30), failed) == (0, [])

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(20)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(20)

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """Commit offsets of a group without members."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        consumer.commit(
            offsets=[TopicPartition(topic, number, offset) for number, offset in offsets.items()], asynchronous=False
        )
        consumer.close()

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """A group's offsets, partitions without one left out."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        positions = consumer.committed([TopicPartition(topic, number) for number in range(self.partitions(topic))], 20)
        consumer.close()
        return {position.partition: position.offset for position in positions if position.offset >= 0}

    def partitions(self, topic: str) -> int:
        return len(self._admin.list_topics(topic, 10).topics[topic].partitions)

    def records(self, topic: str, *, committed: bool = False) -> list[Sent]:
        """All records of a topic, partition by partition, as confluent-kafka reads them; `committed` leaves out what
        transactions that are open or aborted have written."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "unused",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        records: list[Sent] = []
        try:
            for number in range(self.partitions(topic)):
                consumer.assign([TopicPartition(topic, number, 0)])
                while True:
                    message = consumer.poll(20)
                    assert message is not None, f"nothing comes of {topic}-{number}"
                    error = message.error()
                    if error is not None:
                        assert error.code() == KafkaError._PARTITION_EOF, error
                        break
                    headers: Any = message.headers()
                    records.append(Sent(message.value(), message.key(), headers, message.timestamp()[1], number))
        finally:
            consumer.close()
        return records


@contextmanager
def broker_under_test(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Ottla in this process, or what `--broker` names."""
    address = request.config.getoption("--broker")
    if address:
        yield Cluster(address)
        return
    with EmbeddedBroker(QUICK) as embedded:
        yield Cluster(embedded.bootstrap_servers)


@contextmanager
def started_session(name: str, **configs: str) -> Iterator[SparkSession]:
    """A session on two cores; `configs` with _ for the dot."""
    builder = session_builder(name).master("local[2]")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        **{key.replace("_", "."): value for key, value in configs.items()},
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    stop_session(session)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with broker_under_test(request) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with started_session("tests") as session:
        yield session


class Reading:
    """format("ottla") on the broker under test."""

    def __init__(self, spark: SparkSession, servers: str) -> None:
        self._spark = spark
        self._servers = servers

    def batch(self, schema: str | None = None, **options: str | int) -> DataFrame:
        reader = self._spark.read.format("ottla").option("kafka.bootstrap.servers", self._servers)
        return (reader.schema(schema) if schema else reader).options(**options).load()

    def stream(self, schema: str | None = None, **options: str | int) -> DataFrame:
        reader = self._spark.readStream.format("ottla").option("kafka.bootstrap.servers", self._servers)
        return (reader.schema(schema) if schema else reader).options(**options).load()


@pytest.fixture
def reading(spark: SparkSession, cluster: Cluster) -> Reading:
    return Reading(spark, cluster.servers)
