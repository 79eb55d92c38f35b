"""Message sets of magic 0 (Kafka 0.8, 0.9) and 1 (0.10): read from old producers, written for old consumers.

A set is a sequence of messages; a compressed set is one message whose value is another set.

     0            8       12      16      17           18 (magic 1 only)
    +------------+-------+-------+-------+------------+----------------+-----------+-----+-------------+-------
    | offset     | size  | crc   | magic | attributes | timestamp      | keyLen    | key | valueLen    | value
    | i64        | i32   | u32   | i8    | i8         | i64            | i32 (-1)  |     | i32 (-1)    |
    +------------+-------+-------+-------+------------+----------------+-----------+-----+-------------+-------
    size is the number of bytes after it; crc is CRC-32 of the bytes after it
    attributes: 0-2 codec | 3 timestamp type (magic 1)

Two differences: offsets inside of a compressed set are absolute with magic 0 and relative with magic 1 (KIP-31), and the
header checksum of lz4 frames of magic 0 wrongly includes the frame's magic (KAFKA-3160).

The log contains RecordBatch v2 only. A message set of a producer is converted to one batch and validated by
`validation.prepare` as usual; batches for old consumers are converted record by record. Headers, control batches and producer
ids do not exist in old formats.
"""

import struct
import zlib
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple, TypeVar

from ottla.protocol.errors import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    MESSAGE_TOO_LARGE,
    NONE,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.records import codec_names, compression
from ottla.records.batch import DECOMPRESS_AT_ONCE, DECOMPRESS_LIMIT, BatchHeader, build, records_in_parts, scan
from ottla.records.errors import BeyondLimit, CorruptRecords
from ottla.records.record import Record

_ENTRY: Final = struct.Struct(">qi")
_LOG_OVERHEAD: Final = 17  # offset, size, crc, magic: Kafka ignores a tail of fewer bytes
_HEAD: Final = struct.Struct(">qiIbb")
_TAIL_V0: Final = struct.Struct(">bb")
_TAIL_V1: Final = struct.Struct(">bbq")
_LENGTH: Final = struct.Struct(">i")
_SMALLEST: Final = (14, 22)
_CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_NO_TIMESTAMP: Final = -1
_MESSAGES_A_STEP: Final = 2_000
"""Number of messages read or written in one step of a few milliseconds."""
_BYTES_LIKE_A_MESSAGE: Final = 500
"""Number of bytes that take about as long to process as one message."""
_COMPRESSED_AT_ONCE: Final = 512 << 10
"""Uncompressed size of a compressed message for a consumer, which is compressed in a few milliseconds."""
# The newest versions that use message sets.
_NEWER_THAN_PRODUCE_2: Final = compression.newer_than_produce(2)
_NEWER_THAN_FETCH_3: Final = compression.newer_than_fetch(3)
R = TypeVar("R")


class LegacyMessage(NamedTuple):
    """Message of a set; `offset` is that of its entry."""

    offset: int
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def codec(self) -> int:
        """Return the codec id of its compressed value, 0 for an uncompressed message."""
        return self.attributes & _CODEC_MASK


class Rebuilt(NamedTuple):
    """Message set converted to a RecordBatch v2 (empty if the set has no whole message), or an error code."""

    batch: bytes
    error_code: int = NONE


