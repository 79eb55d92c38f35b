"""The checks of the replicated load: each of them fails for the loss that it is there to find."""

from collections.abc import Callable

import pytest

from .replicated_load import ABORTED, COMMITTED, PARTITIONS, UNKNOWN, Group, Numbered, Row, Shares, Transactions, Worker

COUNT = 5 * PARTITIONS
Rows = list[list[Row]]


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "start", lambda worker: None)


def numbers() -> Rows:
    """Return the rows of a topic to which 0, 1, 2, ... were written."""
    rows: Rows = [[] for _ in range(PARTITIONS)]
    for number in range(COUNT):
        rows[number % PARTITIONS].append((number // PARTITIONS, b"%d" % number))
    return rows


def swap(rows: Rows) -> None:
    (first, a), (second, b) = rows[2][1:3]
    rows[2][1:3] = [(first, b), (second, a)]


def repeat(rows: Rows) -> None:
    rows[2].append((len(rows[2]), rows[2][-1][1]))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda rows: rows[3].pop(), "acknowledged records are lost"),
        (lambda rows: rows[3].pop(0), "acknowledged records are lost"),
        (swap, "acknowledged records are lost"),
        (repeat, "duplicates or another order"),
    ],
)
def test_a_producer_misses_its_records(damage: Callable[[Rows], object], message: str) -> None:
    numbered = Numbered("", "orders", 1)
    numbered.sent = COUNT
    numbered.acknowledged = [dict(rows) for rows in numbers()]
    rows = numbers()
    numbered.check(rows)
    damage(rows)
    with pytest.raises(AssertionError, match=message):
        numbered.check(rows)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda rows: rows[0].pop(), "torn transactions"),
        (lambda rows: [records.pop(0) for records in rows], "transaction 0 was committed"),
        (lambda rows: [records.insert(1, (2, b"1")) for records in rows], "transaction 1 was aborted"),
        (lambda rows: [records.insert(0, (9, b"2")) for records in rows], "duplicates or another order"),
    ],
)
def test_transactions_are_whole(damage: Callable[[Rows], object], message: str) -> None:
    ledger = Transactions("", "ledger", 1)
    ledger.outcomes = [COMMITTED, ABORTED, COMMITTED, UNKNOWN]
    rows: Rows = [[(0, b"0"), (4, b"2")] for _ in range(PARTITIONS)]
    ledger.check(rows)
    damage(rows)
    with pytest.raises(AssertionError, match=message):
        ledger.check(rows)


def test_a_lost_record_that_a_group_has_read_is_detected() -> None:
    group = Group("", "orders", "classic")
    for seen, records in zip(group.seen, numbers(), strict=True):
        seen.update(records)
    rows = numbers()
    rows[1].pop()
    with pytest.raises(AssertionError, match="a consumer has read what is lost"):
        group.check(rows)


@pytest.mark.parametrize("owned", [({0, 1, 2, 3}, {3, 4, 5}), ({0, 1, 2}, {3, 4})])
def test_a_partition_has_two_owners_or_none(owned: tuple[set[int], set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "is_alive", lambda worker: True)
    group = Group("", "orders", "classic")
    first, second = group.members
    first.assigned, second.assigned = frozenset({0, 1, 2}), frozenset({3, 4, 5})
    assert group.has_one_owner_each()
    first.assigned, second.assigned = frozenset(owned[0]), frozenset(owned[1])
    assert not group.has_one_owner_each()


def test_a_share_group_gets_all_records_and_none_after_it_was_accepted() -> None:
    shares = Shares("", "jobs")
    shares.delivered = {(index, offset) for index, records in enumerate(numbers()) for offset, _ in records}
    shares.check(numbers())
    shares.delivered.remove((2, 1))
    with pytest.raises(AssertionError, match="not delivered"):
        shares.check(numbers())
    shares.delivered.add((2, 1))
    shares.again.append((2, 1))
    with pytest.raises(AssertionError, match="delivered again"):
        shares.check(numbers())
