"""The exactly-once sink without Spark: tasks and drivers that stop at every step, on Ottla or on `--broker HOST:PORT`.

What Spark does is short: it runs the tasks of a batch, gives their messages to the driver's `commit`, and runs a batch again
that it has not noted as committed. So a run is an object here, and to kill it is to forget it.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.blocking import Producer
from ottla.client.topics import LATEST, TopicPartition
from ottla.spark import exactly_once
from ottla.spark.cluster import ClusterClient as Brokers
from ottla.spark.exactly_once import TaskResult, TaskWriter, abort_batch, end_all, prepare, publish, transactional_id
from ottla.spark.options import SinkOptions, sink_options
from ottla.spark.publication import Decision, PublicationError
from tests.spark.conftest import Cluster, Sent


class Killed(BaseException):
    """The process is gone."""


def rows(values: list[str]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.string())})


class Sink(NamedTuple):
    """A query's sink, seen from tests."""

    brokers: Brokers
    producer: Producer
    options: SinkOptions
    sink: str
    cluster: Cluster

    def task(self, batch: int, number: int, values: list[str]) -> TaskResult:
        """Run a task."""
        return self.writing(batch, number).write(iter([rows(values)]))

    def writing(self, batch: int, number: int) -> TaskWriter:
        """A task that is to run."""
        config = self.options.transactional_config(transactional_id(self.sink, number))
        named = self.options.sink_id is not None
        return TaskWriter(self.brokers, config, self.options.topic, self.sink, batch, number, named=named)

    def commit(self, batch: int, written: list[TaskResult]) -> None:
        """Publish the batch as the driver does after its tasks."""
        publish(
            self.brokers,
            self.producer,
            self.sink,
            batch,
            [result.transaction for result in written if result.transaction],
        )

    def batch(self, number: int, *tasks: list[str]) -> None:
        """A whole batch."""
        self.commit(number, [self.task(number, task, values) for task, values in enumerate(tasks)])

    def published(self) -> list[str]:
        """Return the committed values, sorted."""
        assert self.options.topic is not None
        return sorted(
            (record.value or b"").decode() for record in self.cluster.records(self.options.topic, committed=True)
        )


@pytest.fixture(scope="module")
def brokers(cluster: Cluster) -> Iterator[tuple[Brokers, Producer]]:
    config = sink_options({"kafka.bootstrap.servers": cluster.servers}, stream=False).config
    with Brokers(config) as brokers, Producer(config) as producer:
        prepare(brokers)
        yield brokers, producer


@pytest.fixture
def sink(cluster: Cluster, brokers: tuple[Brokers, Producer]) -> Sink:
    return new_sink(cluster, brokers)


def new_sink(cluster: Cluster, brokers: tuple[Brokers, Producer]) -> Sink:
    topic = cluster.topic(partitions=2)
    options = sink_options(
        {"kafka.bootstrap.servers": cluster.servers, "topic": topic, "exactlyOnce": "true"}, stream=False
    )
    return Sink(*brokers, options, topic, cluster)


def test_batches_one_after_the_other(sink: Sink) -> None:
    sink.batch(0, ["a", "b"], ["c"])
    sink.batch(1, ["d"], [])
    sink.batch(2, ["e"], ["f"], ["g"])  # another number of tasks
    assert sink.published() == list("abcdefg")


def test_records_are_visible_after_the_commit_of_the_driver(sink: Sink) -> None:
    written = [sink.task(0, 0, ["a"]), sink.task(0, 1, ["b"])]
    assert sink.published() == []
    sink.commit(0, written)
    assert sink.published() == ["a", "b"]


def test_a_task_that_is_repeated_writes_once(sink: Sink) -> None:
    sink.task(0, 0, ["a"])
    sink.commit(0, [sink.task(0, 0, ["a"]), sink.task(0, 1, ["b"])])
    assert sink.published() == ["a", "b"]


def test_a_task_that_fails_keeps_no_reader_waiting(sink: Sink) -> None:
    topic = sink.options.topic
    assert topic is not None
    places = {TopicPartition(topic, number): LATEST for number in range(2)}

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(["a"])
        while not any(end.offset for end in sink.brokers.list_offsets(places, committed=False).values()):
            time.sleep(0.01)  # until the row is in the log
        raise Killed

    with pytest.raises(Killed):
        sink.writing(0, 0).write(failing())
    sink.cluster.send(topic, [Sent(b"after", partition=place.partition) for place in places])
    assert sink.published() == ["after", "after"]
    sink.batch(0, ["a"])
    assert sink.published() == ["a", "after", "after"]


def test_a_batch_that_failed_leaves_nothing(sink: Sink) -> None:
    written = sink.task(0, 0, ["a"])
    assert written.transaction is not None
    abort_batch(sink.brokers, sink.sink, 0, [written.transaction])
    assert sink.published() == []
    sink.batch(0, ["a"], ["b"])
    assert sink.published() == ["a", "b"]


