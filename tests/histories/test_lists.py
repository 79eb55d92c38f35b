"""The checker of lists finds each anomaly that is planted in a history, and none in histories of correct lists."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .histories_by_hand import HandWritten
from .lists import FINAL, TRANSACTION, anomalies, shared_write_cycles
from .operations import FAIL, OK, UNKNOWN, Operation

Rows = list[tuple[int, int]]
Reads = Sequence[tuple[int, int, int, Rows]]


class Lists(HandWritten):
    """History of transactions; reads are (list, start, end, rows), and complete 2 s after the beginning."""

    def transaction(
        self,
        appends: Sequence[tuple[int, int]] = (),
        reads: Reads = (),
        outcome: str = OK,
        appended: Sequence[tuple[int, int, int]] = (),
        **times: Any,
    ) -> Operation:
        begun = times.get("invoked", self._now + 10)
        result: dict[str, Any] = {"appended": appended, "reads": [(*read, begun + 2) for read in reads]}
        if outcome != FAIL:
            result["committing"] = begun + 3
        return self.add(TRANSACTION, {"appends": appends}, result, outcome, **times)

    def final(self, lists: dict[int, Rows], end: int = 100) -> None:
        self.add(FINAL, {}, {"reads": [(key, 0, end, rows, self._now + 12) for key, rows in lists.items()]})

    def kinds(self, *exclusive: int) -> list[str]:
        return sorted({anomaly.kind for anomaly in anomalies(self.operations, frozenset(exclusive))})


@pytest.fixture
def history() -> Lists:
    return Lists()


def test_a_history_of_correct_reads_has_no_anomalies(history: Lists) -> None:
    history.transaction([(1, 10), (2, 11), (1, 12)], appended=[(1, 10, 0), (2, 11, 0), (1, 12, 1)])
    history.transaction([(1, 20)], [(1, 0, 3, [(0, 10), (1, 12)]), (2, 0, 1, [(0, 11)])], client="b")
    history.transaction([(1, 30), (2, 31)], outcome=FAIL)
    history.transaction([(2, 40)], [(1, 3, 3, [])], outcome=UNKNOWN, client="b")
    history.add(TRANSACTION, {"appends": [(3, 50), (3, 51)]})
    history.final({1: [(0, 10), (1, 12), (4, 20)], 2: [(0, 11), (5, 40)], 3: [(0, 50), (1, 51)]})
    assert history.kinds(1, 2, 3) == []
    assert anomalies([]) == []


def test_lost(history: Lists) -> None:
    history.transaction([(1, 10), (2, 11)])
    history.final({1: [(0, 10)], 2: []})
    assert history.kinds() == ["lost"]


def test_torn(history: Lists) -> None:
    history.transaction([(1, 10), (2, 11)], outcome=UNKNOWN)
    history.final({1: [(0, 10)], 2: []})
    assert history.kinds() == ["torn"]


def test_duplicate(history: Lists) -> None:
    history.transaction([(1, 10)])
    history.final({1: [(0, 10), (5, 10)]})
    assert history.kinds() == ["duplicate"]


def test_invented(history: Lists) -> None:
    history.transaction([(1, 10)])
    history.final({1: [(0, 10), (1, 77)]})
    assert history.kinds() == ["invented"]


def test_a_value_in_another_list(history: Lists) -> None:
    history.transaction([(1, 10)])
    history.final({1: [], 2: [(0, 10)]})
    assert history.kinds() == ["invented"]


def test_two_reads_contradict_each_other(history: Lists) -> None:
    history.transaction([(1, 10)])
    history.transaction([(1, 20)])
    history.transaction(reads=[(1, 0, 1, [(0, 10)])])
    history.final({1: [(0, 20), (1, 10)]})
    assert history.kinds() == ["duplicate", "inconsistent"]


def test_a_read_contradicts_an_acknowledgement(history: Lists) -> None:
    history.transaction([(1, 10)], appended=[(1, 10, 7)])
    history.final({1: [(8, 10)]})
    assert history.kinds() == ["duplicate", "skipped"]


@pytest.mark.parametrize("rows", [[(1, 10), (0, 20)], [(0, 10), (0, 10)], [(0, 10), (100, 20)]])
def test_offsets_of_a_read(history: Lists, rows: Rows) -> None:
    history.transaction([(1, 10), (1, 20)])
    history.final({1: rows})
    assert "unordered" in history.kinds()


def test_reordered(history: Lists) -> None:
    history.transaction([(1, 10), (1, 11)])
    history.final({1: [(0, 11), (1, 10)]})
    assert history.kinds() == ["reordered"]


def test_skipped(history: Lists) -> None:
    history.transaction([(1, 10), (1, 11)])
    history.transaction(reads=[(1, 0, 3, [(1, 11)])])
    history.final({1: [(0, 10), (1, 11)]})
    assert history.kinds() == ["skipped"]


def test_a_read_up_to_the_last_stable_offset_may_end_between_two_records(history: Lists) -> None:
    history.transaction([(1, 10), (1, 11)])
    history.transaction(reads=[(1, 0, 1, [(0, 10)])])
    history.final({1: [(0, 10), (2, 11)]})
    assert history.kinds() == []


def test_g0_in_exclusive_lists_only(history: Lists) -> None:
    history.transaction([(1, 10), (2, 11)])
    history.transaction([(1, 20), (2, 21)])
    history.final({1: [(0, 10), (1, 20)], 2: [(0, 21), (1, 11)]})
    assert history.kinds(1, 2) == ["G0"]
    assert history.kinds(1) == []
    assert shared_write_cycles(history.operations, frozenset()) == 2
    assert shared_write_cycles(history.operations, frozenset([1])) == 0


def test_g1a(history: Lists) -> None:
    history.transaction([(1, 10)], outcome=FAIL)
    history.transaction(reads=[(1, 0, 1, [(0, 10)])])
    assert history.kinds() == ["G1a"]


def test_g1b(history: Lists) -> None:
    history.transaction([(1, 10)], invoked=10, completed=30)
    history.transaction(reads=[(1, 0, 1, [(0, 10)])], invoked=5)
    history.final({1: [(0, 10)]})
    assert history.kinds() == ["G1b"]


def test_g1c(history: Lists) -> None:
    """Each transaction has read what the other one wrote; their times overlap."""
    history.transaction([(1, 10)], [(2, 0, 1, [(0, 20)])], invoked=10)
    history.transaction([(2, 20)], [(1, 0, 1, [(0, 10)])], invoked=10)
    for operation in history.operations:
        operation.result["committing"] = 0.0  # so that the times alone show nothing
    history.final({1: [(0, 10)], 2: [(0, 20)]})
    assert history.kinds() == ["G1c"]


def test_g1c_with_the_order_of_a_client(history: Lists) -> None:
    history.transaction([], [(1, 0, 1, [(0, 20)])], client="a", invoked=10)
    history.transaction([(2, 10)], client="a", invoked=20)
    history.transaction([(1, 20)], [(2, 0, 1, [(0, 10)])], client="b", invoked=10)
    for operation in history.operations:
        operation.result["committing"] = 0.0
    history.final({1: [(0, 20)], 2: [(0, 10)]})
    assert history.kinds() == ["G1c"]


def test_g1c_with_writes(history: Lists) -> None:
    history.transaction([(1, 10)], [(2, 0, 1, [(0, 21)])], invoked=10)
    history.transaction([(1, 20), (2, 21)], invoked=10)
    history.operations[1].result["committing"] = 0.0
    history.final({1: [(0, 10), (1, 20)], 2: [(0, 21)]})
    assert history.kinds(1, 2) == ["G1c with writes"]
    assert history.kinds(2) == []


def test_the_history_itself_appends_a_value_once(history: Lists) -> None:
    history.transaction([(1, 10)])
    history.transaction([(1, 10)])
    with pytest.raises(AssertionError, match="twice"):
        history.kinds()


class Model:
    """Lists of a correct broker, with markers: transactions are open at once, and reads end at the last stable offset."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.history = Lists()
        self.logs: dict[int, list[tuple[int, str]]] = {key: [] for key in range(4)}
        """Value (-1 for a marker) and transaction of each offset."""
        self.ended: dict[tuple[str, int], bool] = {}
        """True for commit, by transaction and list, once its marker is written."""
        self._now = 0.0

    def _read(self, key: int) -> tuple[int, int, int, Rows, float]:
        log = self.logs[key]
        stable = next((offset for offset, (_, name) in enumerate(log) if (name, key) not in self.ended), len(log))
        start = self._dice.randint(0, stable)
        rows = [
            (offset, value)
            for offset, (value, name) in enumerate(log[:stable])
            if offset >= start and value >= 0 and self.ended[name, key]
        ]
        return key, start, stable, rows, self._now

    def _step(self, transactions: list[dict[str, Any]]) -> None:
        one = self._dice.choice(transactions)
        self._now += 1
        if one["left"] and self._dice.random() < 0.7:
            key, value = one["left"].pop(0)
            self.logs[key].append((value, one["name"]))
            one["appended"].append((key, value, len(self.logs[key]) - 1))
        elif not one["left"]:
            commit = one["outcome"] != FAIL and one["commits"]
            if one["committing"] is None:
                one["committing"] = self._now
                one["markers"] = sorted({key for key, _ in one["appends"]})
            elif one["markers"]:
                key = one["markers"].pop()
                self.logs[key].append((-1, one["name"]))
                self.ended[one["name"], key] = commit
            else:
                one["is_over"] = True
                return
        elif one["committing"] is None:
            one["reads"].append(self._read(self._dice.randrange(4)))

    def run(self, count: int) -> list[Operation]:
        value = 0
        waiting = []
        for number in range(count):
            appends = [(self._dice.randrange(4), value + index) for index in range(self._dice.randint(1, 4))]
            value += len(appends)
            waiting.append(
                {
                    "name": f"t{number}",
                    "appends": appends,
                    "left": list(appends),
                    "appended": [],
                    "reads": [],
                    "outcome": self._dice.choice((OK, OK, FAIL, UNKNOWN)),
                    "commits": True,
                    "committing": None,
                    "is_over": False,
                }
            )
            if waiting[-1]["outcome"] == UNKNOWN:
                waiting[-1]["commits"] = self._dice.random() < 0.5
        open_now: list[dict[str, Any]] = []
        while waiting or open_now:
            if waiting and (not open_now or self._dice.random() < 0.2):
                one = waiting.pop(0)
                one["invoked"] = self._now
                open_now.append(one)
            self._step(open_now)
            for one in [one for one in open_now if one["is_over"]]:
                open_now.remove(one)
                self._add(one)
        self.history.final({})
        self.history.operations[-1].result["reads"] = [
            (key, 0, len(log), [(o, v) for o, (v, n) in enumerate(log) if v >= 0 and self.ended[n, key]], self._now)
            for key, log in self.logs.items()
        ]
        return self.history.operations

    def _add(self, one: dict[str, Any]) -> None:
        result = {"appended": one["appended"], "reads": one["reads"]}
        if one["outcome"] != FAIL:
            result["committing"] = one["committing"]
        times = {"invoked": one["invoked"], "completed": self._now}
        self.history.add(TRANSACTION, {"appends": one["appends"]}, result, one["outcome"], **times)


