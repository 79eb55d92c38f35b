"""The bytes before a payload.

    0        magic byte: 0
    1 .. 4   id of the schema, big-endian
    5 ..     Protobuf only: which message of the .proto file: how many indexes, then the indexes, as zigzag varints; the
             first message of the file, [0], is one byte 0. An index counts among the messages of the one around it.

Source: Confluent Platform, "Wire format" of the serializers. A newer format has the schema's GUID in a record header and
nothing before the payload; it is not read here, and told by its first byte, if it can be told at all.
"""

from typing import Final

HEAD: Final = 5
_MOST_INDEXES: Final = 64


class BadRecord(ValueError):
    """A value is not what its schema says, or not in the wire format; the message says what was wrong, in one line."""


def schema_id(frame: bytes) -> int:
    """The id of the schema that the payload was written with; raises BadRecord."""
    if len(frame) < HEAD:
        raise BadRecord(f"{len(frame)} bytes, shorter than magic byte and schema id")
    if frame[0] != 0:
        raise BadRecord(
            f"first byte {frame[0]}, not 0: not in the wire format (schema ids in record headers are not supported)"
        )
    return int.from_bytes(frame[1:HEAD], "big")


def head(number: int) -> bytes:
    """Magic byte and id."""
    return b"\0" + number.to_bytes(4, "big")


def message_indexes(frame: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of the message in the .proto file, and the position of its payload; raises BadRecord."""
    count, at = _varint(frame, HEAD)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise BadRecord(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _varint(frame, at)
        indexes.append(index)
    return tuple(indexes), at


def indexes_written(indexes: tuple[int, ...]) -> bytes:
    """The reverse of `message_indexes`."""
    if indexes == (0,):
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def _varint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(frame) or shift > 28:
            raise BadRecord("message indexes are cut short")
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _zigzag(number: int) -> bytes:
    left = number << 1
    written = bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    written.append(left)
    return bytes(written)
