"""Exceptions that nothing was made for: one request suffers, and hears of it, and the broker goes on."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.conftest import Wire
from tests.queues import manual_queue, run_queue, unexpected
from tests.unit.broker.test_log_directories import EMFILE, Machine

from ottla.broker.config import broker_config
from ottla.broker.coordination.producer_ids import ProducerIds
from ottla.broker.lifecycle import BrokerServer, CannotStart
from ottla.environment.process import process_environment
from ottla.log import reading
from ottla.log.log import AppendResult
from ottla.metadata.metadata import PRODUCER_ID_BLOCK
from ottla.metadata.store import ChangeOutcome
from ottla.metadata.store.sqlite import SqliteStore
from ottla.protocol.errors import (
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_SERVER_ERROR,
)
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.codec_names import GZIP
from ottla.records.record import Record
from ottla.replication.partition import Partition
from ottla.tasks.deferred import Answer, Deferred, after
from ottla.testing import EmbeddedBroker

SHARE = 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that keeps its data, so that changes of the metadata are made on a thread."""
    with EmbeddedBroker(data_dir=tmp_path) as broker:
        yield broker


@pytest.fixture
def wire(broker: EmbeddedBroker) -> Iterator[Wire]:
    wire = Wire(broker.address, is_kafka=False)
    yield wire
    wire.close()


def create(wire: Wire, name: str, partitions: int = 1, replicas: int = 1) -> int:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    response = wire.send(CreateTopicsRequest(topics=[topic], timeout_ms=5000), 7)
    return int(response.topics[0].error_code)


def replace_checks(patched: pytest.MonkeyPatch, replace: Callable[[Iterator[None]], Iterator[None]]) -> None:
    """Give the check of each large batch through `replace`."""
    append = Partition.append

    def appended(partition: Partition, *arguments: Any, **options: Any) -> AppendResult:
        result = append(partition, *arguments, **options)
        if result.unfinished is not None:
            result.unfinished = result.unfinished._replace(steps=replace(result.unfinished.steps))
        return result

    patched.setattr(Partition, "append", appended)


@pytest.mark.replaces_code
def test_a_batch_whose_check_fails_is_not_reported_as_appended(
    broker: EmbeddedBroker, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was answered with success and offset -1, and so was every other partition of the request."""
    create(wire, "t", 2)
    large = build([Record(at, 1, None, bytes(60_000)) for at in range(200)], codec=GZIP)

    def fail(steps: Iterator[None]) -> Iterator[None]:
        yield next(steps)
        raise MemoryError

    with monkeypatch.context() as patched:
        replace_checks(patched, fail)
        data = [PartitionProduceData(index=index, records=large) for index in range(2)]
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=data)])
        rows = wire.send(request, 9).responses[0].partition_responses
    assert [(row.error_code, row.base_offset) for row in rows] == [(UNKNOWN_SERVER_ERROR, -1)] * 2
    assert "MemoryError" in caplog.text
    rows = wire.send(request, 9).responses[0].partition_responses
    assert [(row.error_code, row.base_offset) for row in rows] == [(NONE, 0)] * 2


@pytest.mark.replaces_code
def test_large_batches_are_checked_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty of them, of a kilobyte each, took half a gigabyte at once."""
    large = build([Record(at, 1, None, bytes(900_000)) for at in range(8)], codec=GZIP)
    running: list[int] = []
    most = 0

    def counted(steps: Iterator[None]) -> Iterator[None]:
        nonlocal most
        running.append(1)
        most = max(most, len(running))
        yield from steps
        running.pop()

    replace_checks(monkeypatch, counted)
    with Machine(tmp_path) as machine:
        machine.create("t", 3)
        responses: list[Any] = []
        for index in (0, 1, 2, 0):
            data = [PartitionProduceData(index=index, records=large)]
            topic = TopicProduceData(name="t", partition_data=data)
            after(machine.serve(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic]), 9), responses.append)
        machine.until(lambda: len(responses) == 4)
        rows = [response.responses[0].partition_responses[0] for response in responses]
        assert [(row.index, row.error_code, row.base_offset) for row in rows] == [
            (0, NONE, 0),
            (1, NONE, 0),
            (2, NONE, 0),
            (0, NONE, 8),
        ]
    assert (most, running) == (1, [])


