"""Validation of a producer's batch by the leader, and the changes made to it before it is appended.

Strategy: one pass over the bytes, without an object for each record or an exception. The order of the checks is Kafka's, as
the first failure determines the error code:

    frame      one whole batch, magic 2, codec of the version            INVALID_RECORD, CORRUPT_MESSAGE,
                                                                         UNSUPPORTED_COMPRESSION_TYPE
    batch      base offset 0, size, minimum and CRC, codec,              INVALID_RECORD, MESSAGE_TOO_LARGE,
               offsets and count, control, sequence                      CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR
    records    lengths, header counts and names, nothing left over       INVALID_RECORD
               null key on a compacted topic, timestamp out of range     per record (KIP-467): INVALID_RECORD, or
                                                                         INVALID_TIMESTAMP if one of them has that
               schema of key or value (an extension)                     per record: INVALID_RECORD
    new codec  size once more                                            MESSAGE_TOO_LARGE

Error codes are those of Apache Kafka 4.4.0, including surprising ones: data that cannot be decompressed, an unknown codec, and
a compressed batch whose offset deltas are not 0, 1, 2... cause UNKNOWN_SERVER_ERROR, while an uncompressed batch with such
deltas is accepted. Two differences are intended. First, record lengths are checked in compressed batches as well (Kafka skips
them, and its consumers cannot read such a batch). Second, memory is bounded: a batch that decompresses to more than 4 MB is
checked in parts, but one record, and a whole batch whose codec has to change, is limited to 16 MB, or max.message.bytes if
that is more. In addition max.decompressed.message.bytes limits one record.

One file, because the verdict, the correction of the header and the change of codec all use the results of the same pass.

A valid batch is then stamped: always with base offset and leader epoch; with timestamps, attributes and CRC only if required
by LogAppendTime, a wrong maxTimestamp or a change of codec. The bytes of the records are copied only if they are recompressed.
"""

from collections.abc import Iterator
from typing import Final, final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i64

from ottla.records.batch import (
    CODEC_MASK,
    CONTROL,
    DECOMPRESS_AT_ONCE,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    SECTION_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    seal_header,
    sections,
    wrapping_add,
)
from ottla.records.checksum import crc32c
from ottla.records.compression import CODECS, compress, decompress_at_once
from ottla.records.errors import BeyondLimit, CorruptRecords, MalformedRecord
from ottla.records.schema_ids import MOST_UNKNOWN, SchemaRules, UnknownSchema
from ottla.records.varints import TOO_LONG, read_varint, read_varlong, varint_size, write_varint

NONE: Final = 0
UNKNOWN_SERVER_ERROR: Final = -1
CORRUPT_MESSAGE: Final = 2
MESSAGE_TOO_LARGE: Final = 10
INVALID_TIMESTAMP: Final = 32
UNSUPPORTED_COMPRESSION_TYPE: Final = 76
INVALID_RECORD: Final = 87

_MIN_ENTRY: Final = 14
_MIN_RECORD: Final = 6  # attributes, two deltas, two lengths, header count
_MOST_ERRORS: Final = 10_000
"""Number of rejected records of a large batch after which the rest is not checked."""
_MAX_INT64: Final = 2**63 - 1


@final
class ProduceRules:
    """Rules of a topic for produced batches; created once per topic configuration.

    compacted               cleanup.policy contains compact: keys must not be null
    log_append_time         message.timestamp.type is LogAppendTime
    before_max_ms           message.timestamp.before.max.ms
    after_max_ms            message.timestamp.after.max.ms
    max_message_bytes       max.message.bytes: size of a batch, header included
    max_decompressed_bytes  max.decompressed.message.bytes: size of one record in a compressed batch
    codec                   compression.type as a codec id, -1 for "producer"
    level                   compression.*.level, None for the codec's default
    schemas                 schemas that records must have; None if they need none
    """

    def __init__(
        self,
        *,
        compacted: bool = False,
        log_append_time: bool = False,
        before_max_ms: int = _MAX_INT64,
        after_max_ms: int = 3_600_000,
        max_message_bytes: int = 1_048_588,
        max_decompressed_bytes: int = 2_147_483_639,
        codec: int = -1,
        level: int | None = None,
        schemas: SchemaRules | None = None,
    ) -> None:
        self.compacted = compacted
        self.log_append_time = log_append_time
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms
        self.max_message_bytes = max_message_bytes
        self.max_decompressed_bytes = max_decompressed_bytes
        self.codec = codec
        self.level = level
        self.schemas = schemas


