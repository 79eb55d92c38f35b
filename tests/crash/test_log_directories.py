"""Several log directories: partitions that move while they are used, a disk that is full, a directory that is missing."""

from pathlib import Path
from typing import Any

import pytest

from ottla.coordinators.partitions import partition_of
from ottla.metadata.image import OFFSETS_TOPIC
from ottla.protocol.errors import (
    COORDINATOR_NOT_AVAILABLE,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NONE,
    NOT_COORDINATOR,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Wire

from .conftest import Process, Start
from .records import Numbers, create, delete, read_all

TOPIC = "numbers"
PARTITIONS = 4


def with_two(start: Start, tmp_path: Path, **limits: Any) -> Process:
    return start(data_dir=Path(f"{tmp_path / 'data'},{tmp_path / 'more'}"), **limits)


def lies(wire: Wire) -> dict[int, list[tuple[str, bool]]]:
    """Return the place of each partition of the topic, as (name of the directory, still a copy)."""
    places: dict[int, list[tuple[str, bool]]] = {}
    for result in wire.send(DescribeLogDirsRequest(topics=None), 4).results:
        for topic in result.topics:
            for part in topic.partitions:
                if topic.name == TOPIC:
                    at = Path(result.log_dir).name, part.is_future_key
                    places.setdefault(part.partition_index, []).append(at)
    return places


def move(wire: Wire, path: Path, *indexes: int) -> set[int]:
    topics = [AlterReplicaLogDirTopic(name=TOPIC, partitions=list(indexes))]
    answer = wire.send(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=topics)]), 2)
    return {part.error_code for topic in answer.results for part in topic.partitions}


def lost(numbers: Numbers, contents: dict[int, list[tuple[int, int]]]) -> list[int]:
    """Numbers that were acknowledged and are not where they were said to be."""
    there = {index: set(records) for index, records in contents.items()}
    return [
        number
        for index, acknowledged in numbers.acknowledged.items()
        for number, offset in acknowledged.items()
        if (offset, number) not in there[index]
    ]


@pytest.mark.timeout(180)
def test_partitions_move_while_they_are_written_to(start: Start, tmp_path: Path) -> None:
    process = with_two(start, tmp_path)
    wire = process.wire()
    create(process.bootstrap_servers, TOPIC, PARTITIONS, segment_bytes="1048576")
    assert sorted(at for parts in lies(wire).values() for at in parts) == [("data", False)] * 2 + [("more", False)] * 2
    numbers = Numbers(process.bootstrap_servers, TOPIC, PARTITIONS, 1000, enable_idempotence=True)
    numbers.until(lambda: numbers.count >= 4000)
    for name in ("data", "more", "data"):
        assert move(wire, tmp_path / name, *range(PARTITIONS)) == {NONE}
        count = numbers.count
        numbers.until(lambda: all(at == [(name, False)] for at in lies(wire).values()))  # noqa: B023
        numbers.until(lambda: numbers.count >= count + 500)  # noqa: B023
    numbers.flush()
    contents = read_all(process.bootstrap_servers, TOPIC, PARTITIONS)
    assert lost(numbers, contents) == []
    assert not [
        path for path in (tmp_path / "more").iterdir() if path.name.startswith(f"{TOPIC}-") and path.suffix == ""
    ]
    assert process.stop() == ""
    again = with_two(start, tmp_path)
    assert read_all(again.bootstrap_servers, TOPIC, PARTITIONS) == contents
    assert again.stop() == ""


@pytest.mark.timeout(180)
def test_kill_9_during_a_move_loses_nothing(start: Start, tmp_path: Path) -> None:
    process = with_two(start, tmp_path)
    create(process.bootstrap_servers, TOPIC, 1, segment_bytes="1048576")
    numbers = Numbers(process.bootstrap_servers, TOPIC, 1, 10_000)
    numbers.until(lambda: numbers.count >= 3000)
    numbers.flush()
    wire = process.wire()
    ((was, _),) = lies(wire)[0]
    other = "more" if was == "data" else "data"
    assert move(wire, tmp_path / other, 0) == {NONE}
    assert len(lies(wire)[0]) == 2
    process.kill()
    again = with_two(start, tmp_path)
    assert lies(again.wire())[0] == [(was, False)]
    assert lost(numbers, read_all(again.bootstrap_servers, TOPIC, 1)) == []
    again.stop()


