"""Message sets as old producers write them and old consumers read them, told apart from the code under test: only struct."""

import gzip
import struct
import zlib
from typing import Any, Final

AT: Final = 1_700_000_000_000
GZIP: Final = 1


def message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    magic: int,
    *,
    timestamp: int = AT,
    attributes: int = 0,
    crc: int | None = None,
) -> bytes:
    """One message; `crc` puts another checksum in the place of the right one."""
    head = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    return framed(offset, head + _blob(key) + _blob(value), crc)


def framed(offset: int, body: bytes, crc: int | None = None) -> bytes:
    """Any bytes in the place of a message, with the right checksum."""
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body) if crc is None else crc) + body


def _blob(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def packed(offset: int, inner: bytes, magic: int, *, attributes: int = GZIP) -> bytes:
    """A set inside a message."""
    return message(offset, None, gzip.compress(inner), magic, attributes=attributes)


def pair(magic: int) -> bytes:
    """Two messages."""
    return message(0, b"k0", b"v0", magic) + message(1, b"k1", b"v1", magic)


def parsed(data: bytes) -> list[tuple[Any, ...]]:
    """Return (offset, magic, attributes, ms after AT, key, value) of each whole message, as an old consumer; in place of
    the value stand the inner messages of one packed with gzip.
    """
    messages: list[tuple[Any, ...]] = []
    start = 0
    while start + 18 <= len(data):
        offset, size, crc, magic, attributes = struct.unpack_from(">qiIbb", data, start)
        end = start + 12 + size
        if end > len(data) or offset < 0:
            break
        assert zlib.crc32(data[start + 16 : end]) == crc
        at, timestamp = start + 18, None
        if magic == 1:
            timestamp = struct.unpack_from(">q", data, at)[0] - AT
            at += 8
        key, at = _read_blob(data, at)
        value, at = _read_blob(data, at)
        assert at == end
        inner = parsed(gzip.decompress(value)) if attributes & 7 == GZIP and value else value
        messages.append((offset, magic, attributes, timestamp, key, inner))
        start = end
    return messages


def _read_blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, at)
    return (None, at + 4) if size < 0 else (data[at + 4 : at + 4 + size], at + 4 + size)
