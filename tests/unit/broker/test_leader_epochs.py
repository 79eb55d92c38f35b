"""Requests that wait in a partition when its leader epoch ends.

A follower that lags is simulated: the high watermark stays where it is until a test moves it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.queues import outcomes
from tests.unit.broker.test_log_directories import EIO, READING, Machine

from ottla.broker.requests.delayed import DelayedCommit, Uncommitted
from ottla.broker.share_partitions.dead_letters import DeadLetterWriter
from ottla.coordinators.share.window import DeadLetters
from ottla.coordinators.transactions.state import Markers
from ottla.log.log import Log
from ottla.metadata import changes
from ottla.metadata.configs.alteration import GROUP
from ottla.metadata.image import OFFSETS_TOPIC, Image, PartitionImage, TopicImage
from ottla.metadata.store import Change
from ottla.protocol.errors import (
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.schema import Request
from ottla.records.batch import build
from ottla.records.codec_names import GZIP
from ottla.records.record import Record
from ottla.tasks.deferred import Answer

pytestmark = pytest.mark.replaces_code

BATCH = build([Record(0, 1, None, b"mine")])
OTHER = build([Record(0, 1, None, b"of another leader")])


class Replicated(Machine):
    """A broker on which the high watermark of a partition stays at `lagging[directory name]`."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lagging: dict[str, int] = {}
        settled: Any = Log.__dict__["settled_offset"]

        def followed(log: Log) -> int:
            offset: int = min(self.lagging.get(log.name, log.end_offset), settled.fget(log))
            return offset

        monkeypatch.setattr(Log, "settled_offset", property(followed))
        super().__init__(path)

    def send(self, request: Request, version: int) -> list[Any]:
        """Serve a request; a list that has the response as soon as there is one."""
        return self.collected(self.serve(request, version))

    def collected(self, answer: Answer[Any]) -> list[Any]:
        answers = outcomes(answer)
        self.settle()
        return answers

    def produce(self, topic: str, batch: bytes = BATCH, timeout_ms: int = 30_000) -> list[Any]:
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        return self.send(ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[data]), 9)

    def lead(self, topic: str, leader: int, leader_epoch: int) -> None:
        """Let the metadata say who leads partition 0."""

        def plan(image: Image) -> Change:
            known = image.topics[topic]
            partition = known.partitions[0]._replace(leader=leader, leader_epoch=leader_epoch)
            return changes.partition_states(image, [(known, 0, partition)])

        self.apply(plan)

    def commit(self, topic: str, end_offset: int | None = None) -> None:
        """Move the high watermark to `end_offset`, or to the log end from now on."""
        del self.lagging[f"{topic}-0"]
        if end_offset is not None:
            self.lagging[f"{topic}-0"] = end_offset
        self.partition(topic).advance()
        self.settle()

    def replaced(self, topic: str) -> None:
        """Another leader had other batches: ours is truncated, and its own is committed."""
        partition = self.partition(topic)
        partition.log.truncate_to(0)
        partition.log.append(OTHER, 0, len(OTHER), 1, 1)
        self.commit(topic)


def outcome(answers: list[Any]) -> tuple[int, int]:
    """Error code and base offset of the only partition of the only Produce response."""
    (response,) = answers
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition.error_code, partition.base_offset


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replicated]:
    machine = Replicated(tmp_path, monkeypatch)
    with machine:
        machine.create("t")
        machine.lagging["t-0"] = 0
        yield machine


@pytest.mark.parametrize("leader", [1, 2])
def test_a_batch_that_another_leader_cut_off_is_not_acknowledged(machine: Replicated, leader: int) -> None:
    answers = machine.produce("t")
    assert answers == []
    machine.lead("t", leader, 1)
    assert outcome(answers) == (NOT_LEADER_OR_FOLLOWER, 0)
    machine.replaced("t")
    assert len(answers) == 1


def test_a_batch_is_acknowledged_when_it_is_committed(machine: Replicated) -> None:
    first, second = machine.produce("t"), machine.produce("t")
    machine.commit("t", 1)
    assert (outcome(first), second) == ((NONE, 0), [])
    machine.commit("t")
    assert outcome(second) == (NONE, 1)


def test_a_batch_that_is_not_committed_in_time_is_answered_once(machine: Replicated) -> None:
    answers = machine.produce("t", timeout_ms=20)
    machine.until(lambda: bool(answers))
    assert outcome(answers) == (REQUEST_TIMED_OUT, 0)
    machine.commit("t")
    assert len(answers) == 1


def test_a_batch_with_too_few_replicas_returns_not_enough_replicas_after_append(machine: Replicated) -> None:
    """The high watermark stands while replicas are missing: they are lost after the commit, and before the answer."""
    answers = machine.produce("t")
    leadership: Any = SimpleNamespace(committed=lambda local_end: local_end, lacks_followers=True)
    machine.partition("t").leadership = leadership
    machine.commit("t")
    assert outcome(answers) == (NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)


