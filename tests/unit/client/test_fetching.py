"""Fetching raw batches: what is handed on, where reading goes on, what is left out under read_committed."""

from collections.abc import Callable

import pytest

from ottla.client.consumer.fetching import Fetched, fetch_batches, without_aborted
from ottla.client.errors import CorruptBatch, OffsetOutOfRange, RequestTimedOut
from ottla.client.topics import TopicPartition
from ottla.protocol import errors
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.records.batch import build, records_of, scan
from ottla.records.control import build_marker
from ottla.records.record import Record
from tests.unit.client.peer import TOPIC_ID, Peer, cluster_with

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


def reading(serve: Serve, configs: dict[str, str] | None = None) -> tuple[Peer, Callable[[int, int], list[Fetched]]]:
    """A peer whose Fetch answers come from `serve(offset)`, and a function that reads from it."""
    peer = Peer()

    def answer(request: FetchRequest) -> FetchResponse:
        wanted = request.topics[0].partitions[0]
        data, code, aborted = serve(wanted.fetch_offset)
        row = PartitionData(
            partition_index=0, error_code=code, high_watermark=0, records=data, aborted_transactions=aborted
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[row])])

    peer.answers[FetchRequest] = answer
    cluster, _ = cluster_with(peer, configs)
    return peer, lambda start, end: list(fetch_batches(cluster, PARTITION, start, end, timeout_ms=2000))


def test_whole_batches_come_in_order_up_to_the_end() -> None:
    log = {0: batch(0, 5) + batch(5, 5), 10: batch(10, 5), 15: batch(15, 5)}
    peer, read = reading(lambda offset: (log[offset], 0, []))
    assert [(offsets(found.data), found.next_offset) for found in read(0, 12)] == [
        (list(range(10)), 10),
        (list(range(10, 15)), 15),
    ]
    assert peer.asked.count("FetchRequest") == 2


def test_a_batch_that_is_cut_at_the_end_is_asked_for_again() -> None:
    cut = batch(5, 5)[:-3]
    _, read = reading(lambda offset: (batch(0, 5) + cut if offset == 0 else batch(5, 5), 0, []))
    assert [found.next_offset for found in read(0, 10)] == [5, 10]


def test_a_damaged_batch_is_not_handed_on() -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-1] ^= 1
    _, read = reading(lambda offset: (bytes(damaged), 0, []))
    with pytest.raises(CorruptBatch, match="t-0: the batch at offset 0 fails its CRC"):
        read(0, 3)


def test_an_offset_that_the_log_does_not_have() -> None:
    _, read = reading(lambda offset: (b"", errors.OFFSET_OUT_OF_RANGE, []))
    with pytest.raises(OffsetOutOfRange, match="fetch of t-0 from offset 7"):
        read(7, 9)


def test_a_moved_leader_is_looked_for_and_reading_goes_on() -> None:
    codes = [errors.NOT_LEADER_OR_FOLLOWER, errors.NONE]
    peer, read = reading(lambda offset: (batch(0, 3), codes.pop(0), []) if codes[0] else (batch(0, 3), 0, []))
    assert [found.next_offset for found in read(0, 3)] == [3]
    assert peer.asked.count("MetadataRequest") == 2


def test_trouble_without_end_ends_at_the_timeout() -> None:
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
    _, read = reading(lambda offset: (data, 0, aborted), {"isolation.level": "read_committed"})
    (found,) = read(0, 11)
    kept = [header for header in scan(found.data).batches if not header.is_control]
    assert [header.base_offset for header in kept] == [2, 6, 10]
    assert found.next_offset == 11


def test_an_aborted_transaction_at_the_very_end_counts_as_read() -> None:
    data = batch(0, 2, producer=1)
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    _, read = reading(lambda offset: (data, 0, aborted), {"isolation.level": "read_committed"})
    assert read(0, 2) == [Fetched(b"", 2)]


def test_without_aborted_transactions_nothing_is_copied() -> None:
    data = batch(0, 2)
    assert without_aborted(data, scan(data).batches, []) is data
    other = [AbortedTransaction(producer_id=9, first_offset=0)]
    assert without_aborted(data, scan(data).batches, other) is data


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
    kept = without_aborted(data, scan(data).batches, aborted)
    assert [header.base_offset for header in scan(kept).batches if not header.is_control] == [2]