@final
class Prepared:
    """Result of the validation of a batch; it may be appended if error_code is 0.

    header         header as it will be stored, except base offset and leader epoch; zeros if the frame is too short
    error_code     0, or the error code of the response
    error_message  Kafka's error message, None if Kafka sends none
    record_errors  (index in the batch, message) of each rejected record
    max_timestamp  newest timestamp in ms; -1 without timestamps
    size_in_bytes  size of the stored batch, header included
    append_time    append time in ms with LogAppendTime, else -1: log_append_time_ms of the response
    is_whole       whether the frame is one whole batch, of a codec of the version: the first checks of the table above
    remaining      remaining checks in steps of about a millisecond, to run before the other fields are valid; usually None
    unknown        schemas that the topic has to learn first: the batch is neither valid nor refused then
    """

    def __init__(self, frame: bytes) -> None:
        self.header = BatchHeader()
        self.error_code: int = NONE
        self.error_message: str | None = None
        self.record_errors: list[tuple[int, str | None]] = []
        self.max_timestamp: int = NO_TIMESTAMP
        self.size_in_bytes: int = 0
        self.append_time: int = -1
        self.is_whole: bool = False
        self.remaining: Iterator[None] | None = None
        self.unknown: list[UnknownSchema] = []
        self._frame = frame
        self._payload: bytes | None = None  # recompressed records
        self._tail: bytes | None = None  # bytes 16 to 61 of a changed header

    def stamp(self, base_offset: int, leader_epoch: int) -> tuple[bytes, bytes | memoryview]:
        """Return the bytes to write: the header (61 bytes), and the records (a view of the frame unless recompressed)."""
        out = BytesWriter()
        write_i64_be(out, base_offset)
        start = self.header.start
        length: int = self.size_in_bytes - 12
        write_i32_be(out, length)
        write_i32_be(out, leader_epoch)
        tail = self._tail
        out.write(self._frame[start + 16 : start + HEADER_SIZE] if tail is None else tail)
        payload = self._payload
        if payload is not None:
            return out.getvalue(), payload
        return out.getvalue(), memoryview(self._frame)[start + HEADER_SIZE : self.header.end]

    def refuse(self, code: int, message: str | None = None) -> "Prepared":
        self.error_code = code
        self.error_message = message
        return self

    def replace_records(self, payload: bytes) -> None:
        """Replace the records, and update size, length and CRC in the header."""
        self._payload = payload

    def reseal(self) -> None:
        """Recompute length and CRC after a change of bytes from 21 on."""
        header = self.header
        payload = self._payload
        if payload is None:
            sealed = seal_header(header, memoryview(self._frame)[header.start + HEADER_SIZE : header.end])
        else:
            sealed = seal_header(header, payload)
        self._tail = sealed[16:]
        self.size_in_bytes = header.length + 12


@final
class _Walk:
    """Results of one pass over the records of a batch."""

    def __init__(self) -> None:
        self.max_timestamp: i64 = NO_TIMESTAMP
        self.first_delta: i64 = 0  # timestamp delta of the first record
        self.consecutive: bool = True  # offset deltas are 0, 1, 2...
        self.index: i64 = 0  # of the next record
        self.bad_timestamp: bool = False
        self.errors: list[tuple[int, str | None]] = []
        self.unknown: dict[UnknownSchema, None] = {}