def test_a_batch_in_a_topic_that_is_deleted_fails(machine: Replicated) -> None:
    answers = machine.produce("t")
    machine.delete("t")
    assert outcome(answers) == (UNKNOWN_TOPIC_OR_PARTITION, 0)


def test_a_batch_on_a_disk_that_fails_fails(machine: Replicated) -> None:
    home = machine.home("t")
    answers = machine.produce("t")
    machine.disk_fails(home, EIO, spare=READING)
    assert outcome(machine.produce("t")) == (KAFKA_STORAGE_ERROR, -1)
    machine.until(lambda: bool(answers))
    assert outcome(answers) == (KAFKA_STORAGE_ERROR, 0)


def test_a_batch_whose_check_outlives_its_epoch_is_not_appended(machine: Replicated) -> None:
    """It is checked in slices, and bears the old epoch."""
    large = build([Record(at, 1, None, b"\0" * 900_000) for at in range(8)], codec=GZIP)
    answers = machine.produce("t", large)
    assert answers == []
    assert machine.partition("t").log.end_offset == 0
    machine.partition("t").follow(1, 1)
    machine.until(lambda: bool(answers))
    assert outcome(answers) == (NOT_LEADER_OR_FOLLOWER, -1)
    assert machine.partition("t").log.end_offset == 0


