"""Memory of records in flight: every record acquired by itself, every second one released, all with a fate of its own."""

import tracemalloc

import pytest

from ottla.coordinators.share.acknowledgement import RELEASE, Acknowledgement, DeliveryLimits, InvalidAcknowledgement
from ottla.coordinators.share.acquisition import AcquireRequest, LogBatch
from ottla.coordinators.share.partition import SharePartition


def window_of(records: int) -> SharePartition:
    rules = DeliveryLimits(lock_ms=30_000, delivery_limit=5, max_locks=records)
    partition = SharePartition(0)
    for offset in range(records):
        acquired = partition.acquire(
            "m", offset, [LogBatch(offset, offset)], AcquireRequest(1, 1, False), rules, offset
        )
        assert acquired == [(offset, offset, 1)]
    assert partition.next_offset(rules) is None
    for offset in range(0, records, 2):
        change = partition.acknowledge("m", [Acknowledgement(offset, offset, [RELEASE])], rules, offset)
        assert not isinstance(change, InvalidAcknowledgement)
        partition.settle(change, written=True)
    return partition


@pytest.mark.parametrize(("partitions", "records", "most_mb"), [(1, 10_000, 10), (5, 2000, 10)])
def test_records_in_flight(partitions: int, records: int, most_mb: int) -> None:
    tracemalloc.start()
    try:
        windows = [window_of(records) for _ in range(partitions)]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(partition.window) for partition in windows) == partitions * records
    assert used < most_mb * 1_000_000, f"{used / 1e6:.1f} MB"


def test_a_batch_is_one_entry() -> None:
    rules = DeliveryLimits(lock_ms=30_000, delivery_limit=5, max_locks=10_000)
    partition = SharePartition(0)
    partition.acquire("m", 0, [LogBatch(0, 9999)], AcquireRequest(500, 500, False), rules, 0)
    assert len(partition.window.spans) == 1