def prepare(
    frame: bytes,
    start: int,
    end: int,
    rules: ProduceRules,
    now_ms: int,
    partition: str = "",
    refused_codecs: frozenset[int] = frozenset(),
) -> Prepared:
    """Check the records section `frame[start:end]` of a Produce request (version 3 and newer) and make it appendable.

    now_ms          append time in ms
    partition       "topic-partition" for error messages
    refused_codecs  codecs that the version of the request does not support

    Never raises: errors are in the result.
    """
    result = Prepared(frame)
    code = _check_frame(result, frame, start, end, rules, refused_codecs)
    if code != NONE:
        return result.refuse(code, result.error_message)
    header = result.header
    code = _check_batch(header)
    if code != NONE:
        return result.refuse(code)
    codec = header.compression
    target = codec if rules.codec < 0 else rules.codec
    section = frame
    begin = header.start + HEADER_SIZE
    stop = header.end
    if codec:
        try:
            section = decompress_at_once(codec, memoryview(frame)[begin:stop], DECOMPRESS_AT_ONCE)
        except BeyondLimit:
            if rules.schemas is not None:
                rules.schemas.begin()
            result.remaining = _in_sections(result, frame, rules, now_ms, codec, target, partition)
            return result
        except CorruptRecords:
            return result.refuse(UNKNOWN_SERVER_ERROR)
        begin = 0
        stop = len(section)
    if rules.schemas is not None:
        rules.schemas.begin()
    walk = _Walk()
    code = _walk_records(section, begin, stop, header, header.count, rules, now_ms, codec, target, partition, walk)
    if code != NONE:
        return result.refuse(code)
    return _complete(result, walk, section, begin, stop, rules, now_ms, codec, target)


def _in_sections(
    result: Prepared, frame: bytes, rules: ProduceRules, now_ms: int, codec: int, target: int, partition: str
) -> Iterator[None]:
    """Check a batch that is large when decompressed in parts, so that memory does not depend on its size.

    If the codec has to change, the whole batch is needed, and must fit into the memory limit of a part.
    """
    header = result.header
    walk = _Walk()
    largest = max(SECTION_BYTES, rules.max_message_bytes)
    parts: list[bytes] = []
    size = 0
    try:
        for section, begin, stop, count in sections(frame, header, largest):
            code = _walk_records(section, begin, stop, header, count, rules, now_ms, codec, target, partition, walk)
            if code != NONE:
                result.refuse(code)
                return
            if codec != target:
                size += stop - begin
                if size > largest:
                    result.refuse(MESSAGE_TOO_LARGE)
                    return
                parts.append(section[begin:stop])
            if len(walk.errors) > _MOST_ERRORS:
                break
            yield
    except (BeyondLimit, MalformedRecord):
        result.refuse(INVALID_RECORD)
        return
    except CorruptRecords:
        result.refuse(UNKNOWN_SERVER_ERROR)
        return
    whole = b"".join(parts)
    _complete(result, walk, whole, 0, len(whole), rules, now_ms, codec, target)


