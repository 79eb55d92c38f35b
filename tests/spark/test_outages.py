"""Brokers are away for a while, and the query goes on: by default it waits for ten minutes."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.spark.options import sink_options, source_options
from ottla.testing import EmbeddedBroker
from tests.spark.conftest import Cluster, Sent

AWAY_S = 8.0
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


class Outage:
    """A broker that goes away and comes back at the same address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._broker = EmbeddedBroker(data_dir=folder)
        self.servers = self._broker.bootstrap_servers
        self.cluster = Cluster(self.servers)

    def begin(self) -> None:
        self._broker.close()

    def end(self) -> None:
        self._broker = EmbeddedBroker(data_dir=self._folder, port=int(self.servers.rpartition(":")[2]))

    def close(self) -> None:
        self._broker.close()


@pytest.fixture
def outage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Outage]:
    if request.config.getoption("--broker"):
        pytest.skip("a broker that this test did not start is not stopped")
    made = Outage(tmp_path / "data")
    yield made
    made.close()


def start_query(
    spark: SparkSession, outage: Outage, tmp_path: Path, source: str, target: str, **options: str
) -> StreamingQuery:
    """A query that copies a topic; a call to the brokers gives up after 2 s, so that an outage of seconds is a long one."""
    timeouts = {"kafka.default.api.timeout.ms": "2000", "kafka.bootstrap.servers": outage.servers}
    stream = (
        spark.readStream.format("ottla")
        .options(**timeouts, **options, subscribe=source, startingOffsets="earliest")
        .load()
    )
    return (
        stream.selectExpr("value")
        .writeStream.format("ottla")
        .options(topic=target, **{"kafka.bootstrap.servers": outage.servers})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )


def wait_for(query: StreamingQuery, cluster: Cluster, target: str, values: list[bytes]) -> None:
    deadline = time.monotonic() + 60
    while [record.value for record in cluster.records(target)] != values:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, cluster.records(target)
        time.sleep(0.2)


def test_a_stream_outlives_an_outage(spark: SparkSession, outage: Outage, tmp_path: Path) -> None:
    """It ended with the first call that took longer than a connection may."""
    now = int(time.time() * 1000)
    source, target = outage.cluster.topic([Sent(b"a", timestamp=now)]), outage.cluster.topic()
    query = start_query(spark, outage, tmp_path, source, target)
    try:
        wait_for(query, outage.cluster, target, [b"a"])
        outage.begin()
        time.sleep(AWAY_S)
        assert query.isActive, query.exception()
        outage.end()
        outage.cluster.send(source, [Sent(b"b", timestamp=now)])
        wait_for(query, outage.cluster, target, [b"a", b"b"])
    finally:
        query.stop()


def test_a_stream_ends_when_an_outage_is_too_long(spark: SparkSession, outage: Outage, tmp_path: Path) -> None:
    source, target = outage.cluster.topic([Sent(b"a", timestamp=int(time.time() * 1000))]), outage.cluster.topic()
    query = start_query(spark, outage, tmp_path, source, target, brokerOutageTimeout="5s")
    try:
        wait_for(query, outage.cluster, target, [b"a"])
        while query.lastProgress is None:  # the sink's commit of the batch would wait for the brokers for ten minutes
            assert query.isActive, query.exception()
            time.sleep(0.1)
        outage.begin()
        with pytest.raises(PySparkException, match=outage.servers):
            query.awaitTermination(60)
        assert not query.isActive
    finally:
        query.stop()


def test_the_outage_timeout_is_ten_minutes_by_default() -> None:
    assert source_options({**SERVERS, "subscribe": "t"}, stream=True).outage_ms == 600_000
    assert source_options({**SERVERS, "subscribe": "t"}, stream=True).poll_timeout_ms == 600_000
    options = source_options({**SERVERS, "subscribe": "t", "brokerOutageTimeout": "1h"}, stream=True)
    assert (options.outage_ms, options.poll_timeout_ms) == (3_600_000, 3_600_000)
    sink = sink_options({**SERVERS, "topic": "t"}, stream=True)
    assert {sink.config[name] for name in ("default.api.timeout.ms", "delivery.timeout.ms", "max.block.ms")} == {
        600_000
    }
    sink = sink_options({**SERVERS, "kafka.delivery.timeout.ms": "1000", "brokerOutageTimeout": "30s"}, stream=True)
    assert (sink.config["delivery.timeout.ms"], sink.config["max.block.ms"]) == (1000, 30_000)


def test_a_batch_has_no_outage_timeout() -> None:
    for make in (
        lambda: source_options({**SERVERS, "subscribe": "t", "brokerOutageTimeout": "1m"}, stream=False),
        lambda: sink_options({**SERVERS, "topic": "t", "brokerOutageTimeout": "1m"}, stream=False),
    ):
        with pytest.raises(ValueError, match="brokerOutageTimeout is for streams only"):
            make()
