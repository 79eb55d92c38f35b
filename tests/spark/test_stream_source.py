"""Stream reads: triggers, limits, checkpoints, what is new while a query runs."""

import ast
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from ottla.spark.cluster import ClusterClient as Brokers
from ottla.spark.offsets import Positions
from ottla.spark.options import source_options
from ottla.spark.schema import COLUMNS, arrow_schema
from ottla.spark.stream import OttlaStreamReader, ReadAllAvailable
from tests.spark import since
from tests.spark.conftest import Cluster, Reading, Sent


class Target:
    """Files that a query writes, and its checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._rows, self._checkpoint = str(folder / "rows"), str(folder / "checkpoint")

    def start(self, frame: DataFrame, *, available_now: bool = True) -> StreamingQuery:
        writer = (
            frame.selectExpr("cast(value AS string) AS value", "partition", "offset")
            .coalesce(1)
            .writeStream.format("json")
            .option("path", self._rows)
            .option("checkpointLocation", self._checkpoint)
        )
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, frame: DataFrame) -> list[int]:
        """To the end of what is there; returns the rows of each micro-batch that had any."""
        query = self.start(frame)
        query.awaitTermination()
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def values(self) -> list[str]:
        """Return the values that have been written, sorted."""
        rows = self._spark.read.schema("value string").json(self._rows).collect()
        return sorted(row[0] for row in rows)


@pytest.fixture
def target(spark: SparkSession, tmp_path: Path) -> Target:
    return Target(spark, tmp_path)


def numbered(first: int, count: int, partitions: int = 1) -> list[Sent]:
    return [Sent(b"v%03d" % i, partition=i % partitions) for i in range(first, first + count)]


def wait_until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    """Raises what ended the query, or fails after half a minute."""
    deadline = time.monotonic() + 30
    while not condition():
        error = query.exception()
        if error is not None:
            raise error
        assert time.monotonic() < deadline, query.lastProgress
        query.awaitTermination(0.05)  # type: ignore[arg-type]  # seconds, fractions too


@since("4.2")
def test_available_now_takes_limited_steps_and_a_restart_goes_on(
    reading: Reading, cluster: Cluster, target: Target
) -> None:
    topic = cluster.topic(numbered(0, 40, 2), partitions=2)
    frame = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=12)
    assert target.run(frame) == [12, 12, 12, 4]
    cluster.send(topic, numbered(40, 10, 2))
    assert target.run(frame) == [10]
    assert target.run(frame) == []
    assert target.values() == [f"v{i:03}" for i in range(50)]


@since("4.2")
def test_the_limit_is_shared_in_proportion_to_the_partitions(
    reading: Reading, cluster: Cluster, target: Target
) -> None:
    records = [Sent(b"a", partition=0) for _ in range(30)] + [Sent(b"b", partition=1) for _ in range(10)]
    topic = cluster.topic(records, partitions=3)
    frame = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    query = target.start(frame)
    query.awaitTermination()
    ends = [json.loads(progress["sources"][0]["endOffset"])[topic] for progress in query.recentProgress]
    assert ends[:2] == [{"0": 15, "1": 5, "2": 0}, {"0": 30, "1": 10, "2": 0}]


def test_offsets_by_json(reading: Reading, cluster: Cluster, target: Target) -> None:
    topic = cluster.topic(numbered(0, 20, 2), partitions=2)
    start = json.dumps({topic: {"0": 8, "1": -1}})
    assert target.run(reading.stream(subscribe=topic, startingOffsets=start)) == [2]
    assert target.values() == ["v016", "v018"]


def test_a_running_query_starts_at_the_end_and_sees_what_is_new(
    reading: Reading, cluster: Cluster, target: Target
) -> None:
    stem = cluster.name()
    topic = cluster.topic(numbered(0, 5), name=f"{stem}-a")
    query = target.start(reading.stream(subscribePattern=f"^{stem}-.*"), available_now=False)
    try:
        # Records are new once the query has fixed where it starts: it tells its offsets from the first trigger on.
        wait_until(lambda: query.lastProgress is not None, query)
        cluster.send(topic, numbered(100, 3))
        wait_until(lambda: target_has(target, 3), query)
        cluster.topic(numbered(200, 2), name=f"{stem}-b")  # from its beginning
        wait_until(lambda: target_has(target, 5), query)
    finally:
        query.stop()
    assert target.values() == ["v100", "v101", "v102", "v200", "v201"]


def target_has(target: Target, count: int) -> bool:
    return len(target.values()) >= count


def test_a_recreated_topic_ends_the_query_unless_loss_is_allowed(
    reading: Reading, cluster: Cluster, target: Target
) -> None:
    topic = cluster.topic(numbered(0, 5))
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    assert target.run(reading.stream(**options)) == [5]
    cluster.delete(topic)
    cluster.topic(numbered(5, 2), name=topic)
    with pytest.raises(
        StreamingQueryException, match=rf"topic {topic} was deleted and created again \(its id was"
    ) as raised:
        target.run(reading.stream(**options))
    assert "onTopicRecreated=restart" in str(raised.value)
    assert "failOnDataLoss=false" in str(raised.value)
    assert target.values() == [f"v{i:03}" for i in range(5)]
    # As Spark's own source: it goes on at the end of the new one.
    target.run(reading.stream(**options, failOnDataLoss="false"))
    cluster.send(topic, numbered(7, 2))
    assert target.run(reading.stream(**options)) == [2]
    assert target.values() == ["v000", "v001", "v002", "v003", "v004", "v007", "v008"]


def test_a_recreated_topic_is_read_from_its_beginning_on_request(
    reading: Reading, cluster: Cluster, target: Target
) -> None:
    topic = cluster.topic(numbered(0, 5))
    frame = reading.stream(subscribe=topic, startingOffsets="earliest", onTopicRecreated="restart")
    assert target.run(frame) == [5]
    cluster.delete(topic)
    cluster.topic(numbered(5, 7), name=topic)  # more than there were before: offsets alone would not tell
    assert target.run(frame) == [7]
    assert target.values() == [f"v{i:03}" for i in range(12)]


@pytest.mark.parametrize(
    ("options", "after"),
    [
        ({"onTopicRecreated": "restart"}, ["v005", "v006", "v007"]),
        ({"onTopicRecreated": "restart", "failOnDataLoss": "false"}, ["v005", "v006", "v007"]),
        # As Spark's own source: it goes on at the end that the new topic has when it is noticed.
        ({"failOnDataLoss": "false"}, ["v007"]),
    ],
    ids=["restart", "restart and loss", "loss"],
)
def test_a_topic_that_is_deleted_and_recreated_does_not_end_a_running_stream(
    reading: Reading, cluster: Cluster, target: Target, options: dict[str, str], after: list[str]
) -> None:
    first, second = cluster.topic(numbered(0, 5)), cluster.topic([Sent(b"w0")])
    group = cluster.name()
    frame = reading.stream(subscribe=f"{first},{second}", startingOffsets="earliest", groupOffsets=group, **options)
    query = target.start(frame, available_now=False)
    try:
        wait_until(lambda: len(target.values()) == 6, query)
        cluster.delete(first)
        # The other topic is read while the first one is missing; the metadata of all processes has aged by then.
        for number in range(1, 8):
            cluster.send(second, [Sent(b"w%d" % number)])
            wait_until(lambda: f"w{number}" in target.values(), query)  # noqa: B023
        cluster.topic(numbered(5, 2), name=first)
        seen = len(query.recentProgress)
        if "onTopicRecreated" in options:
            wait_until(lambda: "v006" in target.values(), query)
        else:
            wait_until(
                lambda: any(
                    ends_at(progress.sources[0].endOffset, first, 2) for progress in query.recentProgress[seen:]
                ),
                query,
            )
        cluster.send(first, numbered(7, 1))
        wait_until(lambda: "v007" in target.values(), query)
        assert query.isActive
    finally:
        query.stop()
    assert [value for value in target.values() if value > "v004" and value < "w"] == after
    assert [value for value in target.values() if value <= "v004"] == [f"v{i:03}" for i in range(5)]


def parsed(offset: str) -> Any:
    """The offset of a progress; PySpark 4.0 writes it in Python's syntax."""
    return ast.literal_eval(offset) if offset.startswith("{'") else json.loads(offset)


