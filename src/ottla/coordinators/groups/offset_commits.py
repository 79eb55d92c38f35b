"""Committed offsets of one request, which are encoded in one pass and replayed together: when they are committed, and when they
are loaded."""

from collections.abc import Iterator, Sequence
from typing import Final, overload

from ottla.coordinators.groups.committed_offset import NO_TOPIC_ID, CommittedOffset
from ottla.coordinators.groups.offset_rows import (
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
from ottla.protocol.messages.offset_commit_record import OffsetCommitKey
from ottla.records.record import Record

VERSION_WITH_EXPIRY: Final = 1
"""The only version with the expiry time of an offset (RetentionTimeMs of OffsetCommit 2 to 4)."""

_read_key: Final = reader(OffsetCommitKey, 0)


class OffsetCommits(RecordBlock):
    """Records of committed offsets.

    group    group id
    version  version of their values
    expires  time at which they expire, in ms; -1 without one
    topics   topic names, with their rows in the order of the records
    """

    __slots__ = ("_pairs", "expires", "group", "topics", "version")

    def __init__(self, group: str, expires: int = -1) -> None:
        self.group = group
        self.expires = expires
        self.version = PLAIN_VERSION if expires < 0 else VERSION_WITH_EXPIRY
        self.topics: list[tuple[str, list[Row]]] = []
        self._pairs: list[Pair] = []

    def add(self, topic: str, topic_id: bytes, partitions: Sequence[OffsetCommitRequestPartition], now: int) -> None:
        """Add the offsets of a topic. `now` is the commit time of those without one."""
        key = OffsetCommitKey(group=self.group, topic=topic, partition=0)
        prefix = encode(key, 0, OffsetCommitKey.API.to_bytes(2, "big"))[:-4]
        tail = b"\0" if topic_id == NO_TOPIC_ID else TOPIC_ID_TAG + topic_id
        expires = self.expires
        rows = [
            (
                asked.partition_index,
                CommittedOffset(
                    asked.committed_offset,
                    asked.committed_leader_epoch,
                    asked.committed_metadata or "",
                    now if asked.commit_timestamp == -1 else asked.commit_timestamp,
                    expires,
                    topic_id,
                ),
            )
            for asked in partitions
        ]
        add_pairs(rows, prefix, tail, self.version, self._pairs)
        self.topics.append((topic, rows))

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
            for index, committed in rows:
                key = OffsetCommitKey(group=self.group, topic=topic, partition=index)
                yield CoordinatorRecord(key, committed.message(), self.version)

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
    key = records[start].key
    if rows and key is not None:
        first = _read_key(key, 2)
        groups.replay_offsets(first.group, first.topic, rows)
    return reached