@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_correct_lists_have_no_anomalies(seed: int, count: int) -> None:
    operations = Model(random.Random(seed)).run(count)
    assert anomalies(operations) == []


def committed(operation: Operation) -> bool:
    return operation.kind == TRANSACTION and operation.outcome == OK


def lose(operations: list[Operation], dice: random.Random) -> bool:
    """Remove a committed value from the last read."""
    values = [value for one in operations if committed(one) for _, value in one.request["appends"]]
    if not values:
        return False
    lost = dice.choice(values)
    reads = operations[-1].result["reads"]
    operations[-1].result["reads"] = [
        (key, start, end, [row for row in rows if row[1] != lost], at) for key, start, end, rows, at in reads
    ]
    return True


def abort(operations: list[Operation], dice: random.Random) -> bool:
    """Say that a committed transaction was aborted."""
    chosen = [one for one in operations if committed(one)]
    for one in chosen[:1]:
        one.outcome = FAIL
    return bool(chosen)


@pytest.mark.parametrize("damage", [lose, abort])
@given(st.integers(0, 1 << 32), st.integers(1, 12))
def test_damage_is_found(damage: Callable[[list[Operation], random.Random], bool], seed: int, count: int) -> None:
    dice = random.Random(seed)
    operations = Model(dice).run(count)
    if damage(operations, dice):
        assert anomalies(operations) != []