def ends_at(end: str, topic: str, offset: int) -> bool:
    return bool(parsed(end)[topic]["0"] == offset)


def test_a_topic_that_does_not_come_back_in_time_ends_the_query_or_is_left_out(
    reading: Reading, cluster: Cluster, target: Target
) -> None:
    topic, other = cluster.topic(numbered(0, 5)), cluster.topic(numbered(5, 1))
    options = {
        "subscribe": f"{topic},{other}",
        "startingOffsets": "earliest",
        "onTopicRecreated": "restart",
        "missingTopicTimeout": "1s",
    }
    query = target.start(reading.stream(**options), available_now=False)
    wait_until(lambda: len(target.values()) == 6, query)
    cluster.delete(topic)
    with pytest.raises(StreamingQueryException, match=rf"topic {topic} was deleted and not recreated within 1 s"):
        query.awaitTermination(60)
    query = target.start(reading.stream(**options, failOnDataLoss="false"), available_now=False)
    try:
        cluster.send(other, numbered(6, 1))
        wait_until(lambda: len(target.values()) == 7, query)
        wait_until(lambda: topic not in parsed(query.recentProgress[-1].sources[0].endOffset), query)
    finally:
        query.stop()


def test_a_task_may_know_only_the_topic_that_was(cluster: Cluster) -> None:
    topic = cluster.topic(numbered(0, 5))
    config = source_options({"kafka.bootstrap.servers": cluster.servers, "subscribe": topic}, stream=True).config
    with Brokers(config) as worker:
        assert len(worker.partitions(topic)) == 1
        cluster.delete(topic)
        cluster.topic(numbered(5, 7), name=topic)
        with Brokers(config) as driver:
            anew = driver.topic(topic).id
        chunks = worker.read(worker.partitions(topic)[0], 0, 7, topic_id=anew, timeout_ms=20_000)
        assert [record.value for chunk in chunks for record in chunk.records()] == [b"v%03d" % i for i in range(5, 12)]


