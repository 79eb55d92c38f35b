"""Committed offsets of one request, which are encoded in one pass and replayed together.

The fast path writes values of version 4 without metadata, which most clients send:

    key    1 int16 | group string | topic string | partition int32
           `---------- prefix of a topic --------'
    value  4 int16 | offset int64 | leader epoch int32 | 1 (an empty compact string) | commit time int64 | tags: 0 = topic id
                                                                                                          `-- tail --------'
All others are encoded by the codec.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, overload

from ottla.coordinators.groups.state import Groups
from ottla.coordinators.runtime import CoordinatorRecord, RecordBlock
from ottla.protocol.codec import encode
from ottla.protocol.messages.offset_commit import OffsetCommitRequestPartition
from ottla.protocol.messages.offset_commit_record import OffsetCommitKey, OffsetCommitValue

VERSION: Final = 4
VERSION_WITH_EXPIRY: Final = 1
"""The only version with the expiry time of an offset (RetentionTimeMs of OffsetCommit 2 to 4)."""

_PARTITION: Final = Struct(">i").pack
_VALUE: Final = Struct(">hqibq").pack
_NO_ID: Final = bytes(16)
_new: Final = OffsetCommitValue.__new__

Pair = tuple[bytes, bytes | None]


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
        self.version = VERSION if expires < 0 else VERSION_WITH_EXPIRY
        self.topics: list[tuple[str, list[tuple[int, OffsetCommitValue]]]] = []
        self._pairs: list[Pair] = []

    def add(self, topic: str, topic_id: bytes, partitions: Iterable[OffsetCommitRequestPartition], now: int) -> None:
        """Add the offsets of a topic. `now` is the commit time of those without one."""
        key = OffsetCommitKey(group=self.group, topic=topic, partition=0)
        prefix = encode(key, 0, OffsetCommitKey.API.to_bytes(2, "big"))[:-4]
        tail = b"\0" if topic_id == _NO_ID else b"\1\0\x10" + topic_id
        version, expires, pairs = self.version, self.expires, self._pairs
        rows: list[tuple[int, OffsetCommitValue]] = []
        for asked in partitions:
            # Not by the constructor: its keywords cost more than everything else here.
            value = _new(OffsetCommitValue)
            value.offset = offset = asked.committed_offset
            value.leader_epoch = epoch = asked.committed_leader_epoch
            value.metadata = metadata = asked.committed_metadata or ""
            time = asked.commit_timestamp
            if time == -1:
                time = now
            value.commit_timestamp = time
            value.expire_timestamp = expires
            value.topic_id = topic_id
            value.unknown_tags = None
            index = asked.partition_index
            rows.append((index, value))
            if metadata or version != VERSION:
                encoded = encode(value, version, version.to_bytes(2, "big"))
            else:
                encoded = _VALUE(version, offset, epoch, 1, time) + tail
            pairs.append((prefix + _PARTITION(index), encoded))
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
            for index, value in rows:
                key = OffsetCommitKey(group=self.group, topic=topic, partition=index)
                yield CoordinatorRecord(key, value, self.version)

    @overload
    def __getitem__(self, index: int) -> CoordinatorRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[CoordinatorRecord]: ...

    def __getitem__(self, index: int | slice) -> CoordinatorRecord | list[CoordinatorRecord]:
        return list(self)[index]