class _RejectedMessage(CorruptRecords):
    """Intact message that Kafka rejects with the error `code`. Old versions of Produce have no error messages."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class NotForOldClients(Exception):
    """Records that old clients cannot read (zstd); the response is UNSUPPORTED_COMPRESSION_TYPE."""

    code = UNSUPPORTED_COMPRESSION_TYPE


class TooLargeForOldClients(NotForOldClients):
    """Record that exceeds the memory limit of the conversion; the response is MESSAGE_TOO_LARGE."""

    code = MESSAGE_TOO_LARGE


def messages(data: bytes, start: int = 0, end: int | None = None) -> Iterator[LegacyMessage]:
    """Iterate over the messages of a set without decompressing them; a truncated one at the end is left out.

    Raises CorruptRecords for a malformed message or a wrong CRC.
    """
    stop = len(data) if end is None else end
    while start + _LOG_OVERHEAD <= stop:
        offset, size = _ENTRY.unpack_from(data, start)
        if size < _SMALLEST[0]:
            raise CorruptRecords(f"Record size {size} is less than the minimum record overhead ({_SMALLEST[0]})")
        if start + 12 + size > stop:
            return
        yield _message(data, start, offset, size)
        start += 12 + size


def _message(data: bytes, start: int, offset: int, size: int) -> LegacyMessage:
    _, _, crc, magic, attributes = _HEAD.unpack_from(data, start)
    end = start + 12 + size
    if magic not in (0, 1):
        raise CorruptRecords(f"Invalid magic found in record: {magic}")
    if zlib.crc32(memoryview(data)[start + 16 : end]) != crc:
        raise CorruptRecords(f"Record is corrupt (stored crc = {crc})")
    if size < _SMALLEST[magic]:
        raise _RejectedMessage(UNKNOWN_SERVER_ERROR, f"a message of {size} bytes is too short for magic {magic}")
    position = start + 18
    timestamp = _NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = struct.unpack_from(">q", data, position)
        position += 8
        if timestamp < _NO_TIMESTAMP:
            raise _RejectedMessage(UNKNOWN_SERVER_ERROR, f"timestamp {timestamp}")
    key, position = _blob(data, position, end)
    value, position = _blob(data, position, end)
    return LegacyMessage(offset, magic, attributes, timestamp, key, value)


def _blob(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if position + 4 > end:
        raise _RejectedMessage(UNKNOWN_SERVER_ERROR, "a message is cut off within itself")
    (length,) = _LENGTH.unpack_from(data, position)
    position += 4
    if length < 0:
        return None, position
    if position + length > end:
        raise _RejectedMessage(UNKNOWN_SERVER_ERROR, "a key or value reaches beyond its message")
    return data[position : position + length], position + length


def rebuild(data: bytes, start: int, end: int, max_message_bytes: int, limit: int) -> Generator[None, None, Rebuilt]:
    """Convert the message set `data[start:end]` of a producer (Produce 0 to 2) to one RecordBatch v2 with offsets from 0.

    max_message_bytes  maximum size of one message as sent, including its offset and size fields
    limit              maximum decompressed size of a compressed set, in bytes

    A compressed message must be the only one of its set; the batch gets its codec. All messages have the same magic. Error
    codes are those of Apache Kafka 3.9.1. Never raises. Yields after every few thousand messages.
    """
    try:
        entries = yield from _collect(messages(data, start, end))
        if any(_size(message) > max_message_bytes for message in entries):
            return Rebuilt(b"", MESSAGE_TOO_LARGE)
        is_compressed = any(message.codec for message in entries)
        if (is_compressed and len(entries) > 1) or len({message.magic for message in entries}) > 1:
            return Rebuilt(b"", INVALID_RECORD)
        if is_compressed:
            codec = entries[0].codec
            entries = yield from _inner(entries[0], limit)
        else:
            codec = codec_names.NONE
    except _RejectedMessage as refused:
        return Rebuilt(b"", refused.code)
    except CorruptRecords:
        return Rebuilt(b"", CORRUPT_MESSAGE)
    if not entries:
        return Rebuilt(b"")
    records = []
    for at, message in enumerate(entries):
        records.append(Record(at, message.timestamp, message.key, message.value))
        if len(records) % _MESSAGES_A_STEP == 0:
            yield
    return Rebuilt(build(records, codec=codec))


def _collect(read: Iterator[LegacyMessage]) -> Generator[None, None, list[LegacyMessage]]:
    listed = []
    for message in read:
        listed.append(message)
        if len(listed) % _MESSAGES_A_STEP == 0:
            yield
    return listed


def all_at_once(steps: Generator[None, None, R]) -> R:
    """Run a generator of work steps to its end, and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: R = stop.value
            return result


def as_batch(data: bytes, limit: int) -> bytes:
    """Convert a message set stored by a broker to one RecordBatch v2 with the same offsets; b"" without a whole message.

    A compressed message has the offset of its last inner message; inner offsets are relative from 0 (magic 1) or absolute
    (magic 0). Raises CorruptRecords.
    """
    records = []
    for message in messages(data):
        if not message.codec:
            records.append(Record(message.offset, message.timestamp, message.key, message.value))
            continue
        inner = all_at_once(_inner(message, limit))
        shift = message.offset - inner[-1].offset if message.magic else 0
        appended = message.timestamp if message.attributes & _LOG_APPEND_TIME else None
        for nested in inner:
            timestamp = nested.timestamp if appended is None else appended
            records.append(Record(nested.offset + shift, timestamp, nested.key, nested.value))
    return build(records, base_offset=records[0].offset) if records else b""


