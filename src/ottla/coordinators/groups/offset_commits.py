"""Committed offsets of one request, which are encoded in one pass and replayed together: when they are committed, and when they
are loaded."""

from collections.abc import Iterator, Sequence
from itertools import repeat, starmap
from typing import Final, overload

from ottla.coordinators.groups.offset_rows import (
    LENGTH_WITH_ID,
    PLAIN_VERSION,
    TOPIC_ID_TAG,
    Pair,
    Row,
    add_pairs,
    read_rows,
)
from ottla.coordinators.groups.state import Groups
from ottla.coordinators.records import CoordinatorRecord, RecordBlock
from ottla.protocol.codec import encode, reader
from ottla.protocol.messages.offset_commit import OffsetCommitRequestPartition
from ottla.protocol.messages.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from ottla.records.record import Record

VERSION_WITH_EXPIRY: Final = 1
"""The only version with the expiry time of an offset (RetentionTimeMs of OffsetCommit 2 to 4)."""

_NO_ID: Final = bytes(16)
_read_key: Final = reader(OffsetCommitKey, 0)


class OffsetCommits(RecordBlock):
    """Records of committed offsets.

    group    group id
    version  version of their values
    expires  time at which they expire, in ms; -1 without one
    topics   topic names, with (partition, value) in the order of the records
    """

    __slots__ = ("_pairs", "expires", "group", "topics", "version")

    def __init__(self, group: str, expires: int = -1) -> None:
        self.group = group
        self.expires = expires
        self.version = PLAIN_VERSION if expires < 0 else VERSION_WITH_EXPIRY
        self.topics: list[tuple[str, list[tuple[int, OffsetCommitValue]]]] = []
        self._pairs: list[Pair] = []

    def add(self, topic: str, topic_id: bytes, partitions: Sequence[OffsetCommitRequestPartition], now: int) -> None:
        """Add the offsets of a topic. `now` is the commit time of those without one."""
        key = OffsetCommitKey(group=self.group, topic=topic, partition=0)
        prefix = encode(key, 0, OffsetCommitKey.API.to_bytes(2, "big"))[:-4]
        tail = b"\0" if topic_id == _NO_ID else TOPIC_ID_TAG + topic_id
        rows = self._rows(partitions, topic_id, now)
        add_pairs(rows, prefix, tail, self.version, self._pairs)
        self.topics.append((topic, rows))

    def _rows(
        self, partitions: Sequence[OffsetCommitRequestPartition], topic_id: bytes, now: int
    ) -> list[tuple[int, OffsetCommitValue]]:
        values = _blank(len(partitions))
        expires = self.expires
        for value, asked in zip(values, partitions, strict=True):
            time = asked.commit_timestamp
            value.offset = asked.committed_offset
            value.leader_epoch = asked.committed_leader_epoch
            value.metadata = asked.committed_metadata or ""
            value.commit_timestamp = now if time == -1 else time
            value.expire_timestamp = expires
            value.topic_id = topic_id
            value.unknown_tags = None
        return [(asked.partition_index, value) for asked, value in zip(partitions, values, strict=True)]

    def encoded(self) -> list[Pair]:
        """See `RecordBlock.encoded`."""
        return self._pairs

    def replay(self, state: Groups) -> None:
        """See `RecordBlock.replay`."""
        if state.pending:
            for record in self:
                state.replay(record)
            return
        for topic, rows in self.topics:
            if rows:
                state.replay_offsets(self.group, topic, rows)

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[CoordinatorRecord]:
        for topic, rows in self.topics:
            for index, value in rows:
                key = OffsetCommitKey(group=self.group, topic=topic, partition=index)
                yield CoordinatorRecord(key, value, self.version)

    @overload
    def __getitem__(self, index: int) -> CoordinatorRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[CoordinatorRecord]: ...

    def __getitem__(self, index: int | slice) -> CoordinatorRecord | list[CoordinatorRecord]:
        return list(self)[index]


def replay_run(groups: Groups, records: Sequence[Record], start: int, end: int) -> int:
    """Replay a run of offsets that are committed to one topic: see `ReplayRun`."""
    if groups.pending:
        return start
    rows: list[Row] = []
    reached = read_rows(records, start, end, rows)
    key, value = records[start].key, records[start].value
    if not rows or key is None or value is None:
        return start
    topic_id = value[-len(_NO_ID) :] if len(value) == LENGTH_WITH_ID else _NO_ID
    where = _read_key(key, 2)
    values = _blank(len(rows))
    for committed, row in zip(values, rows, strict=True):
        _, committed.offset, committed.leader_epoch, committed.commit_timestamp = row
        committed.metadata = ""
        committed.expire_timestamp = -1
        committed.topic_id = topic_id
        committed.unknown_tags = None
    groups.replay_offsets(
        where.group, where.topic, [(row[0], committed) for row, committed in zip(rows, values, strict=True)]
    )
    return reached


def _blank(count: int) -> list[OffsetCommitValue]:
    """Return values whose fields the caller sets. The constructor's keywords would cost more than everything else."""
    return list(starmap(OffsetCommitValue.__new__, repeat((OffsetCommitValue,), count)))