@since("4.2")
def test_records_before_the_first_committed_batch_are_not_lost(
    reading: Reading, cluster: Cluster, tmp_path: Path
) -> None:
    """startingOffsets=latest, and a query that dies in its first batch: Spark keeps the end of that batch, not its start."""
    topic = cluster.topic(numbered(0, 3))
    seen: list[list[str]] = []

    def take(frame: DataFrame, batch: int) -> None:
        seen.append(sorted(row[0] for row in frame.selectExpr("cast(value AS string)").collect()))

    def fail(frame: DataFrame, batch: int) -> None:
        raise RuntimeError("the sink is broken")

    writer = reading.stream(subscribe=topic).writeStream.option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException, match="the sink is broken"):
        writer.foreachBatch(fail).trigger(availableNow=True).start().awaitTermination()
    cluster.send(topic, numbered(3, 4))
    writer.foreachBatch(take).trigger(availableNow=True).start().awaitTermination()
    assert [batch for batch in seen if batch] == [[f"v{i:03}" for i in range(3, 7)]]


@since("4.2")
def test_a_checkpoint_with_offsets_only_goes_on(
    reading: Reading, cluster: Cluster, target: Target, tmp_path: Path
) -> None:
    """As Spark's own source writes it."""
    topic = cluster.topic(numbered(0, 6))
    frame = reading.stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4)
    assert target.run(frame) == [4, 2]
    kept = tmp_path / "checkpoint" / "offsets" / "1"
    *head, offsets = kept.read_text().splitlines()
    assert set(json.loads(offsets)) == {topic, "#topicIds"}
    kept.write_text("\n".join([*head, json.dumps({topic: {"0": 6}})]))
    (kept.parent / ".1.crc").unlink(missing_ok=True)
    assert target.run(frame) == []
    cluster.send(topic, numbered(6, 3))
    assert target.run(frame) == [3]
    assert target.values() == [f"v{i:03}" for i in range(9)]


@since("4.2")
def test_batches_of_bytes(reading: Reading, cluster: Cluster, target: Target) -> None:
    records = [Sent(b"x" * 1000, partition=i % 2) for i in range(60)]
    topic = cluster.topic(records, partitions=2, batch_size=4000)
    sizes = target.run(reading.stream(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="20k"))
    assert sum(sizes) == 60
    assert sizes[:-1] == [pytest.approx(19, abs=2)] * (len(sizes) - 1)


