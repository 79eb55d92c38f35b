"""Ranges of a partition in virtual time: what is handed on, where reading goes on, what is left out under read_committed."""

from collections.abc import Callable

import pytest

from ottla.client.consumer.chunks import Batches, without_aborted
from ottla.client.consumer.ranges import RangeReading, bytes_per_offset, wait_for_records
from ottla.client.core import Core
from ottla.client.errors import CorruptBatch, OffsetOutOfRange, RequestTimedOut, TopicRecreated
from ottla.client.topics import TopicPartition
from ottla.protocol import errors
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.records.batch import build, records_of, scan
from ottla.records.control import build_marker
from ottla.records.record import Record
from tests.unit.client.world import LOST, TOPIC_ID, Broker, World

PARTITION = TopicPartition("t", 0)


def batch(base: int, count: int, *, producer: int = -1) -> bytes:
    records = [Record(base + i, 1, None, b"%d" % (base + i)) for i in range(count)]
    return build(
        records,
        base_offset=base,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
    )


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    return build_marker(
        commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=offset
    )


def offsets(data: bytes) -> list[int]:
    return [record.offset for record in records_of(data)]


Serve = Callable[[int], tuple[bytes, int, list[AbortedTransaction]]]
Found = tuple[bytes, int]


def cluster(serve: Serve, **configs: str) -> tuple[World, Broker, Core]:
    """A broker whose Fetch answers come from `serve(offset)`."""
    world = World()
    broker = world.broker()
    broker.topics["t"] = {0: 1}

    def answer(request: FetchRequest, version: int) -> FetchResponse:
        partition = request.topics[0].partitions[0]
        data, code, aborted = serve(partition.fetch_offset)
        row = PartitionData(
            partition_index=0, error_code=code, high_watermark=0, records=data, aborted_transactions=aborted
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[row])])

    broker.on(FetchRequest, answer)
    return world, broker, world.core(**configs)


def reading(serve: Serve, **configs: str) -> tuple[Broker, Callable[[int, int], list[Found]]]:
    """A broker, and a function that reads from it: the batches of each chunk, and where the next one goes on."""
    world, broker, core = cluster(serve, **configs)

    def read(start: int, end: int) -> list[Found]:
        range_reading = RangeReading(core, PARTITION, start, end, timeout_ms=2000)
        chunks: list[Found] = []
        while (chunk := world.run(core, range_reading.next())) is not None:
            chunks.append((chunk.batches().copy(), chunk.next_offset))
        return chunks

    return broker, read


def test_whole_batches_come_in_order_up_to_the_end() -> None:
    log = {0: batch(0, 5) + batch(5, 5), 10: batch(10, 5), 15: batch(15, 5)}
    broker, read = reading(lambda offset: (log[offset], 0, []))
    assert [(offsets(data), reached) for data, reached in read(0, 12)] == [
        (list(range(10)), 10),
        (list(range(10, 15)), 15),
    ]
    assert broker.asked[FetchRequest] == 2


def test_a_batch_that_is_cut_at_the_end_is_asked_for_again() -> None:
    cut = batch(5, 5)[:-3]
    _, read = reading(lambda offset: (batch(0, 5) + cut if offset == 0 else batch(5, 5), 0, []))
    assert [reached for _, reached in read(0, 10)] == [5, 10]


def test_a_damaged_batch_raises_corrupt_batch() -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-1] ^= 1
    _, read = reading(lambda offset: (bytes(damaged), 0, []))
    with pytest.raises(CorruptBatch, match="t-0: the batch at offset 0 fails its CRC"):
        read(0, 3)


def test_an_offset_that_the_log_does_not_have() -> None:
    _, read = reading(lambda offset: (b"", errors.OFFSET_OUT_OF_RANGE, []))
    with pytest.raises(OffsetOutOfRange, match="fetch of t-0 from offset 7"):
        read(7, 9)


def test_reading_continues_at_a_new_leader() -> None:
    codes = [errors.NOT_LEADER_OR_FOLLOWER, errors.NONE]
    broker, read = reading(lambda offset: (batch(0, 3), codes.pop(0), []) if codes[0] else (batch(0, 3), 0, []))
    assert [reached for _, reached in read(0, 3)] == [3]
    assert broker.asked[MetadataRequest] == 2


def test_repeated_errors_end_at_the_timeout() -> None:
    _, read = reading(lambda offset: (b"", errors.NOT_LEADER_OR_FOLLOWER, []))
    with pytest.raises(RequestTimedOut, match=r"nothing came in .* NOT_LEADER_OR_FOLLOWER"):
        read(0, 3)