def _complete(
    result: Prepared,
    walk: _Walk,
    section: bytes,
    begin: int,
    stop: int,
    rules: ProduceRules,
    now_ms: int,
    codec: int,
    target: int,
) -> Prepared:
    """Complete the result after all records were checked; `section` is needed if the codec changes."""
    header = result.header
    partial = codec != 0 and codec == target
    if walk.unknown and not (walk.errors and len(walk.unknown) >= MOST_UNKNOWN):
        result.unknown = list(walk.unknown)
        return result
    if walk.errors:
        result.record_errors = walk.errors
        if walk.bad_timestamp:
            return result.refuse(INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp")
        return result.refuse(INVALID_RECORD, _too_many(walk.errors))
    if partial and not walk.consecutive:
        return result.refuse(UNKNOWN_SERVER_ERROR)
    if codec != target:
        _recompress(result, section, begin, stop, target, rules, now_ms, walk)
        if result.size_in_bytes > rules.max_message_bytes:
            return result.refuse(MESSAGE_TOO_LARGE)
    else:
        _correct_timestamps(result, rules, now_ms, walk)
    if rules.log_append_time:
        result.append_time = now_ms
    result.max_timestamp = header.max_timestamp
    return result


def check_whole(frame: bytes, start: i64, end: i64, refused_codecs: frozenset[int]) -> Prepared:
    """Check for exactly one whole batch of magic 2, of a codec of the version; no more than that."""
    result = Prepared(frame)
    return result.refuse(_check_whole(result, frame, start, end, refused_codecs), result.error_message)


def _check_frame(
    result: Prepared, frame: bytes, start: i64, end: i64, rules: ProduceRules, refused_codecs: frozenset[int]
) -> int:
    """Check for exactly one whole batch of magic 2 with valid size and CRC; set the header of the result."""
    code = _check_whole(result, frame, start, end, refused_codecs)
    if code != NONE:
        return code
    result.is_whole = True
    if read_i64_be(frame, start) != 0:
        return INVALID_RECORD
    size: int = read_i32_be(frame, start + 8)
    if size + 12 > rules.max_message_bytes:
        return MESSAGE_TOO_LARGE
    if size < HEADER_SIZE - 12:
        return CORRUPT_MESSAGE
    header = read_header(frame, start)
    result.header = header
    result.size_in_bytes = size + 12
    if crc32c(memoryview(frame)[start + 21 : start + 12 + size]) != header.crc:
        return CORRUPT_MESSAGE
    return NONE


def _check_whole(result: Prepared, frame: bytes, start: i64, end: i64, refused_codecs: frozenset[int]) -> int:
    """Return an error code unless the frame is one whole batch; set the message of the result."""
    remaining: i64 = end - start
    if remaining < 12:
        return INVALID_RECORD
    size: int = read_i32_be(frame, start + 8)
    if size < _MIN_ENTRY:
        result.error_message = f"Record size {size} is less than the minimum record overhead ({_MIN_ENTRY})"
        return CORRUPT_MESSAGE
    magic: i64 = frame[start + 16] if remaining >= 17 else 0
    if magic > MAGIC:
        result.error_message = f"Invalid magic found in record: {magic - 256 if magic > 127 else magic}"
        return CORRUPT_MESSAGE
    if remaining < 12 + size or magic != MAGIC:
        return INVALID_RECORD
    codec: i64 = frame[start + 22] & CODEC_MASK
    if codec and codec in refused_codecs:
        return UNSUPPORTED_COMPRESSION_TYPE
    after: i64 = start + 12 + size
    if end - after >= 12:
        return _check_follower(frame, after, end)
    return NONE


def _check_follower(frame: bytes, after: i64, end: i64) -> int:
    """Return an error code if another batch or an invalid size follows; a truncated batch is ignored, as in Kafka."""
    size: int = read_i32_be(frame, after + 8)
    if size < _MIN_ENTRY:
        return CORRUPT_MESSAGE
    if end - after < 17:
        return NONE
    if frame[after + 16] > MAGIC:
        return CORRUPT_MESSAGE
    return INVALID_RECORD if end - after >= 12 + size else NONE


def _check_batch(header: BatchHeader) -> int:
    if header.attributes & CODEC_MASK >= len(CODECS):
        return UNKNOWN_SERVER_ERROR
    if header.count <= 0 or header.last_offset_delta + 1 != header.count:
        return INVALID_RECORD
    if header.attributes & CONTROL:
        return INVALID_RECORD
    if header.producer_id > -1 and header.base_sequence < 0:
        return INVALID_RECORD
    return NONE


def _too_many(errors: list[tuple[int, str | None]]) -> str:
    shown = ", ".join(f"RecordError(batchIndex={index}, message='{message}')" for index, message in errors[:3])
    return (
        f"One or more records have been rejected due to {len(errors)} record errors in total, "
        f"and only showing the first three errors at most: [{shown}]"
    )


def _walk_records(
    data: bytes,
    start: i64,
    end: i64,
    header: BatchHeader,
    records: int,
    rules: ProduceRules,
    now_ms: int,
    codec: i64,
    target: i64,
    partition: str,
    walk: _Walk,
) -> int:
    """Check the next `records` records of a batch against its header and the rules of the topic. Return 0 or an error code.

    One function of straight-line code, because this is the hot loop of the broker: one-byte varints are read in place,
    longer ones by a call, and a Python object is created only for a rejected record.
    """
    pos: i64 = start
    b: i64
    c: i64
    v: i64
    index: i64 = walk.index
    count: i64 = index + records
    append_time = header.attributes & LOG_APPEND_TIME != 0
    ranged = not rules.log_append_time
    low: i64 = max(now_ms - rules.before_max_ms, -_MAX_INT64 - 1)
    high: i64 = min(now_ms + rules.after_max_ms, _MAX_INT64)
    compacted = rules.compacted
    schemas = rules.schemas
    limit: i64 = rules.max_decompressed_bytes if codec else end - start
    base_timestamp: i64 = header.base_timestamp
    max_timestamp: i64 = walk.max_timestamp
    # Sums of values within this distance of zero cannot overflow int64.
    near = -(1 << 61) < base_timestamp < (1 << 61)
    timestamp: i64
    delta: i64
    stop: i64
    while index < count:
        # length, attributes
        if pos >= end:
            return INVALID_RECORD
        # An overlong length is the one case that Kafka's iterator for uncompressed batches does not catch.
        # varint: begin v, pos = read_varint(data, pos, end)
        # varint: if pos < 0: return UNKNOWN_SERVER_ERROR if pos == TOO_LONG and codec == 0 else INVALID_RECORD
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < end else 0
        if b < 0x80:
            pos += 1
            v = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            v = (b >> 1) ^ -(b & 1)
        else:
            v, pos = read_varint(data, pos, end)
            if pos < 0:
                return UNKNOWN_SERVER_ERROR if pos == TOO_LONG and codec == 0 else INVALID_RECORD
        # varint: end
        stop = pos + v
        if stop > end or stop < pos + _MIN_RECORD or stop - pos > limit:
            return INVALID_RECORD
        pos += 1
        # timestamp delta
        # varint: begin timestamp, pos = read_varlong(data, pos, stop)
        # varint: if pos < 0 or pos >= stop: return INVALID_RECORD
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
        if b < 0x80:
            pos += 1
            timestamp = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            timestamp = (b >> 1) ^ -(b & 1)
        else:
            timestamp, pos = read_varlong(data, pos, stop)
            if pos < 0 or pos >= stop:
                return INVALID_RECORD
        # varint: end
        if index == 0:
            walk.first_delta = timestamp
        if near and -(1 << 61) < timestamp < (1 << 61):
            timestamp += base_timestamp
        else:
            timestamp = wrapping_add(base_timestamp, timestamp)
        # offset delta
        # varint: begin delta, pos = read_varint(data, pos, stop)
        # varint: if pos < 0: return INVALID_RECORD
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
        if b < 0x80:
            pos += 1
            delta = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            delta = (b >> 1) ^ -(b & 1)
        else:
            delta, pos = read_varint(data, pos, stop)
            if pos < 0:
                return INVALID_RECORD
        # varint: end
        if delta != index:
            walk.consecutive = False
        # key
        if pos >= stop:
            return INVALID_RECORD
        # varint: begin v, pos = read_varint(data, pos, stop)
        # varint: if pos < 0: return INVALID_RECORD
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
        if b < 0x80:
            pos += 1
            v = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            v = (b >> 1) ^ -(b & 1)
        else:
            v, pos = read_varint(data, pos, stop)
            if pos < 0:
                return INVALID_RECORD
        # varint: end
        key_size: i64 = v
        key_at: i64 = pos
        if v > 0:
            pos += v
        # value
        if pos >= stop:
            return INVALID_RECORD
        # varint: begin v, pos = read_varint(data, pos, stop)
        # varint: if pos < 0: return INVALID_RECORD
        b = data[pos]
        c = data[pos + 1] if b >= 0x80 and pos + 1 < stop else 0
        if b < 0x80:
            pos += 1
            v = (b >> 1) ^ -(b & 1)
        elif 0 < c < 0x80:
            pos += 2
            b = (b & 0x7F) | (c << 7)
            v = (b >> 1) ^ -(b & 1)
        else:
            v, pos = read_varint(data, pos, stop)
            if pos < 0:
                return INVALID_RECORD
        # varint: end
        value_size: i64 = v
        value_at: i64 = pos
        if v > 0:
            pos += v
        # headers
        if pos >= stop:
            return INVALID_RECORD
        headers_at: i64 = pos
        if data[pos] == 0:
            pos += 1
        else:
            pos = _walk_headers(data, pos, stop)
        if pos != stop:
            return INVALID_RECORD
        # rules of the topic
        if append_time:
            timestamp = header.max_timestamp
        if compacted and key_size < 0:
            walk.errors.append(
                (index, f"Compacted topic cannot accept message without key in topic partition {partition}")
            )
        elif ranged and timestamp != NO_TIMESTAMP:
            if timestamp < low or timestamp > high:
                walk.bad_timestamp = True
                walk.errors.append((index, _out_of_range(timestamp, delta, low, high)))
        elif append_time:
            walk.bad_timestamp = True
            walk.errors.append(
                (index, _wrong_type(timestamp, delta, key_size, value_size, codec != 0 and codec == target))
            )
        if schemas is not None and (not walk.errors or walk.errors[-1][0] != index):
            refusal = schemas.refusal(data, key_at, key_size, value_at, value_size, headers_at, stop, walk.unknown)
            if refusal is not None:
                walk.errors.append((index, refusal))
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        index += 1
    walk.index = index
    walk.max_timestamp = max_timestamp
    return NONE if pos == end else INVALID_RECORD


def _walk_headers(data: bytes, pos: i64, stop: i64) -> i64:
    """Return the position after the headers of a record, negative if they are invalid."""
    count: i64
    size: i64
    count, pos = read_varint(data, pos, stop)
    if pos < 0 or count < 0 or count > stop - pos:
        return -1
    while count > 0:
        count -= 1
        size, pos = read_varint(data, pos, stop)
        if pos < 0 or size < 0 or size > stop - pos:
            return -1
        size, pos = read_varint(data, pos + size, stop)
        if pos < 0 or size > stop - pos:
            return -1
        if size > 0:
            pos += size
    return pos


def _out_of_range(timestamp: int, offset: int, low: int, high: int) -> str:
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{low}, {high}]"
    )


