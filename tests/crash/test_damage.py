"""Bytes that a medium has changed later, in records acknowledged long ago: they are reported, not served, and other
records stay available."""

import shutil
from pathlib import Path

from ottla.protocol.errors import CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, NONE
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.records.batch import read_header
from tests.conformance.conftest import Wire

from .conftest import Start
from .records import Numbers, create, delete

TOPIC = "numbers"
MAGIC = 16


def fetched(wire: Wire, index: int, offset: int) -> tuple[int, int]:
    """The error code, and how many bytes came."""
    part = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100_000)
    request = FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=100_000, topics=[FetchTopic(topic=TOPIC, partitions=[part])]
    )
    partition = wire.send(request, 11).responses[0].partitions[0]
    return int(partition.error_code), len(partition.records or b"")


def second_batch(segment: Path) -> int:
    return int(read_header(segment.read_bytes(), 0).end)


def test_damage_is_told_by_file_and_position(start: Start) -> None:
    process = start()
    create(process.bootstrap_servers, TOPIC, 2, segment_bytes="1048576")
    numbers = Numbers(process.bootstrap_servers, TOPIC, 2, 1000)
    numbers.until(lambda: numbers.count >= 6000)
    numbers.flush()
    assert process.stop() == ""
    segments = sorted((process.data_dir / f"{TOPIC}-0").glob("*.log"))
    assert len(segments) > 2
    position = second_batch(segments[1])
    data = bytearray(segments[1].read_bytes())
    data[position + MAGIC] = 9
    segments[1].write_bytes(data)
    (segments[1].with_suffix(".index")).write_bytes(b"")  # so that reading goes from header to header
    process = start()
    wire = process.wire()
    hurt = int(segments[1].stem) + read_header(bytes(data), 0).count
    assert fetched(wire, 0, 0)[0] == NONE
    assert fetched(wire, 0, hurt) == (CORRUPT_MESSAGE, 0)
    behind = int(segments[2].stem)
    assert fetched(wire, 0, behind)[0] == NONE
    assert fetched(wire, 0, behind)[1] > 0
    assert fetched(wire, 1, 0)[1] > 0
    by_time = ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=1, timestamp=1)])
    assert wire.send(ListOffsetsRequest(replica_id=-1, topics=[by_time]), 5).topics[0].partitions[0].offset == 0
    more = Numbers(process.bootstrap_servers, TOPIC, 2, 1000)
    more.until(lambda: more.count >= 100)  # both partitions go on
    more.flush()
    assert f"{segments[1]} at position {position}: batch of magic 9" in process.stop()


def offline_but_for(start: Start, line: str) -> None:
    """Start; partition 0 is offline and says why, partition 1 is served."""
    process = start()
    wire = process.wire()
    assert fetched(wire, 0, 0) == (KAFKA_STORAGE_ERROR, 0)
    assert fetched(wire, 1, 0)[1] > 0
    assert line in process.stop()


def fill(start: Start) -> Path:
    """A data directory with records in two partitions, after a clean stop."""
    process = start()
    create(process.bootstrap_servers, TOPIC, 2)
    numbers = Numbers(process.bootstrap_servers, TOPIC, 2)
    numbers.until(lambda: numbers.count >= 100)
    numbers.flush()
    assert process.stop() == ""
    return process.data_dir


def test_a_removed_log_file_takes_its_partition_offline(start: Start) -> None:
    data_dir = fill(start)
    removed = data_dir / f"{TOPIC}-0" / "00000000000000000000.log"
    removed.unlink()
    offline_but_for(start, f"{TOPIC}-0 is offline: {removed} is missing")
    offline_but_for(start, f"{TOPIC}-0 is offline: {removed} is missing")  # and it stays so
    (data_dir / f"{TOPIC}-0").rename(data_dir.parent / "moved-away")
    process = start()
    assert fetched(process.wire(), 0, 0) == (NONE, 0)
    assert f"{TOPIC}-0, which ended at offset " in process.stop()


CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint")


def test_damaged_small_files_are_written_again(start: Start) -> None:
    data_dir = fill(start)
    damaged = [data_dir / name for name in CHECKPOINTS] + [data_dir / f"{TOPIC}-0" / "partition.metadata"]
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[0] ^= 0xFF
        path.write_bytes(data)
    process = start()
    assert all(fetched(process.wire(), index, 0)[1] > 0 for index in range(2))
    lines = process.stop().splitlines()
    assert [f" {path}" in line for path, line in zip(damaged, lines, strict=True)] == [True] * 4
    process = start()
    assert all(fetched(process.wire(), index, 0)[1] > 0 for index in range(2))
    assert process.stop() == ""


def test_a_topic_is_created_again_after_kill_9_during_its_deletion(start: Start) -> None:
    """The deletion is in the metadata; the directory has its name still, and the checkpoints speak of it."""
    data_dir = fill(start)
    kept = data_dir.with_name("kept")
    shutil.copytree(data_dir / f"{TOPIC}-0", kept)
    checkpoint = (data_dir / "log-start-offset-checkpoint").read_text()
    assert checkpoint == "0\n0\n"
    process = start()
    delete(process.bootstrap_servers, TOPIC)
    process.kill()
    shutil.rmtree(data_dir / f"{TOPIC}-0", ignore_errors=True)
    kept.rename(data_dir / f"{TOPIC}-0")
    (data_dir / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 40\n")
    process = start()
    create(process.bootstrap_servers, TOPIC, 2)
    more = Numbers(process.bootstrap_servers, TOPIC, 2)
    more.until(lambda: more.count >= 100)
    more.flush()
    assert all(min(offsets.values()) == 0 for offsets in more.acknowledged.values())
    output = process.stop()
    assert "offline" not in output
    assert f"{data_dir / TOPIC}-0 is no partition of this cluster" in output
