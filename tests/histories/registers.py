"""Anomalies of registers: keys of a compacted topic, each of which one client writes in increasing versions.

A register that had a write of unknown outcome is not written again, so that no repeated request of it can come late. A read
takes the whole log from its beginning to the high watermark of that moment.

    invented      a read holds a version that was never written, or another record than the acknowledged one at its offset
    unordered     a read does not have increasing offsets
    backwards     the versions of a key do not increase with the offsets in a read
    moved         a version is at another offset than in an acknowledgement or an earlier read
    lost          a confirmed write is below the end of a read, which has neither it nor a newer version of the key
    gone back     the same for a version that another read has seen: compaction has not kept the newest
    resurrected   the same, and the version is a tombstone: an older value has come back

The last read, after the end of all writers, has all confirmed writes. Earlier ones may be stale, as a leader that is cut off
answers with what it knows; so they are compared by offsets, not by times. Two things excuse a version that is missing: a
tombstone after it, with the retention over; and a later write that was appended beyond the end of the read while it went on,
as compaction may then remove what the read has not reached.

A tombstone may be removed after delete.retention.ms; until all replicas have its removal a broker must not be away for longer
than that, in Apache Kafka as well, or it never gets the tombstone and keeps the value. The run takes a retention that is longer
than any fault.
"""

import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from .operations import FAIL, OK, Anomaly, Operation

WRITE: Final = "write"
READ: Final = "read"


class Row(NamedTuple):
    """Record of a read."""

    offset: int
    key: int
    version: int
    is_tombstone: bool


class _Demands(NamedTuple):
    """Records of a key that are known to be committed: version, whether it is a tombstone, and the operation, by offset."""

    offsets: list[int]
    records: dict[int, tuple[int, bool, Operation]]

    def below(self, end: int) -> tuple[int, bool, Operation] | None:
        """Return the newest one at an offset below `end`."""
        position = bisect_left(self.offsets, end)
        return self.records[self.offsets[position - 1]] if position else None


def rows_of(operation: Operation) -> list[Row]:
    """Return the records of a read."""
    return [Row(offset, key, version, bool(tombstone)) for offset, key, version, tombstone in operation.result["rows"]]


def anomalies(history: Sequence[Operation]) -> list[Anomaly]:
    """Return the anomalies of a history."""
    reads = [one for one in history if one.kind == READ and one.outcome == OK]
    rows = {one.number: rows_of(one) for one in reads}
    writes = {(one.request["key"], one.request["version"]): one for one in history if one.kind == WRITE}
    return [*_contents(reads, rows, writes), *_newest(reads, rows, writes)]


Writes = dict[tuple[int, int], Operation]


def _contents(reads: Sequence[Operation], rows: dict[int, list[Row]], writes: Writes) -> Iterable[Anomaly]:
    """Compare the records of each read with each other, with what was written, and with other reads."""
    places: dict[tuple[int, int], tuple[int, int]] = {}
    owners: dict[int, tuple[int, int]] = {}
    for (key, version), write in writes.items():
        if write.outcome == OK:
            places[key, version] = write.result["offset"], write.number
            owners[write.result["offset"]] = key, version
    for read in reads:
        offsets = [row.offset for row in rows[read.number]]
        if any(first >= second for first, second in pairwise(offsets)):
            yield Anomaly("unordered", "the offsets of a read do not increase", (read.number,))
        newest: dict[int, Row] = {}
        for row in rows[read.number]:
            text = f"version {row.version} of key {row.key} at offset {row.offset}"
            write_or_none = writes.get((row.key, row.version))
            if (
                write_or_none is None
                or write_or_none.outcome == FAIL
                or bool(write_or_none.request["tombstone"]) != row.is_tombstone
                or owners.setdefault(row.offset, (row.key, row.version)) != (row.key, row.version)
            ):
                yield Anomaly("invented", f"{text} was not written", (read.number,))
                continue
            offset, by = places.setdefault((row.key, row.version), (row.offset, read.number))
            if offset != row.offset:
                yield Anomaly("moved", f"{text} is at {offset} as well", (by, read.number))
            before = newest.get(row.key)
            if before is not None and before.version >= row.version:
                text += f" comes after version {before.version} at {before.offset}"
                yield Anomaly("backwards", text, (write_or_none.number, read.number))
            newest[row.key] = row


def _demands(reads: Sequence[Operation], rows: dict[int, list[Row]], writes: Writes) -> dict[int, _Demands]:
    """Return the records that are known to be committed, by key: confirmed ones, and those of reads."""
    known: dict[int, dict[int, tuple[int, bool, Operation]]] = defaultdict(dict)
    for read in reads:
        for row in rows[read.number]:
            known[row.key].setdefault(row.offset, (row.version, row.is_tombstone, read))
    for (key, version), write in writes.items():
        if write.outcome == OK:
            known[key][write.result["offset"]] = version, bool(write.request["tombstone"]), write
    return {key: _Demands(sorted(its), its) for key, its in known.items()}


def _newest(reads: Sequence[Operation], rows: dict[int, list[Row]], writes: Writes) -> Iterable[Anomaly]:
    """Compare the newest version of each key in a read with the newest one that is known to be in its range."""
    later: dict[int, list[Operation]] = defaultdict(list)
    for (key, _), write in writes.items():
        if write.outcome != FAIL:
            later[key].append(write)
    for demands in later.values():
        demands.sort(key=lambda write: int(write.request["version"]))
    known = _demands(reads, rows, writes)
    for read in reads:
        end = sys.maxsize if read.request.get("final") else read.result["end"]
        newest = {row.key: row for row in rows[read.number]}
        for key, demand in known.items():
            least = demand.below(end)
            if least is None:
                continue
            version, is_tombstone, source = least
            row = newest.get(key)
            if (row is not None and row.version >= version) or _is_excused(read, row, version, end, later[key]):
                continue
            has = "no version" if row is None else f"version {row.version} at {row.offset}"
            text = f"key {key} has {has} in a read up to {end}, which follows version {version}"
            kind = "lost" if source.kind == WRITE else "gone back"
            if is_tombstone and row is not None and not row.is_tombstone:
                kind = "resurrected"
            yield Anomaly(kind, text, (source.number, read.number))


def _is_excused(read: Operation, row: Row | None, version: int, end: int, writes: Sequence[Operation]) -> bool:
    """Return True if compaction may have removed a version, and all after it that are in the range of a read.

    A tombstone is removed after its retention with all before it. A record that was appended while the log was read may have
    superseded one that the read had not reached.
    """
    for write in reversed(writes):
        if write.request["version"] < version:
            break
        if write.invoked < read.completed:
            if row is None and write.request["tombstone"]:
                return True
            if write.request["version"] > version and end <= write.result.get("offset", end) and end < sys.maxsize:
                return True
    return False
