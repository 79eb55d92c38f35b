"""Anomalies in a history of transactions that append to lists and read them: after Jepsen's list-append (Elle).

A key is a list that grows; every value is appended once in the whole history. The longest list that was read tells the order in
which its values were appended. From that follows who wrote before whom (ww) and who read what of whom (wr):

    lost write        a transaction is committed, and the last read of a key lacks a value of it
    duplicate         a list holds a value twice
    forked            two reads of a key of which neither begins with the other
    unknown value     a list holds a value that was never appended
    G0                writes of transactions in a circle: T1 before T2 here, T2 before T1 there
    G1a               a read holds a value of a transaction that was aborted
    G1b               a read ends with a value of a transaction that appended another one to the key after it
    G1c               a circle of ww and wr: T1 has read what T2 wrote, and the other way round

Two transactions of Kafka that are open at once may write two partitions in different order, so that G0 and G1c are found only
where whoever makes the history keeps its writers apart: see test_transactions.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tests.histories.cycles import cycles

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"
UNKNOWN: Final = "unknown"


@dataclass
class Transaction:
    """The operations of one transaction, in order, and its outcome as far as its client knows."""

    name: str
    appends: list[tuple[int, int]] = field(default_factory=list)
    """(key, value)"""
    reads: list[tuple[int, list[int]]] = field(default_factory=list)
    """(key, what the list held)"""
    outcome: str = UNKNOWN


def anomalies(history: Sequence[Transaction], final: Mapping[int, Sequence[int]]) -> list[str]:
    """Return the anomalies, one line each; `final` is the content of the lists at the end. None of them may hold a value of an
    aborted transaction, and all reads must be beginnings of them.
    """
    writer: dict[tuple[int, int], Transaction] = {}
    for transaction in history:
        for append in transaction.appends:
            assert append not in writer, "the history itself appends a value twice"
            writer[append] = transaction
    reads = [(transaction.name, key, values) for transaction in history for key, values in transaction.reads]
    reads += [("the last read", key, list(values)) for key, values in final.items()]
    problems = []
    for who, key, values in reads:
        problems += [f"duplicate: {who} read {value} twice in {key}" for value in _repeated(values)]
        problems += _read_wrongly(who, key, values, writer)
        if list(final.get(key, ()))[: len(values)] != values:
            problems.append(f"forked: {who} read {values} in {key}, which is {list(final.get(key, ()))} in the end")
    for transaction in history:
        if transaction.outcome == COMMITTED:
            problems += [
                f"lost write: {value} of {transaction.name} is not in {key}"
                for key, value in transaction.appends
                if value not in final.get(key, ())
            ]
    writes = _edges_of_writes(final, writer)
    problems += [f"G0: {' -> '.join(circle)}" for circle in _circles(writes)]
    if not any(line.startswith("G0") for line in problems):
        problems += [f"G1c: {' -> '.join(circle)}" for circle in _circles(writes | _edges_of_reads(history, writer))]
    return problems


def _repeated(values: Iterable[int]) -> list[int]:
    seen: set[int] = set()
    twice = []
    for value in values:
        if value in seen:
            twice.append(value)
        seen.add(value)
    return twice


def _read_wrongly(
    who: str, key: int, values: Sequence[int], writer: Mapping[tuple[int, int], Transaction]
) -> list[str]:
    problems = []
    for value in values:
        by = writer.get((key, value))
        if by is None:
            problems.append(f"unknown value: {who} read {value} in {key}")
        elif by.outcome == ABORTED:
            problems.append(f"G1a: {who} read {value} of {by.name} in {key}")
    by = writer.get((key, values[-1])) if values else None
    if by is not None:
        last = [value for where, value in by.appends if where == key][-1]
        if last != values[-1] and last not in values:
            problems.append(f"G1b: {who} read {values[-1]} of {by.name} last in {key}, which appended {last} after it")
    return problems


Edges = set[tuple[str, str]]


def _edges_of_writes(final: Mapping[int, Sequence[int]], writer: Mapping[tuple[int, int], Transaction]) -> Edges:
    """(earlier, later) for every two writers whose values stand next to each other."""
    edges = set()
    for key, values in final.items():
        names = [writer[key, value].name for value in values if (key, value) in writer]
        edges |= {(first, second) for first, second in pairwise(names) if first != second}
    return edges


def _edges_of_reads(history: Iterable[Transaction], writer: Mapping[tuple[int, int], Transaction]) -> Edges:
    """(writer, reader) for the last value of every read."""
    edges = set()
    for transaction in history:
        for key, values in transaction.reads:
            by = writer.get((key, values[-1])) if values else None
            if by is not None and by is not transaction:
                edges.add((by.name, transaction.name))
    return edges


def _circles(edges: Edges) -> list[list[str]]:
    """Groups of names in which each can be reached from each."""
    return [sorted(group) for group in cycles(sorted(edges))]
