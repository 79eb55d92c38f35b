"""Hot loop of offset commits: encodes the offsets of a topic to records. Compiled where there is a compiler.

The fast path writes values of version 4 without metadata, which most clients send:

    key    1 int16 | group string | topic string | partition int32
           `---------- prefix of a topic --------'
    value  4 int16 | offset int64 | leader epoch int32 | 1 (an empty compact string) | commit time int64 | tags: 0 = topic id
                                                                                                          `-- tail --------'
All others are encoded by the codec.
"""

from collections.abc import Sequence
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be

from ottla.protocol.codec import encode
from ottla.protocol.messages.offset_commit import OffsetCommitRequestPartition
from ottla.protocol.messages.offset_commit_record import OffsetCommitValue

PLAIN_VERSION: Final = 4
"""Version of the values without an expiry time."""

Pair = tuple[bytes, bytes | None]


def add_rows(
    partitions: Sequence[OffsetCommitRequestPartition],
    prefix: bytes,
    tail: bytes,
    version: int,
    expires: int,
    topic_id: bytes,
    now: int,
    rows: list[tuple[int, OffsetCommitValue]],
    pairs: list[Pair],
) -> None:
    """Append (partition index, value) of each partition to `rows`, and its encoded key and value to `pairs`.

    prefix   begin of each key
    tail     end of each value
    version  version of the values
    expires  time at which they expire, in ms; -1 without one
    now      commit time of those without one, in ms
    """
    for asked in partitions:
        # Not by the constructor: its keywords cost more than everything else here.
        value = OffsetCommitValue.__new__(OffsetCommitValue)
        offset = asked.committed_offset
        epoch = asked.committed_leader_epoch
        metadata = asked.committed_metadata or ""
        time = asked.commit_timestamp
        if time == -1:
            time = now
        value.offset = offset
        value.leader_epoch = epoch
        value.metadata = metadata
        value.commit_timestamp = time
        value.expire_timestamp = expires
        value.topic_id = topic_id
        value.unknown_tags = None
        index = asked.partition_index
        rows.append((index, value))
        out = BytesWriter()
        out.write(prefix)
        write_i32_be(out, index)
        key = out.getvalue()
        if metadata or version != PLAIN_VERSION:
            pairs.append((key, encode(value, version, version.to_bytes(2, "big"))))
            continue
        out = BytesWriter()
        write_i16_be(out, PLAIN_VERSION)
        write_i64_be(out, offset)
        write_i32_be(out, epoch)
        out.append(1)
        write_i64_be(out, time)
        out.write(tail)
        pairs.append((key, out.getvalue()))