def test_a_search_that_fails_is_not_answered_as_if_it_had_found_nothing(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(wire, "t")

    def fail(*_: object) -> Iterator[None]:
        raise MemoryError

    partition = ListOffsetsPartition(partition_index=0, timestamp=1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    with monkeypatch.context() as patched:
        patched.setattr(reading, "find_offset", fail)
        assert wire.send(request, 5).topics[0].partitions[0].error_code == UNKNOWN_SERVER_ERROR
    assert "MemoryError" in caplog.text
    assert wire.send(request, 5).topics[0].partitions[0].error_code == NONE


def test_changes_of_the_metadata_go_on_after_a_bug_in_one(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No CreateTopics was answered ever again."""
    get = SqliteStore.get

    def fail(store: SqliteStore, key: str) -> Any:
        if key.endswith("bad"):
            raise MemoryError
        return get(store, key)

    monkeypatch.setattr(SqliteStore, "get", fail)
    assert create(wire, "bad") == UNKNOWN_SERVER_ERROR
    assert "MemoryError" in caplog.text
    assert create(wire, "good") == NONE


def test_more_producers_than_a_block_has_ids_all_get_one() -> None:
    queue = manual_queue()
    blocks: list[Deferred[int]] = []

    async def reserve() -> int:
        blocks.append(Deferred(queue))
        return await blocks[-1]

    ids = ProducerIds(reserve, queue)
    taken: list[int] = []

    def take(is_reserved: bool) -> Answer[int]:
        assert is_reserved
        return ids.take()

    for _ in range(PRODUCER_ID_BLOCK + 500):
        answer = after(ids.reserve(), take)
        assert isinstance(answer, Deferred)
        answer.then(taken.append, unexpected)
    for number, block in enumerate(blocks):
        block.complete(number * PRODUCER_ID_BLOCK)
        run_queue(queue)
    assert sorted(taken) == list(range(PRODUCER_ID_BLOCK + 500))


@pytest.mark.parametrize(("key", "version"), [("nonsense", 6), ("g:AAAAAAAAAAAAAAAAAAAAAA:0", 5)])
def test_a_refused_request_for_a_share_coordinator_creates_no_topic(
    broker: EmbeddedBroker, wire: Wire, key: str, version: int
) -> None:
    answer = wire.send(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key]), version)
    assert answer.coordinators[0].error_code == INVALID_REQUEST
    assert "__share_group_state" not in broker.broker.image.topics


def test_default_replication_factor_above_the_number_of_brokers_is_refused() -> None:
    with EmbeddedBroker({"default.replication.factor": "3"}) as broker:
        wire = Wire(broker.address, is_kafka=False)
        assert create(wire, "t", replicas=-1) == INVALID_REPLICATION_FACTOR
        wire.close()


def test_a_first_start_on_a_full_disk_fails_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = ChangeOutcome(0, error="cannot write metadata.db: database or disk is full")
    monkeypatch.setattr(SqliteStore, "change_now", lambda self, change: full)
    loop = asyncio.new_event_loop()
    configs = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    with pytest.raises(CannotStart, match=r"^cannot write metadata.db: database or disk is full$"):
        BrokerServer(broker_config(configs), process_environment(loop)).start()
    loop.close()


def test_partitions_that_cannot_be_opened_are_not_reported_as_added(tmp_path: Path) -> None:
    with Machine(tmp_path) as machine:
        machine.create("t")
        machine.fails = lambda operation, path: EMFILE if path.name == "t-2" else None
        rows: list[Any] = []

        def heard(response: Any) -> None:
            rows.extend(response.results)

        added = CreatePartitionsTopic(name="t", count=3, assignments=None)
        after(machine.serve(CreatePartitionsRequest(topics=[added], timeout_ms=30_000), 3), heard)
        machine.until(lambda: bool(rows))
        assert rows[0].error_code == KAFKA_STORAGE_ERROR
        assert "cannot open" in rows[0].error_message
        assert machine.partition("t", 1).log.end_offset == 0
        machine.mend()
        machine.until(lambda: not machine.broker.replicas.is_offline("t", 2))


def test_reopening_goes_on_while_a_topic_is_being_deleted(tmp_path: Path) -> None:
    with Machine(tmp_path) as machine:
        for name in "tu":
            machine.create(name)
        machine.server.stop()
        machine.fails = lambda operation, path: EMFILE if path.name in ("t-0", "u-0") else None
        machine.start()
        replicas = machine.broker.replicas
        machine.mend()
        replicas._topics = {name: topic for name, topic in replicas._topics.items() if name != "t"}
        replicas.open_postponed()
        assert not replicas.is_offline("u", 0)
