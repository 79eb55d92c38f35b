"""Bytes that a medium has changed behind the broker's back, in what was acknowledged long ago: told, not served, and nobody
else is hurt."""

from pathlib import Path

from ottla.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.records.batch import read_header
from tests.conformance.conftest import Wire

from .conftest import Start
from .records import Numbers, create

TOPIC = "numbers"
MAGIC = 16


def fetched(wire: Wire, index: int, offset: int) -> tuple[int, int]:
    """The error code, and how many bytes came."""
    part = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100_000)
    request = FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=100_000, topics=[FetchTopic(topic=TOPIC, partitions=[part])]
    )
    found = wire.send(request, 11).responses[0].partitions[0]
    return int(found.error_code), len(found.records or b"")


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
    assert fetched(wire, 0, hurt) == (KAFKA_STORAGE_ERROR, 0)
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
