"""Hot loops of committed offsets: encodes those of a topic to records, and reads them from the log. Compiled where there is a
compiler.

The fast path is for values of version 4 without metadata, which most clients send:

    key    1 int16 | group string | topic string | partition int32
           `---------- prefix of a topic --------'
    value  4 int16 | offset int64 | leader epoch int32 | 1 (an empty compact string) | commit time int64 | tags: 0 = topic id
                                                                                                          `-- tail --------'
All others are encoded and decoded by the codec.
"""

from collections.abc import Sequence
from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)

from ottla.coordinators.groups.committed_offset import NO_TOPIC_ID, CommittedOffset
from ottla.protocol.codec import encode
from ottla.records.record import Record

PLAIN_VERSION: Final = 4
"""Version of the values without an expiry time."""

TOPIC_ID_TAG: Final = b"\1\0\x10"
"""Begin of the tail of a value with a topic id, which follows."""
_LENGTH_WITH_ID: Final = 42
"""Length of a value without metadata and with a topic id."""
_NO_TAGS: Final = b"\0"
_TAIL: Final = 23
"""Position of the tail in a value."""
_KIND: Final = b"\0\1"
"""Begin of a key: the type of its record."""
_VERSION: Final = b"\0\4"
"""Begin of a value."""
_SHORTEST_KEY: Final = 10
"""Length of a key with empty strings."""

Pair = tuple[bytes, bytes | None]
Row = tuple[int, CommittedOffset]
"""Partition index and the offset committed for it."""


def add_pairs(rows: Sequence[Row], prefix: bytes, tail: bytes, version: int, pairs: list[Pair]) -> None:
    """Append the encoded key and value of each row to `pairs`.

    prefix   begin of each key
    tail     end of each value
    version  version of the values
    """
    for index, value in rows:
        out = BytesWriter()
        out.write(prefix)
        write_i32_be(out, index)
        key = out.getvalue()
        if version != PLAIN_VERSION or value.metadata:
            pairs.append((key, encode(value.message(), version, version.to_bytes(2, "big"))))
            continue
        out = BytesWriter()
        write_i16_be(out, PLAIN_VERSION)
        write_i64_be(out, value.offset)
        write_i32_be(out, value.leader_epoch)
        out.append(1)
        write_i64_be(out, value.commit_timestamp)
        out.write(tail)
        pairs.append((key, out.getvalue()))


def read_rows(records: Sequence[Record], start: int, end: int, rows: list[Row]) -> int:
    """Read the run of offsets in records[start:end] that begins at `start`: those of one group and topic, as a commit writes
    them side by side. Appends a row for each.

    Returns the index (exclusive) of its end. A tombstone ends it, and so does an offset that the codec has to decode.
    """
    key, value = records[start].key, records[start].value
    if key is None or value is None or not _is_plain_key(key) or len(value) <= _TAIL:
        return start
    size, length = len(key), len(value)
    prefix, tail = key[: size - 4], value[_TAIL:]
    if tail != _NO_TAGS and not (length == _LENGTH_WITH_ID and tail.startswith(TOPIC_ID_TAG)):
        return start
    topic_id = value[-16:] if length == _LENGTH_WITH_ID else NO_TOPIC_ID
    at = start
    while at < end:
        record = records[at]
        key, value = record.key, record.value
        if key is None or value is None or len(key) != size or len(value) != length:
            break
        if not (key.startswith(prefix) and value.startswith(_VERSION) and value.endswith(tail) and value[14] == 1):
            break
        committed = CommittedOffset(
            read_i64_be(value, 2), read_i32_be(value, 10), "", read_i64_be(value, 15), topic_id=topic_id
        )
        rows.append((read_i32_be(key, size - 4), committed))
        at += 1
    return at


def _is_plain_key(key: bytes) -> bool:
    """Return whether `key` is that of a committed offset, of exactly the length that its strings have."""
    size = len(key)
    if size < _SHORTEST_KEY or not key.startswith(_KIND):
        return False
    group = read_i16_be(key, 2)
    if group < 0 or _SHORTEST_KEY + group > size:
        return False
    topic = read_i16_be(key, 4 + int(group))
    return _SHORTEST_KEY + group + topic == size
