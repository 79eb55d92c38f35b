"""Anomalies of transactions that append to lists and read them, after Jepsen's list-append and its workload for Kafka.

A list is a partition; each value is appended once in the whole history, and offsets are the order of a list. A read goes on
from the offset where its client was, or from 0, up to the last stable offset of that moment, with `read_committed`.

Kafka's transactions are atomic and read-committed per partition, and not isolated: see Jepsen's analyses of Redpanda 21.10.1
and Bufstream 0.1.0, and `allowed-error-types` of Jepsen's workload for Redpanda. There G0 is always allowed, G1c is allowed
with edges of writes and not with those of reads alone, and an aborted read never; the decisions here follow it.

    always an anomaly
      invented            a read holds a value that was never appended to the list
      duplicate           a value is at two offsets: transactional producers are idempotent
      inconsistent        two reads, or a read and an acknowledgement, have different values at an offset
      unordered           a read does not have increasing offsets in its range
      reordered           the appends of a transaction to a list are not in the order in which they were made
      lost                a transaction is committed, and the list lacks a value of it at the end
      skipped             a read passes the offset of a value that is committed, and does not hold it
      G1a                 a read holds a value of a transaction that was aborted
      G1b                 a read holds a value of a transaction that had not begun to commit when the read had ended: an
                          intermediate state
      torn                a transaction of unknown outcome has some, but not all of its values in the lists at the end
      G1c                 a cycle of reads: T1 has read a value of T2, and T2 one of T1. Each had to be committed before the
                          other one. The order of one client's transactions counts as well: each one begins after the end of
                          the one before is known, or after its successor has fenced it
    an anomaly only in exclusive lists, to which the clients write one at a time
      G0                  a cycle of writes: T1 before T2 in one list, T2 before T1 in another one
      G1c with writes     a cycle of reads and writes
    legal, and not looked for
      G0 in shared lists  brokers append the records of open transactions as they arrive: writes are not isolated
      a torn read         a read up to the last stable offset of several partitions may hold a transaction's values in one and
                          not in another: markers are written to each partition by itself. Even in one partition the last
                          stable offset may lie between two records of a transaction, before another one that is open
      stale reads         the answer to a commit does not wait until the markers can be read
      rw                  a transaction that misses what another one appended need not come before it: reads are no snapshot.
                          So there are no anti-dependency edges, and no G2 and no G-single
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from .cycles import cycles, shortest_cycle
from .operations import FAIL, NEVER, OK, UNKNOWN, Anomaly, Operation

TRANSACTION: Final = "transaction"
FINAL: Final = "final"
"""Kind of the read of all lists after the end of all other operations."""


class Read(NamedTuple):
    """Read of a list: the records at offsets from `start` up to `end` (exclusive), and the time at which it was complete."""

    key: int
    start: int
    end: int
    rows: Sequence[tuple[int, int]]
    """(offset, value)"""
    at: float
    operation: Operation


class _Index(NamedTuple):
    """Lookups of a history.

    writers  transaction that appended a value, with the key
    offsets  offset of each value of a list that a read holds, or that a committed transaction was told
    """

    reads: list[Read]
    writers: dict[int, tuple[int, Operation]]
    offsets: dict[int, dict[int, int]]


def reads_of(operation: Operation) -> Iterable[Read]:
    """Return the reads of an operation."""
    for key, start, end, rows, at in operation.result.get("reads", ()):
        yield Read(key, start, end, [(offset, value) for offset, value in rows], at, operation)


def anomalies(history: Sequence[Operation], exclusive: frozenset[int] = frozenset()) -> list[Anomaly]:
    """Return the anomalies of a history; `exclusive` are the lists to which transactions write one at a time."""
    writers: dict[int, tuple[int, Operation]] = {}
    for operation in history:
        for key, value in operation.request.get("appends", ()):
            assert value not in writers, "the history itself appends a value twice"
            writers[value] = key, operation
    index = _Index([read for operation in history for read in reads_of(operation)], writers, {})
    return [
        *_offsets(history, index),
        *_contents(index),
        *_skipped(index),
        *_final(history, index),
        *_cycles(history, index, exclusive),
    ]


def _offsets(history: Sequence[Operation], index: _Index) -> Iterable[Anomaly]:
    """Compare all reads and acknowledgements of an offset, and all offsets of a value; fill `index.offsets`."""
    values: dict[tuple[int, int], tuple[int, int]] = {}
    places: dict[int, tuple[int, int, int]] = {}

    def look(key: int, offset: int, value: int, number: int) -> Iterable[Anomaly]:
        before, by = values.setdefault((key, offset), (value, number))
        if before != value:
            text = f"list {key} has {before} and {value} at offset {offset}"
            yield Anomaly("inconsistent", text, (by, number))
        old_key, old_offset, by = places.setdefault(value, (key, offset, number))
        if (old_key, old_offset) != (key, offset):
            text = f"value {value} is at {old_key}@{old_offset} and at {key}@{offset}"
            yield Anomaly("duplicate", text, (by, number))
        index.offsets.setdefault(key, {})[offset] = value

    for read in index.reads:
        for offset, value in read.rows:
            yield from look(read.key, offset, value, read.operation.number)
    for operation in history:
        if operation.kind == TRANSACTION and operation.outcome == OK:
            for key, value, offset in operation.result.get("appended", ()):
                yield from look(key, offset, value, operation.number)


def _contents(index: _Index) -> Iterable[Anomaly]:
    """Look at each value of each read by itself."""
    for read in index.reads:
        reader = read.operation.number
        offsets = [offset for offset, _ in read.rows]
        if any(first >= second for first, second in pairwise([read.start - 1, *offsets, read.end])):
            text = f"a read of list {read.key} from {read.start} to {read.end} has the offsets {offsets[:20]}"
            yield Anomaly("unordered", text, (reader,))
        for offset, value in read.rows:
            key, writer = index.writers.get(value, (-1, None))
            if writer is None or key != read.key:
                yield Anomaly("invented", f"{value} at {read.key}@{offset} was never appended there", (reader,))
            elif writer.outcome == FAIL:
                text = f"{value} at {read.key}@{offset} belongs to an aborted transaction"
                yield Anomaly("G1a", text, (writer.number, reader))
            elif writer.is_complete and read.at < writer.result.get("committing", NEVER):
                text = f"{value} at {read.key}@{offset} was read before its transaction began to commit"
                yield Anomaly("G1b", text, (writer.number, reader))


def _skipped(index: _Index) -> Iterable[Anomaly]:
    """Compare each read with all values that are committed in its range."""
    ordered = {key: sorted(rows) for key, rows in index.offsets.items()}
    for read in index.reads:
        offsets = ordered.get(read.key, [])
        expected = offsets[bisect_left(offsets, read.start) : bisect_left(offsets, read.end)]
        if len(expected) > len(read.rows):
            held = {offset for offset, _ in read.rows}
            missing = [offset for offset in expected if offset not in held]
            value = index.offsets[read.key][missing[0]]
            text = f"a read of list {read.key} from {read.start} to {read.end} lacks {value} at {missing[0]}"
            writer = index.writers.get(value)
            numbers = (read.operation.number,) if writer is None else (writer[1].number, read.operation.number)
            yield Anomaly("skipped", text, numbers)


def _final(history: Sequence[Operation], index: _Index) -> Iterable[Anomaly]:
    """Compare each transaction with the lists at the end."""
    finals = [operation for operation in history if operation.kind == FINAL and operation.outcome == OK]
    if not finals:
        return
    number = finals[-1].number
    offset_of = {value: offset for read in reads_of(finals[-1]) for offset, value in read.rows}
    for operation in history:
        appends = operation.request.get("appends", ())
        missing = [value for _, value in appends if value not in offset_of]
        if operation.outcome == OK and missing:
            text = f"the values {missing} of a committed transaction are not in the lists"
            yield Anomaly("lost", text, (operation.number, number))
        elif operation.outcome == UNKNOWN and 0 < len(missing) < len(appends):
            text = f"the values {missing} of {[value for _, value in appends]} are not in the lists"
            yield Anomaly("torn", text, (operation.number, number))
        newest: dict[int, int] = {}
        for key, value in appends:
            offset = offset_of.get(value, NEVER)
            if offset < newest.get(key, -1):
                text = f"value {value} of list {key} is at {offset}, before an earlier one of its transaction"
                yield Anomaly("reordered", text, (operation.number, number))
            newest[key] = int(offset) if offset != NEVER else newest.get(key, -1)


Edges = list[tuple[int, int]]


def write_edges(index_offsets: dict[int, dict[int, int]], writers: dict[int, tuple[int, Operation]]) -> Edges:
    """Return (earlier, later) for every two writers whose values are neighbours in a list."""
    edges = []
    for rows in index_offsets.values():
        numbers = [writers[rows[offset]][1].number for offset in sorted(rows) if rows[offset] in writers]
        edges += [(first, second) for first, second in pairwise(numbers) if first != second]
    return edges


def _read_edges(history: Sequence[Operation], index: _Index) -> Edges:
    """Return (writer, reader) for the values that transactions have read, and the order of the transactions of each client."""
    edges = []
    for read in index.reads:
        if read.operation.kind == TRANSACTION:
            for _, value in read.rows:
                writer = index.writers.get(value)
                if writer is not None and writer[1] is not read.operation:
                    edges.append((writer[1].number, read.operation.number))
    by_client: dict[str, list[int]] = defaultdict(list)
    for operation in history:
        if operation.kind == TRANSACTION:
            by_client[operation.client].append(operation.number)
    for numbers in by_client.values():
        edges += pairwise(numbers)
    return edges


def _cycles(history: Sequence[Operation], index: _Index, exclusive: frozenset[int]) -> Iterable[Anomaly]:
    """Search the graphs of writes (exclusive lists only) and reads for cycles, each kind once."""
    writes = write_edges({key: index.offsets[key] for key in sorted(index.offsets) if key in exclusive}, index.writers)
    reads = _read_edges(history, index)
    for kind, edges in (("G0", writes), ("G1c", reads), ("G1c with writes", writes + reads)):
        groups = cycles(edges)
        for group in groups:
            cycle = shortest_cycle(edges, group)
            text = f"{' -> '.join(map(str, [*cycle, cycle[0]]))}, in a group of {len(group)} transactions"
            yield Anomaly(kind, text, tuple(cycle))
        if groups:
            return


def shared_write_cycles(history: Sequence[Operation], exclusive: frozenset[int]) -> int:
    """Return the number of transactions in cycles of writes to shared lists, which are legal."""
    writers = {value: (key, operation) for operation in history for key, value in operation.request.get("appends", ())}
    offsets: dict[int, dict[int, int]] = defaultdict(dict)
    for operation in history:
        if operation.kind == FINAL:
            for read in reads_of(operation):
                if read.key not in exclusive:
                    offsets[read.key].update(read.rows)
    return sum(map(len, cycles(write_edges(offsets, writers))))
