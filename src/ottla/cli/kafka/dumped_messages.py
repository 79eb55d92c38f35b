"""Messages of Kafka 0.8 to 0.10 in a log, for `ottla dump-log`, including damaged ones as far as possible.

The layout is documented in `records/legacy.py`, whose readers reject a message with a wrong CRC; here it is shown as invalid.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.records.batch import DECOMPRESS_LIMIT
from ottla.records.codec_names import ZSTD
from ottla.records.errors import CorruptRecords
from ottla.records.legacy import decompress_message
from ottla.records.record import Record

_HEAD: Final = struct.Struct(">qiIbb")
_SMALLEST: Final = 14


class OldMessage(NamedTuple):
    """Message with its position: bytes `start` (inclusive) to `end` of its buffer; timestamp_type as Kafka prints it.

    key, value   None for null
    """

    start: int
    end: int
    offset: int
    crc: int
    valid: bool
    magic: int
    codec: int
    timestamp_type: str
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def size(self) -> int:
        """Size in bytes, including the offset and size fields."""
        return self.end - self.start

    def record(self) -> Record:
        """Return the message as a record."""
        return Record(self.offset, self.timestamp, self.key, self.value)

    def records(self) -> "list[OldMessage]":
        """Return the compressed messages in it with their offsets, or itself. Raises CorruptRecords."""
        if not self.codec:
            return [self]
        if self.codec >= ZSTD:
            raise CorruptRecords(f"codec {self.codec} is not of this format")
        inner = decompress_message(self.codec, self.magic, self.value or b"", DECOMPRESS_LIMIT)
        messages = list(old_messages(inner, 0))
        if not messages:
            raise CorruptRecords("Found invalid compressed record set with no inner records")
        shift = self.offset - messages[-1].offset if self.magic else 0
        messages = [message._replace(offset=message.offset + shift) for message in messages]
        if self.timestamp_type == "LogAppendTime":
            return [message._replace(timestamp=self.timestamp) for message in messages]
        return messages


def is_old(data: bytes, start: int) -> bool:
    """Return whether a message of magic 0 or 1 begins at `start`, complete or cut off after its magic byte."""
    return start + 17 <= len(data) and data[start + 16] in (0, 1)


def old_messages(data: bytes, start: int) -> Iterator[OldMessage]:
    """Yield the complete messages from `start` up to another format or the end. Raises CorruptRecords."""
    while is_old(data, start):
        offset, size, crc, magic, attributes = _HEAD.unpack_from(data, start)
        if size < _SMALLEST:
            raise CorruptRecords(f"Found record size {size} smaller than minimum record overhead ({_SMALLEST})")
        end = start + 12 + size
        if end > len(data):
            return
        position, timestamp, kind = start + 18, -1, "NoTimestampType"
        if magic:
            timestamp = int.from_bytes(data[position : position + 8], "big", signed=True)
            position += 8
            kind = "LogAppendTime" if attributes & 0x08 else "CreateTime"
        key, position = _blob(data, position, end)
        value, _ = _blob(data, position, end)
        valid = zlib.crc32(memoryview(data)[start + 16 : end]) == crc
        yield OldMessage(start, end, offset, crc, valid, magic, attributes & 0x07, kind, timestamp, key, value)
        start = end


def _blob(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length = int.from_bytes(data[position : position + 4], "big", signed=True)
    position += 4
    if position + max(length, 0) > end:
        raise CorruptRecords("a key or value reaches beyond its message")
    return (None, position) if length < 0 else (data[position : position + length], position + length)