@since("4.2")
def test_fewer_than_min_offsets_per_trigger_wait_for_more(reading: Reading, cluster: Cluster, target: Target) -> None:
    topic = cluster.topic(numbered(0, 2))
    frame = reading.stream(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    query = target.start(frame, available_now=False)
    try:
        wait_until(lambda: target_has(target, 2), query)  # the first batch takes what there is
        cluster.send(topic, numbered(2, 3))
        cluster.send(topic, numbered(5, 3))
        wait_until(lambda: target_has(target, 8), query)
        batches = [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]
    finally:
        query.stop()
    assert batches[0] == 2
    assert batches[1] >= 5


def test_pieces_of_partitions(reading: Reading, cluster: Cluster, target: Target) -> None:
    topic = cluster.topic(numbered(0, 10))
    frame = reading.stream(subscribe=topic, startingOffsets="earliest", maxRecordsPerPartition=4)
    assert target.run(frame) == [10]
    assert reading.batch(subscribe=topic, maxRecordsPerPartition=4).rdd.getNumPartitions() == 3


def test_a_first_batch_that_failed_and_what_comes_after_it_are_read_by_any_release(
    reading: Reading, cluster: Cluster, tmp_path: Path
) -> None:
    """Before 4.2 a run with availableNow has one batch: what comes after one that is repeated is for the next run."""
    topic = cluster.topic(numbered(0, 3))
    seen: list[str] = []

    def take(frame: DataFrame, batch: int) -> None:
        seen.extend(row[0] for row in frame.selectExpr("cast(value AS string)").collect())

    def fail(frame: DataFrame, batch: int) -> None:
        raise RuntimeError("the sink is broken")

    for start in ("latest", "earliest"):
        writer = reading.stream(subscribe=topic, startingOffsets=start).writeStream
        writer = writer.option("checkpointLocation", str(tmp_path / start))
        with pytest.raises(StreamingQueryException, match="the sink is broken"):
            writer.foreachBatch(fail).trigger(availableNow=True).start().awaitTermination()
        cluster.send(topic, numbered(3, 4))
        for _ in range(2):
            writer.foreachBatch(take).trigger(availableNow=True).start().awaitTermination()
    first, again = [f"v{i:03}" for i in range(3, 7)], [f"v{i:03}" for i in range(7)]
    assert sorted(seen) == sorted([*first, *again, *first])


@since("4.2")
def test_a_group_s_offsets_follow_the_query(
    reading: Reading, cluster: Cluster, target: Target, tmp_path: Path, spark: SparkSession
) -> None:
    topic = cluster.topic(numbered(0, 10, 2), partitions=2)
    group = cluster.name()
    cluster.commit(group, topic, {0: 2})
    options = {"subscribe": topic, "startingOffsets": "earliest", "groupOffsets": group}
    assert target.run(reading.stream(**options)) == [8]  # partition 0 from 2 on, 1 from its beginning
    assert cluster.committed(group, topic) == {0: 5, 1: 5}
    cluster.send(topic, numbered(10, 4, 2))
    cluster.commit(group, topic, {0: 0, 1: 0})  # the checkpoint wins
    assert target.run(reading.stream(**options)) == [4]
    assert cluster.committed(group, topic) == {0: 7, 1: 7}
    other = Target(spark, tmp_path / "other")
    assert other.run(reading.stream(**options)) == []


def test_a_deleted_topic_ends_the_query_unless_loss_is_allowed(
    reading: Reading, cluster: Cluster, target: Target
) -> None:
    stem = cluster.name()
    first, second = (cluster.topic([Sent(name.encode())], name=f"{stem}-{name}") for name in "ab")
    options = {"subscribe": f"{first},{second}", "startingOffsets": "earliest"}
    assert target.run(reading.stream(**options)) == [2]
    cluster.delete(second)
    with pytest.raises(StreamingQueryException, match=f"topic {second} does not exist. Set failOnDataLoss=false"):
        target.run(reading.stream(**options))
    cluster.send(first, numbered(0, 1))
    assert target.run(reading.stream(**options, failOnDataLoss="false")) == [1]


def test_a_topic_without_records(reading: Reading, cluster: Cluster, target: Target) -> None:
    frame = reading.stream(subscribe=cluster.topic(partitions=2), startingOffsets="earliest", includeHeaders="true")
    assert target.run(frame) == []


@since("4.2")
def test_a_stream_at_its_end_waits_unless_available_now(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []

    def waited(_: Brokers, positions: Positions, wait_ms: int) -> bool:
        waits.append(len(positions))
        return False

    monkeypatch.setattr(Brokers, "wait_for_records", waited)
    topic = cluster.topic([Sent(b"v")])

    def at_its_end(*, available_now: bool, **chosen: str) -> None:
        options = {"kafka.bootstrap.servers": cluster.servers, "startingOffsets": "earliest", **chosen}
        reader = OttlaStreamReader(source_options(options, stream=True), arrow_schema(COLUMNS))
        if available_now:
            reader.prepareForTriggerAvailableNow()
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        assert reader.latestOffset(end, ReadAllAvailable()) == end

    at_its_end(available_now=True, subscribe=topic)
    assert waits == []
    at_its_end(available_now=False, subscribe=topic)
    assert waits == [1]
    at_its_end(available_now=False, subscribePattern="no-topic-has-this-name")
    assert waits == [1, 0]
