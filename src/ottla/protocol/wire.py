"""Encodings that `struct` does not support: varints; and the error for invalid input.

Compiled with mypyc where there is a compiler. Readers take `bytes` (mypyc.md: walking bytes is sixty times faster than
walking a memoryview) and return the value with the position after it.
"""

from typing import Final

from mypy_extensions import i64


class PeerError(Exception):
    """Malformed bytes from the peer: the error is logged, and the connection closed."""


def read_uvarint(data: bytes, position: i64) -> tuple[int, int]:
    """Read an unsigned LEB128 number below 2^31; return it and the position after it. Raises PeerError."""
    value: i64 = 0
    shift: i64 = 0
    end: i64 = len(data)
    while shift <= 28:
        if position >= end:
            raise PeerError("a varint runs past the end of the frame")
        byte: i64 = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 0x80000000:
                break
            return value, position
        shift += 7
    raise PeerError("a varint is longer than 31 bits")


def write_uvarint(value: int) -> bytes:
    """Encode `value` (not negative) as unsigned LEB128."""
    if value < 0x80:
        return UVARINT_BYTES[value]
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Precomputed one-byte varints: they cover nearly all lengths and counts of real messages.
UVARINT_BYTES: Final = [bytes([n]) for n in range(0x80)]
