"""The records that a worker may process, its commits and its pauses: decisions, in virtual time."""

import random

import pytest

from ottla import Record, TopicPartition
from ottla.records.record import Origin
from ottla.work.backlog import Backlog, Item
from ottla.work.retry import ATTEMPT, DUE, ERROR, ORIGIN, Retry

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def record(offset: int, key: bytes | None = None, partition: int = 0, **fields: object) -> Record:
    return Record(offset, 0, key, b"value", origin=Origin("orders", partition), **fields)  # type: ignore[arg-type]


def take(backlog: Backlog) -> Item:
    item = backlog.take()
    assert item is not None
    return item


def test_records_of_a_key_come_one_after_another() -> None:
    backlog = Backlog(100)
    backlog.add([record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3), record(4)], 0)
    taken = [take(backlog) for _ in range(4)]
    assert [item.record.offset for item in taken] == [0, 2, 3, 4]
    assert backlog.take() is None
    backlog.finish(taken[0])
    assert take(backlog).record.offset == 1


def test_the_same_key_in_another_partition_is_another_lane() -> None:
    backlog = Backlog(100)
    backlog.add([record(0, b"a"), record(0, b"a", 1)], 0)
    assert [take(backlog).record.partition for _ in range(2)] == [0, 1]


def test_offsets_are_committed_up_to_the_first_unfinished_record() -> None:
    backlog = Backlog(100)
    backlog.add([record(offset) for offset in (5, 6, 9)], 0)
    first, second, third = (take(backlog) for _ in range(3))
    backlog.finish(second)
    assert backlog.offsets_to_commit() == {FIRST: 5}
    backlog.finish(first)
    assert backlog.offsets_to_commit() == {FIRST: 9}  # 7 and 8 are no records
    assert backlog.offsets_to_commit() == {}
    backlog.finish(third)
    assert backlog.offsets_to_commit() == {FIRST: 10}
    backlog.on_commit_failed({FIRST: 10})
    assert backlog.offsets_to_commit() == {FIRST: 10}


def test_a_full_partition_is_paused_until_less_than_half_is_left() -> None:
    backlog = Backlog(4)
    backlog.add([record(offset) for offset in range(4)] + [record(0, partition=1)], 0)
    assert (backlog.partitions_to_pause(), backlog.partitions_to_resume()) == ([FIRST], [])
    assert backlog.partitions_to_pause() == []
    for _ in range(2):
        backlog.finish(take(backlog))
        assert backlog.partitions_to_resume() == []
    backlog.finish(take(backlog))
    assert backlog.partitions_to_resume() == [FIRST]


def test_a_record_that_is_not_due_pauses_its_partition() -> None:
    backlog = Backlog(100, Retry.due_ms)
    late = record(1, headers=[(DUE, b"1000")])
    backlog.add([record(0), late, record(2)], 900)
    backlog.finish(take(backlog))
    assert backlog.take() is None
    assert backlog.partitions_to_pause() == [FIRST]
    backlog.release(999)
    assert (backlog.take(), backlog.partitions_to_resume()) == (None, [])
    backlog.release(1000)
    assert [take(backlog).record.offset for _ in range(2)] == [1, 2]
    assert backlog.partitions_to_resume() == [FIRST]


def test_nothing_of_a_revoked_partition_is_taken_or_committed() -> None:
    backlog = Backlog(100)
    backlog.add([record(0, b"a"), record(1, b"a"), record(0, b"a", 1)], 0)
    running = take(backlog)
    backlog.hold([FIRST])
    assert backlog.running([FIRST]) == 1
    backlog.finish(running)
    assert (backlog.running([FIRST]), backlog.offsets_to_commit()) == (0, {FIRST: 1, SECOND: 0})
    backlog.revoke([FIRST])
    assert take(backlog).record.partition == 1
    assert backlog.take() is None
    backlog.add([record(1, b"a")], 0)  # assigned again
    assert take(backlog).record.offset == 1


def test_records_finished_after_a_revocation_change_nothing() -> None:
    backlog = Backlog(100)
    backlog.add([record(0)], 0)
    running = take(backlog)
    backlog.revoke([FIRST])
    backlog.add([record(0)], 0)
    backlog.finish(running)
    assert backlog.offsets_to_commit() == {FIRST: 0}


