"""A stream that a share group feeds."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from ottla import Admin, ConfigChange, ConfigResource, ResourceType, ShareConsumer
from tests.spark import since
from tests.spark.conftest import Cluster, Reading, Sent

pytestmark = since("4.2")


def numbered(first: int, count: int, partitions: int = 1) -> list[Sent]:
    return [Sent(b"v%03d" % i, partition=i % partitions) for i in range(first, first + count)]


def from_the_beginning(cluster: Cluster, **configs: str) -> str:
    """A share group that begins at the beginning of its topics."""
    group = cluster.name()
    group_configs = {
        "share.auto.offset.reset": "earliest",
        **{name.replace("_", "."): value for name, value in configs.items()},
    }
    with Admin(bootstrap_servers=cluster.servers) as admin:
        changes = [ConfigChange(name, value) for name, value in group_configs.items()]
        resource = ConfigResource(ResourceType.GROUP, group)
        assert admin.incremental_alter_configs({resource: changes})[resource] is None
    return group


def left_for_others(cluster: Cluster, group: str, topic: str) -> list[str]:
    """Return the values that the group still delivers, sorted."""
    values = []
    with ShareConsumer(bootstrap_servers=cluster.servers, group_id=group) as consumer:
        consumer.subscribe([topic])
        while records := consumer.poll(3):
            values += [(record.value or b"").decode() for record in records]
    return sorted(values)


class Taking:
    """Runs of a query: the rows of its batches, and the tasks that read them."""

    def __init__(self, folder: Path) -> None:
        self.batches: list[list[str]] = []
        self.tasks: list[int] = []
        self.meanwhile: Callable[[], None] | None = None  # done once, within the first batch
        self._folder = folder
        self._fails = False

    def run(self, frame: DataFrame, *, fails: bool = False) -> list[str]:
        """With availableNow; what came, sorted."""
        self.batches = []
        self._fails = fails
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._folder))
        writer.trigger(availableNow=True).start().awaitTermination()
        return sorted(value for batch in self.batches for value in batch)

    def _take(self, frame: DataFrame, number: int) -> None:
        if self._fails:
            raise RuntimeError("the sink is broken")
        rows = [row[0] for row in frame.selectExpr("cast(value AS string)").collect()]
        if rows:
            meanwhile, self.meanwhile = self.meanwhile, None
            if meanwhile is not None:
                meanwhile()
            self.batches.append(rows)
            self.tasks.append(frame.rdd.getNumPartitions())


@pytest.fixture
def taking(tmp_path: Path) -> Taking:
    return Taking(tmp_path)


def test_records_of_a_share_group_are_delivered_once(reading: Reading, cluster: Cluster, taking: Taking) -> None:
    topic = cluster.topic(numbered(0, 30, 3), partitions=3)
    group = from_the_beginning(cluster)
    frame = reading.stream(subscribe=topic, shareGroup=group)
    assert taking.run(frame) == [f"v{i:03}" for i in range(30)]
    assert taking.run(frame) == []
    cluster.send(topic, numbered(30, 5, 3))
    assert taking.run(frame) == [f"v{i:03}" for i in range(30, 35)]
    assert left_for_others(cluster, group, topic) == []


def test_more_tasks_than_partitions(reading: Reading, cluster: Cluster, taking: Taking) -> None:
    topic = cluster.topic(numbered(0, 40))
    group = from_the_beginning(cluster)
    frame = reading.stream(subscribe=topic, shareGroup=group, maxRecordsPerPartition=10)
    assert taking.run(frame) == [f"v{i:03}" for i in range(40)]
    assert taking.tasks == [4]


def test_a_batch_that_fails_goes_back_to_the_group(reading: Reading, cluster: Cluster, taking: Taking) -> None:
    topic = cluster.topic(numbered(0, 10))
    group = from_the_beginning(cluster)
    with pytest.raises(StreamingQueryException, match="the sink is broken"):
        taking.run(reading.stream(subscribe=topic, shareGroup=group), fails=True)
    assert left_for_others(cluster, group, topic) == [f"v{i:03}" for i in range(10)]


def test_a_batch_that_was_planned_is_read_again(
    reading: Reading, cluster: Cluster, taking: Taking, tmp_path: Path
) -> None:
    topic = cluster.topic(numbered(0, 10))
    frame = reading.stream(subscribe=topic, shareGroup=from_the_beginning(cluster))
    with pytest.raises(StreamingQueryException, match="the sink is broken"):
        taking.run(frame, fails=True)
    planned = json.loads((tmp_path / "offsets" / "0").read_text().splitlines()[-1])
    assert planned["#acquired"] == {topic: {"0": [[0, 9]]}}
    assert set(taking.run(frame)) == {f"v{i:03}" for i in range(10)}  # at least once
    assert taking.run(frame) == []


def test_records_written_during_a_run_are_left_for_the_next_one(
    reading: Reading, cluster: Cluster, taking: Taking
) -> None:
    topic = cluster.topic(numbered(0, 10))
    group = from_the_beginning(cluster)
    frame = reading.stream(subscribe=topic, shareGroup=group, maxOffsetsPerTrigger=5)
    taking.meanwhile = lambda: cluster.send(topic, numbered(10, 3))
    assert taking.run(frame) == [f"v{i:03}" for i in range(10)]
    assert [len(batch) for batch in taking.batches] == [5, 5]
    assert left_for_others(cluster, group, topic) == [f"v{i:03}" for i in range(10, 13)]


def test_locks_are_kept_while_a_batch_takes_its_time(reading: Reading, cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic(numbered(0, 6))
    group = from_the_beginning(cluster, share_record_lock_duration_ms="1500")
    seen: list[list[str]] = []

    def slow(frame: DataFrame, number: int) -> None:
        if frame.isEmpty():
            return
        seen.append(left_for_others(cluster, group, topic))  # waits 3 s: twice as long as the locks last

    frame = reading.stream(subscribe=topic, shareGroup=group)
    writer = frame.writeStream.foreachBatch(slow).option("checkpointLocation", str(tmp_path))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert seen == [[]]
    assert left_for_others(cluster, group, topic) == []
