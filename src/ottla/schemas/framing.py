"""Framing of the Confluent wire format: the bytes before a payload.

    0        magic byte: 0
    1 .. 4   id of the schema, big-endian
    5 ..     Protobuf only: message of the .proto file: number of indexes, then the indexes, as zigzag varints; [0], the
             first message of the file, is a single byte 0. An index counts the messages nested in the enclosing one.

A newer format has no framing. The header `__key_schema_id` or `__value_schema_id` of the record has, in place of it,

    0        1, and the 16 bytes of the schema's GUID; or 0, and its id in 4 bytes
    ..       Protobuf only: message of the .proto file, as above

Source: Confluent Platform, "Wire format" of the serializers.
"""

import uuid
from collections.abc import Iterable
from typing import Final

HEAD: Final = 5
_GUID_HEAD: Final = 17
_MOST_INDEXES: Final = 64


class BadRecord(ValueError):
    """A value does not fit its schema, or is not in the wire format; the message is one line."""


def schema_id(frame: bytes) -> int:
    """Return the id of the writer's schema. Raises BadRecord."""
    if len(frame) < HEAD:
        raise BadRecord(f"{len(frame)} bytes, shorter than magic byte and schema id")
    if frame[0] != 0:
        raise BadRecord(
            f"first byte {frame[0]}, not 0: not in the wire format, and no header of the record has the schema"
        )
    return int.from_bytes(frame[1:HEAD], "big")


def header_name(field: str) -> str:
    """Return the name of the header with the schema of a key or value."""
    return f"__{field}_schema_id"


def guid_head(guid: str) -> bytes:
    """Return the begin of the value of that header."""
    return b"\x01" + uuid.UUID(guid).bytes


def header_of(headers: Iterable[tuple[str, bytes | None]] | None, field: str) -> bytes | None:
    """Return the value of the header with the schema of a key or value, None without."""
    name = header_name(field)
    return next((value for key, value in headers or () if key == name and value is not None), None)


def split_header(value: bytes) -> tuple[int | str, bytes]:
    """Return the id or GUID in the value of such a header, and the message indexes after it. Raises BadRecord."""
    if value[:1] == b"\0" and len(value) >= HEAD:
        return int.from_bytes(value[1:HEAD], "big"), value[HEAD:]
    if value[:1] == b"\x01" and len(value) >= _GUID_HEAD:
        return str(uuid.UUID(bytes=bytes(value[1:_GUID_HEAD]))), value[_GUID_HEAD:]
    raise BadRecord(f"the header of the schema is not in the wire format: {value[:20].hex()}")


def head(number: int) -> bytes:
    """Return magic byte and schema id."""
    return b"\0" + number.to_bytes(4, "big")


def message_indexes(frame: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of the message in the .proto file, and the position of its payload. Raises BadRecord."""
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
    """Encode indexes: the inverse of `message_indexes`."""
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