def test_a_closed_backlog_gives_nothing() -> None:
    backlog = Backlog(100)
    backlog.add([record(0), record(1)], 0)
    item = take(backlog)
    backlog.close()
    assert backlog.take() is None
    backlog.abandon(item)
    assert (backlog.offsets_to_commit(), backlog.unfinished()) == ({FIRST: 0}, {FIRST: 0})


def test_keys_that_cannot_be_hashed_keep_their_order() -> None:
    backlog = Backlog(100)
    first, second = record(0), record(1)
    from ottla.client.serialization import DeserializedRecord

    backlog.add([DeserializedRecord(first, {"id": 1}, 0), DeserializedRecord(second, {"id": 1}, 0)], 0)
    item = take(backlog)
    assert backlog.take() is None
    backlog.finish(item)
    assert take(backlog).record.offset == 1


@pytest.mark.parametrize("seed", range(30))
def test_random_walks_lose_no_record_and_keep_the_order(seed: int) -> None:
    """Every record is done once or more, in the order of its key, and nothing is committed before it is done."""
    choose = random.Random(seed)
    backlog = Backlog(choose.randrange(1, 20))
    keys = [None, b"a", b"b", b"c"]
    log = [record(offset, choose.choice(keys)) for offset in range(200)]
    position = committed = 0
    running: list[Item] = []
    finished: set[int] = set()
    latest: dict[bytes, int] = {}
    for _ in range(5_000):
        step = choose.randrange(5)
        if step == 0:
            more = log[position : position + choose.randrange(5)]
            position += len(more)
            backlog.add(more, 0)
        elif step == 1 and (item := backlog.take()) is not None:
            running.append(item)
        elif step == 2 and running:
            item = running.pop(choose.randrange(len(running)))
            backlog.finish(item)
            finished.add(item.record.offset)
            if item.record.key is not None:
                assert latest.get(item.record.key, -1) < item.record.offset
                latest[item.record.key] = item.record.offset
        elif step == 3:
            for offset in backlog.offsets_to_commit().values():
                assert finished >= set(range(offset))
                committed = offset
        elif step == 4 and choose.randrange(50) == 0:
            backlog.revoke([FIRST])
            position = committed
            running.clear()
            latest.clear()
    while position < len(log) or (item := backlog.take()) is not None or running:
        if position < len(log):
            backlog.add(log[position:], 0)
            position = len(log)
            continue
        if item is not None:
            running.append(item)
        backlog.finish(running.pop())
    assert backlog.offsets_to_commit() in ({FIRST: 200}, {})


def test_a_retry_goes_through_its_topics_to_the_dead_letters() -> None:
    retry = Retry("orders", delays=[10, 60], dead_letter="orders.dead", producer=None)
    assert retry.topics == ["orders", "orders.retry-1", "orders.retry-2"]
    failed = record(7, b"key", headers=[("trace", b"1")])
    topics = []
    for now in (1_000, 2_000, 3_000):
        written = retry.failed(failed, ValueError("no such order"), now)
        assert written is not None
        topics.append(written.topic)
        assert (written.value, written.key) == (b"value", b"key")
        headers = {name: value.encode() if isinstance(value, str) else value for name, value in written.headers}
        assert (headers["trace"], headers[ORIGIN], headers[ERROR]) == (
            b"1",
            b"orders-0@7",
            b"ValueError: no such order",
        )
        failed = Record(0, now, b"key", b"value", list(headers.items()), Origin(written.topic, 0))
        assert Retry.due_ms(failed) == {1_000: 11_000, 2_000: 62_000, 3_000: 0}[now]
    assert topics == ["orders.retry-1", "orders.retry-2", "orders.dead"]
    assert dict(failed.headers)[ATTEMPT] == b"4"


def test_without_dead_letters_the_last_error_is_not_written() -> None:
    retry = Retry("orders", delays=[], producer=None)
    assert retry.topics == ["orders"]
    assert retry.failed(record(0), ValueError(), 0) is None
    with pytest.raises(ValueError, match="delays are seconds"):
        Retry("orders", delays=[-1], producer=None)