def test_a_decided_batch_is_not_aborted(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [sink.task(0, 0, ["a"]), sink.task(0, 1, ["b"])]
    with monkeypatch.context() as patch:
        patch.setattr(exactly_once, "end_all", raise_killed)
        with pytest.raises(Killed):
            sink.commit(0, written)
    abort_batch(sink.brokers, sink.sink, 0, [result.transaction for result in written if result.transaction])
    sink.batch(0, ["other"], ["rows"])  # the plan need not be deterministic: the batch is complete
    assert sink.published() == ["a", "b"]


def raise_killed(*_: object, **__: object) -> None:
    raise Killed


def test_a_zombie_driver_publishes_nothing(sink: Sink) -> None:
    zombie = [sink.task(0, 0, ["a"]), sink.task(0, 1, ["b"])]
    sink.batch(0, ["a"], ["b"])
    with pytest.raises(PublicationError, match=r"ended by another client .* another run of this query has taken over"):
        sink.commit(0, zombie)
    sink.batch(1, ["c"], [])
    assert sink.published() == ["a", "b", "c"]


def test_a_part_that_is_published_must_be_the_same_again(sink: Sink) -> None:
    written = [sink.task(0, 0, ["a", "b"]), sink.task(0, 1, ["c"])]
    part = written[0].transaction
    assert part is not None
    end_all(sink.brokers, sink.sink, [part], commit=True, ignore_lost=False)  # the driver dies without a decision
    with pytest.raises(PublicationError, match="2 rows are published, and the batch run again has 1: the plan is not"):
        sink.task(0, 0, ["a"])
    with pytest.raises(PublicationError, match="has 2 different ones: the plan is not deterministic"):
        sink.task(0, 0, ["a", "x"])
    sink.batch(0, ["b", "a"], ["c"])  # in another order
    assert sink.published() == ["a", "b", "c"]


def test_a_run_that_is_behind_stops(sink: Sink) -> None:
    sink.batch(0, ["a"])
    sink.batch(1, ["b"])
    with pytest.raises(
        PublicationError, match="has published batch 1, and this run is at batch 0: its checkpoint is outdated"
    ):
        sink.task(0, 0, ["a"])


def test_an_unknown_sink_begins_at_batch_0(sink: Sink) -> None:
    named = sink._replace(options=sink.options._replace(sink_id=sink.sink))
    with pytest.raises(PublicationError, match="no record of the batches before 7"):
        named.task(7, 0, ["a"])
    named.commit(6, [])  # a batch without tasks
    named.batch(7, ["a"])
    assert sink.published() == ["a"]


def test_a_sink_whose_first_batches_had_no_tasks(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink.batch(3, ["a"])
    assert sink.published() == ["a"]
    monkeypatch.setattr(exactly_once, "last_decision", lambda *_: None)  # but with markers: the decisions are gone
    with pytest.raises(PublicationError, match="no record of the batches before 4"):
        sink.task(4, 0, ["b"])


def test_a_marker_that_is_gone(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    sink.batch(0, ["a"], ["b"])
    monkeypatch.setattr(TaskWriter, "_markers", lambda self, tasks, timeout_ms=None: {})
    with pytest.raises(PublicationError, match=r"its marker is gone \(offsets.retention.minutes"):
        sink.task(0, 0, ["a"])


def test_more_tasks_than_the_topic_of_markers_has_partitions(sink: Sink) -> None:
    count = len(sink.brokers.topic(exactly_once.MARKERS).leaders)
    written = [sink.task(0, number, [str(number)]) for number in (0, count, count + 40)]
    sink.commit(0, written)
    assert sink.published() == sorted(map(str, (0, count, count + 40)))


def test_the_last_decision_is_found_behind_many_others(cluster: Cluster, brokers: tuple[Brokers, Producer]) -> None:
    quiet, busy = new_sink(cluster, brokers), new_sink(cluster, brokers)
    quiet.batch(0, ["a"])
    producer = brokers[1]
    for number in range(400):
        for partition in range(8):
            producer.produce(exactly_once.DECISIONS, f'{{"batch":{number},"parts":[]}}', busy.sink, partition)
    producer.flush()
    decision = exactly_once.last_decision(brokers[0], quiet.sink)
    assert decision is not None
    assert (decision.batch, decision.tasks) == (0, {0})


STEPS = ["task 0", "task 1", "decision", "end 0", "end 1"]


class Crashing:
    """A driver that dies after so many steps of a batch, and a new one that runs the batch again."""

    def __init__(self, sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sink = sink
        self._patch = monkeypatch

    def run(self, batch: int, tasks: list[list[str]], steps: int) -> bool:
        """Run a batch for a number of steps, and return whether the driver finished."""
        left = steps

        def step() -> None:
            nonlocal left
            if left == 0:
                raise Killed
            left -= 1

        def counted(function: Callable[..., object], before: bool) -> Callable[..., object]:
            def run(*arguments: object, **options: object) -> object:
                if before:
                    step()
                return function(*arguments, **options)

            return run

        with self._patch.context() as patch:
            patch.setattr(Decision, "text", counted(Decision.text, before=True))
            try:
                written = []
                for number, values in enumerate(tasks):
                    step()
                    written.append(self._sink.task(batch, number, values))
                patch.setattr(Brokers, "end_transaction", counted(Brokers.end_transaction, before=True))
                self._sink.commit(batch, written)
            except Killed:
                return False
        return True


def test_a_batch_is_published_once_wherever_drivers_die(
    cluster: Cluster,
    brokers: tuple[Brokers, Producer],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Each batch is tried until a driver gets through; before that, drivers die after so many steps."""
    soak = int(request.config.getoption("--soak"))

    @settings(max_examples=6 * soak, deadline=None, derandomize=soak == 1)
    @given(st.lists(st.lists(st.integers(0, len(STEPS)), max_size=3), min_size=1, max_size=3), st.integers(0, 2**31))
    def check(batches: list[list[int]], seed: int) -> None:
        sink = new_sink(cluster, brokers)
        crashing = Crashing(sink, monkeypatch)
        expected = []
        for number, deaths in enumerate(batches):
            tasks = [[f"{number}-{task}-{(seed >> task) % 7}"] * (1 + (seed >> number + task) % 3) for task in range(2)]
            expected += [value for values in tasks for value in values]
            for steps in deaths:
                crashing.run(number, tasks, steps)
            assert crashing.run(number, tasks, 100)
        assert sink.published() == sorted(expected)

    check()
