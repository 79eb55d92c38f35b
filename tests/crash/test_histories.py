"""The checker of histories finds every anomaly, and nothing where nothing is wrong."""

import pytest

from .histories import ABORTED, COMMITTED, UNKNOWN, Transaction, anomalies


def transaction(
    name: str,
    appends: list[tuple[int, int]] | None = None,
    reads: list[tuple[int, list[int]]] | None = None,
    outcome: str = COMMITTED,
) -> Transaction:
    return Transaction(name, appends or [], reads or [], outcome)


def kinds(history: list[Transaction], final: dict[int, list[int]]) -> list[str]:
    return sorted({line.partition(":")[0] for line in anomalies(history, final)})


def test_a_correct_history_has_no_anomalies() -> None:
    history = [
        transaction("a", [(1, 10), (2, 11), (1, 12)]),
        transaction("b", [(1, 20)], [(1, [10, 12]), (2, [11])]),
        transaction("c", [(1, 30), (2, 31)], outcome=ABORTED),
        transaction("d", [(2, 40)], outcome=UNKNOWN),
        transaction("e", [(3, 50)], [(1, []), (3, [])], outcome=UNKNOWN),
    ]
    assert anomalies(history, {1: [10, 12, 20], 2: [11, 40]}) == []
    assert anomalies(history, {1: [10, 12, 20], 2: [11], 3: [50]}) == []
    assert anomalies([], {}) == []


def test_a_lost_write() -> None:
    history = [transaction("a", [(1, 10), (2, 11)])]
    assert kinds(history, {1: [10], 2: []}) == ["lost write"]
    assert kinds(history, {1: [10]}) == ["lost write"]


def test_a_duplicate() -> None:
    history = [transaction("a", [(1, 10)]), transaction("b", [(1, 20)])]
    assert kinds(history, {1: [10, 20, 10]}) == ["G0", "duplicate"]
    assert kinds([transaction("a", [(1, 10)])], {1: [10, 10]}) == ["duplicate"]


def test_a_fork() -> None:
    history = [transaction("a", [(1, 10)]), transaction("b", [(1, 20)]), transaction("c", reads=[(1, [20])])]
    assert kinds(history, {1: [10, 20]}) == ["forked"]
    assert kinds([*history[:2], transaction("c", reads=[(1, [10, 20])])], {1: [10]}) == ["forked", "lost write"]


def test_a_value_that_was_never_appended() -> None:
    assert kinds([transaction("a", [(1, 10)])], {1: [10, 77]}) == ["unknown value"]


def test_g0() -> None:
    history = [transaction("a", [(1, 10), (2, 11)]), transaction("b", [(1, 20), (2, 21)])]
    assert kinds(history, {1: [10, 20], 2: [21, 11]}) == ["G0"]
    assert kinds(history, {1: [10, 20], 2: [11, 21]}) == []


def test_g1a() -> None:
    aborted = transaction("a", [(1, 10)], outcome=ABORTED)
    assert kinds([aborted], {1: [10]}) == ["G1a"]
    assert kinds([aborted, transaction("b", reads=[(1, [10])])], {1: []}) == ["G1a", "forked"]


def test_g1b() -> None:
    history = [transaction("a", [(1, 10), (1, 11)]), transaction("b", reads=[(1, [10])])]
    assert kinds(history, {1: [10, 11]}) == ["G1b"]


def test_g1c() -> None:
    history = [
        transaction("a", [(1, 10)], [(2, [20])]),
        transaction("b", [(2, 20)], [(1, [10])]),
    ]
    assert kinds(history, {1: [10], 2: [20]}) == ["G1c"]
    longer = [
        transaction("a", [(1, 10)], [(3, [30])]),
        transaction("b", [(2, 20)], [(1, [10])]),
        transaction("c", [(2, 21), (3, 30)]),
    ]
    assert kinds(longer, {1: [10], 2: [20, 21], 3: [30]}) == ["G1c"]
    assert kinds(longer, {1: [10], 2: [21, 20], 3: [30]}) == []


def test_long_chains_need_no_deep_stack() -> None:
    history = [transaction(f"t{number}", [(1, number)]) for number in range(5000)]
    assert anomalies(history, {1: list(range(5000))}) == []


def test_a_history_must_append_a_value_once() -> None:
    with pytest.raises(AssertionError, match="twice"):
        anomalies([transaction("a", [(1, 10)]), transaction("b", [(1, 10)])], {})