def _size(message: LegacyMessage) -> int:
    return 12 + _SMALLEST[message.magic] + len(message.key or b"") + len(message.value or b"")


def _inner(wrapper: LegacyMessage, limit: int) -> Generator[None, None, list[LegacyMessage]]:
    """Return the inner messages of a compressed message. Raises _RejectedMessage, and CorruptRecords for malformed messages."""
    if wrapper.codec >= len(compression.CODECS):
        raise _RejectedMessage(UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {wrapper.codec}")
    if wrapper.codec in _NEWER_THAN_PRODUCE_2:
        name = codec_names.CODEC_NAMES[wrapper.codec]
        raise _RejectedMessage(INVALID_RECORD, f"Invalid wrapper compression type {name} for magic {wrapper.magic}")
    if wrapper.value is None:
        raise _RejectedMessage(
            INVALID_RECORD, f"Found invalid compressed record set with null value (magic = {wrapper.magic})"
        )
    try:
        plain = yield from _decompress(wrapper.codec, wrapper.magic, wrapper.value, limit)
    except BeyondLimit as cause:
        raise _RejectedMessage(INVALID_RECORD, str(cause)) from None
    except CorruptRecords as cause:
        raise _RejectedMessage(UNKNOWN_SERVER_ERROR, str(cause)) from None
    nested = yield from _collect(messages(plain))
    if not nested:
        raise _RejectedMessage(INVALID_RECORD, "Found invalid compressed record set with no inner records")
    for message in nested:
        if message.codec:
            raise _RejectedMessage(INVALID_RECORD, "an inner message is compressed too")
        if message.magic != wrapper.magic:
            raise _RejectedMessage(
                INVALID_RECORD, f"a message of magic {message.magic} inside one of magic {wrapper.magic}"
            )
    if wrapper.magic and 0 != wrapper.offset < nested[-1].offset:
        raise _RejectedMessage(INVALID_RECORD, f"wrapper offset {wrapper.offset} is less than that of its last message")
    return nested


def decompress_message(codec: int, magic: int, data: bytes, limit: int) -> bytes:
    """Decompress the message set in the value of a compressed message. Raises CorruptRecords, BeyondLimit."""
    return all_at_once(_decompress(codec, magic, data, limit))


def _decompress(codec: int, magic: int, data: bytes, limit: int) -> Generator[None, None, bytes]:
    """Decompress as `decompress_message` does, in steps."""
    if codec == codec_names.LZ4 and magic == 0:
        data = with_lz4_checksum(data, wrong=False)
    at_once = min(limit, DECOMPRESS_AT_ONCE)
    try:
        return compression.decompress_at_once(codec, data, at_once)
    except BeyondLimit:
        pass
    parts: list[bytes] = []
    size = 0
    for piece in compression.pieces(codec, data, limit):
        yield
        parts.append(piece)
        size += len(piece)
        if size > limit:
            raise BeyondLimit(f"a message set decompresses to more than {limit} bytes")
    return b"".join(parts)


def for_old_client(data: bytes, magic: int, from_offset: int, max_bytes: int) -> bytes:
    """Convert as `convert` does, in one step, with one compressed message for each compressed batch of any size."""
    return all_at_once(convert(data, magic, from_offset, max_bytes, DECOMPRESS_LIMIT, DECOMPRESS_LIMIT))


def convert(
    data: bytes,
    magic: int,
    from_offset: int,
    max_bytes: int,
    largest: int,
    compressed_at_once: int = _COMPRESSED_AT_ONCE,
) -> Generator[None, None, bytes]:
    """Convert the batches in `data` to a message set of `magic` for a consumer that reads from `from_offset` (inclusive) on.
    It ends with the batch that reaches `max_bytes`, as messages are larger in old formats. Yields after every few
    milliseconds of work.

    largest             maximum decompressed size of a record in a compressed batch, in bytes
    compressed_at_once  uncompressed size at which a compressed message ends, and another one begins for the same batch

    Control batches are left out, headers dropped, offsets kept. The set ends before a zstd batch or a record that is too
    large, and after some MB of uncompressed messages. Raises NotForOldClients if it would be empty for these reasons,
    CorruptRecords for malformed batches.
    """
    scanned = scan(data)
    if scanned.corrupt is not None:
        raise CorruptRecords(scanned.corrupt)
    written = _MessageSet(magic, max_bytes, compressed_at_once)
    converted = 0  # bytes and records since the last pause
    for header in scanned.batches:
        if written.is_full():
            break
        if header.is_control:
            continue
        if header.compression in _NEWER_THAN_FETCH_3:
            if len(written.out):
                break  # the messages before it can be returned
            row = compression.CODECS[header.compression]
            raise NotForOldClients(f"{row.name} cannot be read below Fetch {row.first_fetch}")
        try:
            is_first = True
            for records in records_in_parts(data, header, largest):
                if not is_first or converted > _MESSAGES_A_STEP:
                    converted = 0
                    yield
                if written.is_full():
                    break
                is_first = False
                converted += len(records) + header.size // _BYTES_LIKE_A_MESSAGE
                if records and records[-1].offset >= from_offset:
                    written.add(records, header, from_offset)
            written.end_batch(header)
        except BeyondLimit as cause:
            written.end_batch(header)
            if len(written.out):
                break
            raise TooLargeForOldClients(str(cause)) from None
    return bytes(written.out)


class _MessageSet:
    """Writer of a message set.

    The messages of a compressed batch are collected in `_inner`, and then compressed to one message.
    """

    def __init__(self, magic: int, max_bytes: int, compressed_at_once: int) -> None:
        self.out = bytearray()
        self._magic = magic
        self._max_bytes = max_bytes
        self._compressed_at_once = compressed_at_once
        self._plain_left = max(max_bytes, DECOMPRESS_AT_ONCE)
        self._inner: list[bytes] = []
        self._inner_size = 0
        self._first = self._last = 0
        self._newest = _NO_TIMESTAMP

    def is_full(self) -> bool:
        """True if the set is not empty and has reached its size limit."""
        return bool(self.out) and (len(self.out) >= self._max_bytes or self._plain_left <= 0)

    def add(self, records: list[Record], header: BatchHeader, from_offset: int) -> None:
        """Add records of a batch: those from `from_offset` on, or all of a compressed batch."""
        kind = header.timestamp_type
        if not header.compression:
            for record in records:
                if record.offset >= from_offset:
                    self.out += _encode(record, self._magic, kind, record.offset)
            return
        for record in records:
            if not self._inner:
                self._first, self._newest = record.offset, record.timestamp
            offset = record.offset - self._first if self._magic else record.offset
            message = _encode(record, self._magic, kind, offset)
            self._inner.append(message)
            self._inner_size += len(message)
            self._last = record.offset
            self._newest = max(self._newest, record.timestamp)
            if self._inner_size >= self._compressed_at_once:
                self.end_batch(header)

    def end_batch(self, header: BatchHeader) -> None:
        """Compress the collected messages to one, which gets the offset of the last of them."""
        if not self._inner:
            return
        value = compression.compress(header.compression, b"".join(self._inner))
        if header.compression == codec_names.LZ4 and self._magic == 0:
            value = with_lz4_checksum(value, wrong=True)
        wrapper = Record(self._last, self._newest, None, value)
        self.out += _encode(wrapper, self._magic, header.timestamp_type, self._last, header.compression)
        self._plain_left -= self._inner_size
        self._inner = []
        self._inner_size = 0


def _encode(record: Record, magic: int, timestamp_type: int, offset: int, codec: int = 0) -> bytes:
    attributes = codec | (_LOG_APPEND_TIME if magic and timestamp_type else 0)
    head = _TAIL_V1.pack(1, attributes, record.timestamp) if magic else _TAIL_V0.pack(0, attributes)
    parts = [head]
    for blob in (record.key, record.value):
        parts.append(_LENGTH.pack(-1 if blob is None else len(blob)))
        if blob:
            parts.append(blob)
    body = b"".join(parts)
    return _ENTRY.pack(offset, 4 + len(body)) + zlib.crc32(body).to_bytes(4, "big") + body


# The header checksum of lz4 frames: the second byte of xxHash32 of the frame descriptor; Kafka 0.8 and 0.9 included
# the four magic bytes too.
def with_lz4_checksum(frame: bytes, *, wrong: bool) -> bytes:
    """Return an lz4 frame with the header checksum of magic 0 (`wrong`) or the correct one. Raises CorruptRecords."""
    if len(frame) < 7:
        raise CorruptRecords("lz4: cut short in the header")
    end = 14 if frame[4] & 0x08 else 6  # the content size, eight bytes, is optional
    if len(frame) <= end:
        raise CorruptRecords("lz4: cut short in the header")
    checksum = (compression.short_xxhash32(frame[0 if wrong else 4 : end]) >> 8) & 0xFF
    return frame[:end] + bytes([checksum]) + frame[end + 1 :]