def _wrong_type(timestamp: int, offset: int, key_size: int, value_size: int, partial: bool) -> str:
    # Kafka's error message contains the name of a Java class, which depends on its code path.
    name = "PartialDefaultRecord" if partial else "DefaultRecord"
    if not partial:
        key_size = max(key_size, 0)
        value_size = max(value_size, 0)
    return (
        f"Invalid timestamp type in message {name}(offset={offset}, timestamp={timestamp}, key={key_size} bytes, "
        f"value={value_size} bytes). Producer should not set timestamp type to LogAppendTime."
    )


def _correct_timestamps(result: Prepared, rules: ProduceRules, now_ms: int, walk: _Walk) -> None:
    """Correct timestamp type and maxTimestamp in the header; no change if they are right already."""
    header = result.header
    kind = LOG_APPEND_TIME if rules.log_append_time else 0
    newest: int = now_ms if rules.log_append_time else walk.max_timestamp
    if header.attributes & LOG_APPEND_TIME == kind and header.max_timestamp == newest:
        return
    header.attributes = (header.attributes & 0x77) | kind
    header.max_timestamp = newest
    result.reseal()


def _recompress(
    result: Prepared, data: bytes, start: int, end: int, target: int, rules: ProduceRules, now_ms: int, walk: _Walk
) -> None:
    """Recompress a batch with the topic's codec, as a producer with that codec would have built it."""
    header = result.header
    header.attributes = target | (header.attributes & TRANSACTIONAL)
    if rules.log_append_time:
        header.attributes |= LOG_APPEND_TIME
    if walk.consecutive and walk.first_delta == 0:
        plain = data[start:end]
    else:
        plain = _renumber(data, start, end, header.count, walk.first_delta)
        header.base_timestamp = wrapping_add(header.base_timestamp, walk.first_delta)
    header.max_timestamp = now_ms if rules.log_append_time else walk.max_timestamp
    result.replace_records(compress(target, plain, rules.level) if target else plain)
    result.reseal()


def _renumber(data: bytes, start: i64, end: i64, count: i64, first_delta: i64) -> bytes:
    """Rewrite the records of a checked section with offset deltas 0, 1, 2... and a first timestamp delta of 0."""
    out = BytesWriter()
    pos: i64 = start
    size: i64
    timestamp: i64
    _offset: i64
    index: i64 = 0
    while index < count:
        size, pos = read_varint(data, pos, end)
        stop: i64 = pos + size
        timestamp, pos = read_varlong(data, pos + 1, stop)
        timestamp = wrapping_add(timestamp, -first_delta)
        _offset, pos = read_varint(data, pos, stop)
        write_varint(out, 1 + varint_size(timestamp) + varint_size(index) + stop - pos)
        out.append(0)
        write_varint(out, timestamp)
        write_varint(out, index)
        out.write(data[pos:stop])
        pos = stop
        index += 1
    return out.getvalue()