def test_a_marker_that_another_leader_cut_off_is_not_acknowledged(machine: Replicated) -> None:
    topics = [WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
    marker = WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0
    )
    answers = machine.send(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answers == []
    machine.lead("t", 2, 1)
    ((row,),) = ([part for topic in mark.topics for part in topic.partitions] for mark in answers[0].markers)
    assert row.error_code == NOT_LEADER_OR_FOLLOWER


def markers(*partitions: tuple[str, int]) -> Markers:
    return Markers("x", 7, 0, commit=True, partitions=frozenset(partitions), new_epoch=False, started_ms=0)


def write_markers(machine: Replicated, *partitions: tuple[str, int]) -> list[str]:
    """Have the coordinator write markers; "complete" is in the list when it may complete the transaction."""
    events: list[str] = []

    def complete() -> int:
        events.append("complete")
        return NONE

    machine.broker.coordination.markers.write(markers(*partitions), 0, lambda: True, complete)
    return events


def test_a_transaction_is_not_complete_while_a_marker_may_be_cut_off(machine: Replicated) -> None:
    machine.create("u")
    events = write_markers(machine, ("t", 0), ("u", 0))
    assert events == []
    machine.partition("t").log.truncate_to(0)
    machine.lead("t", 1, 1)
    assert events == []
    machine.until(lambda: machine.partition("t").log.end_offset == 1)  # written again
    assert events == []
    machine.commit("t")
    assert events == ["complete"]
    assert machine.partition("u").log.end_offset == 1  # not again where it was committed


def test_a_partition_on_another_broker_is_not_taken_for_a_deleted_one(machine: Replicated) -> None:
    elsewhere = TopicImage("elsewhere", bytes(range(16)), (PartitionImage((2,), (2,), 2, 0),), {})
    machine.apply(lambda image: next(iter(changes.create_topics(image, [elsewhere], 100)))[1])
    assert machine.broker.replicas.leader("elsewhere", 0) == NOT_LEADER_OR_FOLLOWER
    assert machine.broker.replicas.leader("elsewhere", 1) == UNKNOWN_TOPIC_OR_PARTITION
    events = write_markers(machine, ("elsewhere", 0))
    writer = machine.broker.coordination.markers
    attempts = 0
    append = writer.append

    def counted(*arguments: Any) -> Any:
        nonlocal attempts
        attempts += 1
        return append(*arguments)

    setattr(writer, "append", counted)  # noqa: B010
    machine.until(lambda: attempts == 2)
    assert events == []
    machine.delete("elsewhere")
    machine.until(lambda: events == ["complete"])


def test_dead_letters_that_another_leader_cut_off_are_written_again(
    machine: Replicated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.share_partitions.dead_letters._RETRY_MS", 10)
    machine.create("dlq.letters", errors_deadletterqueue_group_enable="true")
    configs = {"errors.deadletterqueue.topic.name": "dlq.letters"}
    metadata = machine.broker.metadata
    machine.apply(lambda image: changes.configure(image, GROUP, "g", configs))
    machine.lagging["dlq.letters-0"] = 0
    events: list[str] = []
    broker = machine.broker
    writer = DeadLetterWriter(
        config=lambda: broker.config,
        clock=broker.clock,
        tasks=broker.tasks,
        metadata=metadata,
        replicas=broker.replicas,
        create_topic=broker.topics.create,
        peers=broker.peers,
    )

    async def write() -> None:
        await writer.write("g", machine.partition("t"), DeadLetters(0, 2, 5, None))
        events.append("done")

    broker.tasks.background(write(), "dead letters")
    log = machine.partition("dlq.letters").log
    assert log.end_offset == 3
    log.truncate_to(0)
    machine.lead("dlq.letters", 1, 1)
    machine.until(lambda: log.end_offset == 3)
    assert events == []
    machine.commit("dlq.letters")
    assert events == ["done"]


def test_a_leader_knows_where_older_epochs_end_before_it_has_appended(machine: Replicated) -> None:
    log = machine.partition("t").log
    for epoch in (0, 3):
        log.append(BATCH, 0, len(BATCH), epoch, 1)
    machine.lead("t", 1, 5)

    def end_of(epoch: int) -> tuple[int, int]:
        partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=5, leader_epoch=epoch)
        topic = OffsetForLeaderTopic(topic="t", partitions=[partition])
        ((answer,),) = (
            row.partitions for row in machine.send(OffsetForLeaderEpochRequest(topics=[topic]), 4)[0].topics
        )
        return answer.leader_epoch, answer.end_offset

    assert [end_of(epoch) for epoch in (0, 2, 3, 4, 5)] == [(0, 1), (0, 1), (3, 2), (3, 2), (5, 2)]


def test_an_epoch_is_in_the_checkpoint_with_its_first_batch(machine: Replicated) -> None:
    log = machine.partition("t").log
    path = log.directory / "leader-epoch-checkpoint"
    machine.append("t")
    machine.lead("t", 1, 4)
    machine.lead("t", 1, 5)
    assert (path.read_text(), log.epochs.latest) == ("0\n1\n0 0\n", 5)
    machine.append("t")
    assert path.read_text() == "0\n2\n0 0\n5 1\n"


def test_a_coordinator_that_leads_again_in_a_new_epoch_is_loaded_again(machine: Replicated) -> None:
    machine.create_internal(OFFSETS_TOPIC)
    groups = machine.broker.coordination.groups
    watchers = machine.partition(OFFSETS_TOPIC).watchers
    for epoch in (1, 2, 3):
        before = groups.state_of(0)
        assert before is not None
        machine.lead(OFFSETS_TOPIC, 1, epoch)
        assert groups.state_of(0) not in (None, before)
        assert len(watchers) == 1
    same = groups.state_of(0)
    machine.lead(OFFSETS_TOPIC, 1, 3)
    assert groups.state_of(0) is same
    machine.lead(OFFSETS_TOPIC, 2, 4)
    assert (groups.state_of(0), len(watchers)) == (None, 0)


def test_a_follower_starts_from_the_high_watermark_that_it_knew(machine: Replicated) -> None:
    machine.append("t", 5)
    machine.commit("t", 3)
    machine.lead("t", 2, 1)
    machine.restart()
    log = machine.partition("t").log
    assert (log.high_watermark, log.end_offset) == (3, 5)
    machine.lagging.clear()
    machine.lead("t", 1, 2)  # alone in sync: all that it has is committed
    assert machine.partition("t").log.high_watermark == 5


def test_each_of_several_waits_completes_once(machine: Replicated) -> None:
    machine.create("u")
    machine.append("t")
    machine.append("u")
    decided: list[tuple[str, int]] = []
    done: list[bool] = []

    def wait(topic: str) -> Uncommitted:
        record: Callable[[int], None] = lambda code: decided.append((topic, code))  # noqa: E731
        return Uncommitted.last_of(machine.partition(topic), record)

    DelayedCommit(lambda: done.append(True)).begin([wait("u"), wait("t")], machine.broker.tasks, 10_000)
    machine.settle()
    assert (decided, done) == ([("u", NONE)], [])
    machine.commit("t")
    assert (decided, done) == ([("u", NONE), ("t", NONE)], [True])
    DelayedCommit(lambda: done.append(False)).begin([], machine.broker.tasks, 10_000)
    assert done == [True, False]


def test_a_request_for_a_partition_that_another_broker_leads_is_refused(machine: Replicated) -> None:
    """Each answered from its own replica, as if it led."""
    machine.append("t", 3)
    machine.lead("t", 2, 1)
    assert outcome(machine.produce("t")) == (NOT_LEADER_OR_FOLLOWER, -1)
    fetched = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    listed = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    deleted = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
    for request, version, rows in (
        (FetchRequest(max_wait_ms=10_000, min_bytes=1, topics=[fetched]), 10, "responses"),
        (ListOffsetsRequest(topics=[listed]), 5, "topics"),
        (DeleteRecordsRequest(topics=[deleted]), 2, "topics"),
    ):
        (response,) = machine.send(request, version)
        (row,) = getattr(response, rows)[0].partitions
        assert row.error_code == NOT_LEADER_OR_FOLLOWER, response
    assert machine.partition("t").log.start_offset == 0


def test_a_repeated_batch_does_not_wait_for_later_ones(machine: Replicated) -> None:
    """It waited for the end of the whole log, so that a producer that repeats a batch was answered late."""
    batch = build([Record(0, 1, None, b"mine")], producer_id=7, producer_epoch=0, base_sequence=0)
    first = machine.produce("t", batch)
    later = machine.produce("t")
    again = machine.produce("t", batch)
    machine.commit("t", 1)
    assert outcome(first) == outcome(again) == (NONE, 0)
    assert later == []
    machine.commit("t")
    assert outcome(later) == (NONE, 1)