def produce(wire: Wire, index: int, size: int) -> int:
    batch = build([Record(0, 1, b"k", b"7 " + b"v" * size)])
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=index, records=batch)])
    answer = wire.send(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def codes_of(wire: Wire, index: int) -> dict[str, int]:
    """Return the error codes that a client receives for a partition whose directory failed."""
    (topic,) = wire.send(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9).topics
    part = next(part for part in topic.partitions if part.partition_index == index)
    assert (part.leader_id, part.isr_nodes, part.offline_replicas) == (-1, [], [1])
    offsets = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1)])
    listed = wire.send(ListOffsetsRequest(replica_id=-1, topics=[offsets]), 5)
    fetch_topic = FetchTopic(
        topic=TOPIC, partitions=[FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=100)]
    )
    fetched = wire.send(FetchRequest(max_wait_ms=5000, min_bytes=1, max_bytes=1000, topics=[fetch_topic]), 11)
    return {
        "metadata": part.error_code,
        "list offsets": listed.topics[0].partitions[0].error_code,
        "fetch": fetched.responses[0].partitions[0].error_code,
        "produce": produce(wire, index, 10),
    }


OFFLINE = {
    "metadata": LEADER_NOT_AVAILABLE,
    "list offsets": KAFKA_STORAGE_ERROR,
    "fetch": KAFKA_STORAGE_ERROR,
    "produce": KAFKA_STORAGE_ERROR,
}


def test_a_full_disk_takes_its_directory_offline_and_nothing_else(start: Start, tmp_path: Path) -> None:
    process = with_two(start, tmp_path, most_bytes=2 << 20)
    create(process.bootstrap_servers, TOPIC, PARTITIONS)
    wire = process.wire()
    where = {index: at[0][0] for index, at in lies(wire).items()}
    full, failed = 0, where[0]
    neighbours = [index for index in where if where[index] == failed]
    others = [index for index in where if where[index] != failed]
    acknowledged = 0
    while (code := produce(wire, full, 300_000)) == NONE:
        acknowledged += 1
    assert (code, acknowledged) == (KAFKA_STORAGE_ERROR, 6)
    for index in neighbours:
        assert codes_of(wire, index) == OFFLINE
    for index in others:
        assert produce(wire, index, 10) == NONE
    states = {Path(result.log_dir).name: result for result in wire.send(DescribeLogDirsRequest(topics=None), 4).results}
    assert (states[failed].error_code, states[failed].topics) == (KAFKA_STORAGE_ERROR, [])
    assert move(wire, tmp_path / failed, others[0]) == {KAFKA_STORAGE_ERROR}
    assert move(wire, tmp_path / where[others[0]], full) == {KAFKA_STORAGE_ERROR}
    output = process.stop()
    assert f"{tmp_path / failed} is offline: File too large" in output
    assert output.count("offline") == 1
    again = with_two(start, tmp_path)
    assert [len(part) for _, part in sorted(read_all(again.bootstrap_servers, TOPIC, PARTITIONS).items())] == [
        6 if index == full else 1 if index in others else 0 for index in range(PARTITIONS)
    ]
    assert produce(again.wire(), full, 300_000) == NONE
    assert again.stop() == ""


def coordinators(wire: Wire, groups: list[str]) -> dict[str, tuple[int, int]]:
    """Return the error codes of FindCoordinator for each group, and of its coordinator."""
    rows = wire.send(FindCoordinatorRequest(coordinator_keys=groups), 4).coordinators
    asked = [OffsetFetchRequestGroup(group_id=group, topics=[]) for group in groups]
    answered = wire.send(OffsetFetchRequest(groups=asked), 8).groups
    return {one.key: (one.error_code, other.error_code) for one, other in zip(rows, answered, strict=True)}


