"""The checker of registers finds each anomaly that is planted in a history, and none in histories of a correct log."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .histories_by_hand import HandWritten
from .operations import FAIL, OK, UNKNOWN, Operation
from .registers import READ, WRITE, anomalies

Rows = list[tuple[int, int, int, bool]]


class Registers(HandWritten):
    """History of registers; rows of reads are (offset, key, version, is_tombstone)."""

    def write(
        self, key: int, version: int, offset: int = -1, outcome: str = OK, *, tombstone: bool = False
    ) -> Operation:
        request = {"key": key, "version": version, "tombstone": tombstone}
        return self.add(WRITE, request, {"offset": offset} if outcome == OK else {}, outcome)

    def read(self, rows: Rows, end: int = 100, *, final: bool = False) -> Operation:
        return self.add(READ, {"final": final}, {"end": end, "rows": rows})

    def kinds(self) -> list[str]:
        return sorted({anomaly.kind for anomaly in anomalies(self.operations)})


@pytest.fixture
def history() -> Registers:
    return Registers()


def test_a_history_of_correct_reads_has_no_anomalies(history: Registers) -> None:
    history.write(1, 1, 0)
    history.write(2, 1, 1)
    history.read([(0, 1, 1, False), (1, 2, 1, False)], 2)
    history.write(1, 2, 2)
    history.write(2, 2, 3, tombstone=True)
    history.write(3, 1, outcome=UNKNOWN)
    history.read([(2, 1, 2, False), (3, 2, 2, True)], 4)
    history.read([(0, 1, 1, False), (1, 2, 1, False)], 2)  # of a leader that is cut off
    history.read([(2, 1, 2, False), (4, 3, 1, False)], 5, final=True)
    assert history.kinds() == []
    assert anomalies([]) == []


def test_lost(history: Registers) -> None:
    history.write(1, 1, 0)
    history.write(1, 2, 1)
    history.read([(0, 1, 1, False)], 2)
    assert history.kinds() == ["lost"]


def test_a_key_is_lost(history: Registers) -> None:
    history.write(1, 1, 0)
    history.read([], 1)
    assert history.kinds() == ["lost"]


def test_the_end_of_the_log_is_lost(history: Registers) -> None:
    history.write(1, 1, 0)
    history.read([], 0)
    assert history.kinds() == []
    history.read([], 0, final=True)
    assert history.kinds() == ["lost"]


def test_gone_back(history: Registers) -> None:
    history.write(1, 1, 0)
    history.write(1, 2, outcome=UNKNOWN)
    history.read([(1, 1, 2, False)], 2)
    history.read([(0, 1, 1, False)], 2)
    assert history.kinds() == ["gone back"]


def test_resurrected(history: Registers) -> None:
    history.write(1, 1, 0)
    history.write(1, 2, 1, tombstone=True)
    history.read([], 2)
    assert history.kinds() == []
    history.read([(0, 1, 1, False)], 2)
    assert history.kinds() == ["resurrected"]


def test_a_tombstone_of_unknown_outcome_may_have_removed_a_key(history: Registers) -> None:
    history.write(1, 1, 0)
    history.write(1, 2, outcome=UNKNOWN, tombstone=True)
    history.read([], 5, final=True)
    assert history.kinds() == []


def test_a_tombstone_that_was_written_later_removes_nothing(history: Registers) -> None:
    history.write(1, 1, 0)
    history.read([], 5)
    history.write(1, 2, 5, tombstone=True)
    assert history.kinds() == ["lost"]


def test_a_write_beyond_the_end_of_a_read_may_have_superseded_it(history: Registers) -> None:
    history.write(1, 1, 0)
    read = history.read([], 1)
    write = history.write(1, 2, 1)
    assert history.kinds() == ["lost"]
    write.invoked, read.completed = 3, 4
    assert history.kinds() == []


def test_backwards(history: Registers) -> None:
    history.write(1, 1, outcome=UNKNOWN)
    history.write(1, 2, 1)
    history.read([(1, 1, 2, False), (2, 1, 1, False)])
    assert "backwards" in history.kinds()


def test_a_version_twice(history: Registers) -> None:
    history.write(1, 1, 0)
    history.read([(0, 1, 1, False), (1, 1, 1, False)])
    assert history.kinds() == ["backwards", "moved"]


def test_moved(history: Registers) -> None:
    history.write(1, 1, 0)
    history.read([(1, 1, 1, False)])
    assert history.kinds() == ["moved"]


@pytest.mark.parametrize("row", [(1, 1, 2, False), (0, 2, 1, False), (0, 1, 1, True), (2, 3, 1, False)])
def test_invented(history: Registers, row: tuple[int, int, int, bool]) -> None:
    history.write(1, 1, 0)
    history.write(2, 1, outcome=UNKNOWN)
    history.write(3, 1, outcome=FAIL)
    history.read([row])
    assert "invented" in history.kinds()


def test_unordered(history: Registers) -> None:
    history.write(1, 1, 0)
    history.write(2, 1, 1)
    history.read([(1, 2, 1, False), (0, 1, 1, False)])
    assert history.kinds() == ["unordered"]


def correct(dice: random.Random, count: int) -> Registers:
    """Return the history of a correct log: it is compacted at any time, and tombstones go in a later pass."""
    history = Registers()
    log: Rows = []
    versions: dict[int, int] = {}
    retired: set[int] = set()
    next_offset = 0
    for _ in range(count):
        what = dice.random()
        if what < 0.5:
            key = dice.randrange(4)
            if key in retired:
                continue
            version = versions[key] = versions.get(key, 0) + 1
            tombstone, outcome = dice.random() < 0.3, dice.choice((OK, OK, OK, UNKNOWN))
            history.write(key, version, next_offset, outcome, tombstone=tombstone)
            if outcome == UNKNOWN:
                retired.add(key)
            if outcome == OK or dice.random() < 0.5:
                log.append((next_offset, key, version, tombstone))
                next_offset += 1
        elif what < 0.7:
            newest = {row[1]: row[0] for row in log}
            kept = [row for row in log if newest[row[1]] == row[0]]
            are_old = [row for row in kept if row[3]] if len(kept) == len(log) else []
            log = [row for row in kept if row not in are_old]
        else:
            history.read(list(log), next_offset)
    history.read(list(log), next_offset, final=True)
    return history


@given(st.integers(0, 1 << 32), st.integers(0, 40))
def test_a_correct_log_has_no_anomalies(seed: int, count: int) -> None:
    assert anomalies(correct(random.Random(seed), count).operations) == []


def drop_newest(history: Registers, dice: random.Random) -> bool:
    """Remove the newest record of a key that has no tombstone from the last read."""
    deleted = {one.request["key"] for one in history.operations if one.kind == WRITE and one.request["tombstone"]}
    last = history.operations[-1]
    rows = [row for row in last.result["rows"] if row[1] not in deleted]
    if not rows:
        return False
    key = dice.choice(rows)[1]
    newest = max(row[0] for row in rows if row[1] == key)
    acknowledged = any(one.kind == WRITE and one.result.get("offset") == newest for one in history.operations)
    last.result["rows"] = [row for row in last.result["rows"] if row[0] != newest]
    return acknowledged


def bring_back(history: Registers, dice: random.Random) -> bool:
    """Let the last read have only a value that a confirmed tombstone has deleted."""
    for one in reversed(history.operations):
        if one.kind == WRITE and one.outcome == OK and one.request["tombstone"] and one.request["version"] > 1:
            key = one.request["key"]
            before = next(
                (
                    other
                    for other in history.operations
                    if other.kind == WRITE
                    and other.outcome == OK
                    and other.request == {"key": key, "version": one.request["version"] - 1, "tombstone": False}
                ),
                None,
            )
            if before is None:
                continue
            last = history.operations[-1]
            others = [row for row in last.result["rows"] if row[1] != key]
            row = (before.result["offset"], key, before.request["version"], False)
            last.result["rows"] = sorted([*others, row])
            return True
    return False


@pytest.mark.parametrize("damage", [drop_newest, bring_back])
@given(st.integers(0, 1 << 32), st.integers(0, 40))
def test_damage_is_found(damage: Callable[[Registers, random.Random], bool], seed: int, count: int) -> None:
    dice = random.Random(seed)
    history = correct(dice, count)
    if damage(history, dice):
        assert anomalies(history.operations) != []