def test_aborted_batches_and_markers_are_left_out() -> None:
    data = b"".join(
        [
            batch(0, 2, producer=1),
            batch(2, 2, producer=2),
            batch(4, 1, producer=1),
            marker(5, 1, commit=False),
            batch(6, 2, producer=1),
            marker(8, 2, commit=True),
            marker(9, 1, commit=True),
            batch(10, 1),
        ]
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    _, read = reading(lambda offset: (data, 0, aborted), isolation_level="read_committed")
    ((received, reached),) = read(0, 11)
    kept = [header for header in scan(received).batches if not header.is_control]
    assert [header.base_offset for header in kept] == [2, 6, 10]
    assert reached == 11


def test_an_aborted_transaction_at_the_very_end_counts_as_read() -> None:
    data = batch(0, 2, producer=1)
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    _, read = reading(lambda offset: (data, 0, aborted), isolation_level="read_committed")
    assert read(0, 2) == [(b"", 2)]


def test_without_aborted_transactions_nothing_is_copied() -> None:
    data = batch(0, 2)
    fetched = Batches(b"before" + data + b"after", 6, 6 + len(data))
    headers = scan(*fetched).batches
    assert without_aborted(fetched, headers, []) is fetched
    other = [AbortedTransaction(producer_id=9, first_offset=0)]
    assert without_aborted(fetched, headers, other) is fetched


def test_a_later_transaction_of_the_same_producer_may_be_aborted_again() -> None:
    data = b"".join(
        [
            batch(0, 1, producer=1),
            marker(1, 1, commit=False),
            batch(2, 1, producer=1),
            marker(3, 1, commit=True),
            batch(4, 1, producer=1),
            marker(5, 1, commit=False),
        ]
    )
    aborted = [AbortedTransaction(producer_id=1, first_offset=4), AbortedTransaction(producer_id=1, first_offset=0)]
    fetched = Batches(b"before" + data + b"after", 6, 6 + len(data))
    kept = without_aborted(fetched, scan(*fetched).batches, aborted)
    assert [header.base_offset for header in scan(*kept).batches if not header.is_control] == [2]


def test_a_lost_connection_is_opened_again() -> None:
    world, broker, core = cluster(lambda offset: (batch(0, 3), 0, []))
    row = PartitionData(partition_index=0, high_watermark=0, records=batch(0, 3))
    whole = FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[row])])
    broker.on(FetchRequest, LOST, whole)
    chunk = world.run(core, RangeReading(core, PARTITION, 0, 3).next())
    assert chunk is not None
    assert (chunk.next_offset, broker.asked[FetchRequest]) == (3, 2)


def test_another_topic_of_the_same_name_is_not_read() -> None:
    world, _, core = cluster(lambda offset: (batch(0, 3), 0, []))
    with pytest.raises(TopicRecreated, match="topic t was deleted and created again"):
        world.run(core, RangeReading(core, PARTITION, 0, 3, topic_id=b"another topic id").next())
    assert world.run(core, RangeReading(core, PARTITION, 0, 3, topic_id=TOPIC_ID).next()) is not None


def test_fetches_end_when_a_range_is_closed() -> None:
    world, broker, core = cluster(lambda offset: (batch(offset, 5), 0, []))
    range_reading = RangeReading(core, PARTITION, 0, 100)
    world.run(core, range_reading.next())
    range_reading.close()
    world.advance(10_000)
    assert broker.asked[FetchRequest] <= 2


def test_waiting_for_records() -> None:
    log = {0: b""}
    world, broker, core = cluster(lambda offset: (log[0], 0, []))
    assert not world.run(core, wait_for_records(core, {PARTITION: 7}, 100))
    assert broker.sent(FetchRequest)[-1].max_wait_ms == 100
    log[0] = batch(7, 1)
    assert world.run(core, wait_for_records(core, {PARTITION: 7}, 100))
    before = world.now
    assert not world.run(core, wait_for_records(core, {}, 100))
    assert world.now - before >= 100


def test_an_error_ends_the_wait_for_records() -> None:
    world, _, core = cluster(lambda offset: (b"", errors.NOT_LEADER_OR_FOLLOWER, []))
    assert world.run(core, wait_for_records(core, {PARTITION: 7}, 100))


def test_bytes_of_an_offset() -> None:
    data = batch(4, 10)
    world, _, core = cluster(lambda offset: (data if offset < 14 else b"", 0, []))
    assert world.run(core, bytes_per_offset(core, {PARTITION: 4}, 1000)) == {PARTITION: len(data) / 10}
    assert world.run(core, bytes_per_offset(core, {PARTITION: 14}, 1000)) == {}


def test_a_range_whose_rest_was_compacted_away_is_at_its_end() -> None:
    """The broker reads up to the last stable offset, and there is nothing before it any more."""
    world, broker, core = cluster(lambda offset: (b"", 0, []), isolation_level="read_committed")
    row = PartitionData(partition_index=0, high_watermark=20, last_stable_offset=10)
    nothing = FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[row])])
    throttled = FetchResponse(throttle_time_ms=50, responses=nothing.responses)
    broker.on(FetchRequest, throttled, nothing)
    chunk = world.run(core, RangeReading(core, PARTITION, 7, 10).next())
    assert chunk is not None
    assert (chunk.batches().copy(), chunk.next_offset, broker.asked[FetchRequest]) == (b"", 10, 2)
    with pytest.raises(RequestTimedOut, match="no record there"):
        world.run(core, RangeReading(core, PARTITION, 7, 11, timeout_ms=2000).next())