def test_a_full_disk_takes_its_coordinators_with_it(start: Start, tmp_path: Path) -> None:
    process = with_two(start, tmp_path, most_bytes=2 << 20)
    create(process.bootstrap_servers, TOPIC, PARTITIONS)
    wire = process.wire()
    groups = [f"group-{number}" for number in range(40)]
    coordinators(wire, groups)  # it makes their topic
    assert set(coordinators(wire, groups).values()) == {(NONE, NONE)}
    failed = lies(wire)[0][0][0]
    while produce(wire, 0, 300_000) == NONE:
        pass
    gone = {path.name for path in (tmp_path / failed).glob(f"{OFFSETS_TOPIC}-*")}
    assert coordinators(wire, groups) == {
        group: (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
        if f"{OFFSETS_TOPIC}-{partition_of(group, 50)}" in gone
        else (NONE, NONE)
        for group in groups
    }
    process.stop()


def test_a_missing_directory_takes_its_partitions_with_it(start: Start, tmp_path: Path) -> None:
    process = with_two(start, tmp_path)
    create(process.bootstrap_servers, TOPIC, PARTITIONS)
    wire = process.wire()
    there = {index: at[0][0] for index, at in lies(wire).items()}
    for index in there:
        assert produce(wire, index, 10) == NONE
    assert process.stop() == ""
    (tmp_path / "more").rename(tmp_path / "unplugged")
    (tmp_path / "more").write_text("not a directory")
    process = with_two(start, tmp_path)
    wire = process.wire()
    for index, name in there.items():
        if name == "more":
            assert codes_of(wire, index) == OFFLINE
        else:
            assert produce(wire, index, 10) == NONE
    create(process.bootstrap_servers, "another", 3)
    assert f"cannot use {tmp_path / 'more'} as a data directory" in process.stop()
    (tmp_path / "more").unlink()
    (tmp_path / "unplugged").rename(tmp_path / "more")
    again = with_two(start, tmp_path)
    contents = read_all(again.bootstrap_servers, TOPIC, PARTITIONS)
    assert {index: len(part) for index, part in contents.items()} == {
        index: 1 if name == "more" else 2 for index, name in there.items()
    }
    assert again.stop() == ""


def write_numbers(process: Process, count: int, topic: str = TOPIC, partitions: int = 1) -> None:
    numbers = Numbers(process.bootstrap_servers, topic, partitions)
    numbers.until(lambda: numbers.count >= count)
    numbers.flush()


def test_records_of_a_recreated_topic_survive_the_return_of_its_old_disk(start: Start, tmp_path: Path) -> None:
    """The disk of `more` is away while the topic is deleted and created again."""
    process = with_two(start, tmp_path)
    create(process.bootstrap_servers, "first", 1)  # the next one goes to the other directory
    create(process.bootstrap_servers, TOPIC, 1)
    assert {path.parent.name for path in tmp_path.glob(f"*/{TOPIC}-0")} == {"more"}
    write_numbers(process, 1)
    assert process.stop() == ""
    (tmp_path / "more").rename(tmp_path / "unplugged")
    (tmp_path / "more").write_text("not a directory")
    process = with_two(start, tmp_path)
    delete(process.bootstrap_servers, TOPIC)
    create(process.bootstrap_servers, TOPIC, 1)
    write_numbers(process, 100)
    before = read_all(process.bootstrap_servers, TOPIC, 1)
    assert len(before[0]) >= 100
    process.stop()
    (tmp_path / "more").unlink()
    (tmp_path / "unplugged").rename(tmp_path / "more")
    process = with_two(start, tmp_path)
    assert read_all(process.bootstrap_servers, TOPIC, 1) == before
    output = process.stop()
    (stray,) = tmp_path.glob("*/*-stray")
    assert stray.parent.name == "more"
    assert output.count("\n") == 1
    assert f"{tmp_path / 'more' / TOPIC}-0 belongs to another topic of the same name: it is {stray.name} now" in output
