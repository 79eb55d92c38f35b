"""Varints of the record format: zig-zag LEB128, of int32 (varint) and int64 (varlong).

The loops of this layer read varints of one and two bytes, which are nearly all, in place (`scripts/varints` generates that
code), and call these functions for longer ones. A reader returns (value, position after it). Errors are negative positions
in place of exceptions:

    CUT       the buffer ends inside the varint
    TOO_LONG  more than 5 (varint) or 10 (varlong) bytes

As in Java, bits beyond the type are dropped: the fifth byte of a varint has 4 bits, the tenth of a varlong has 1.
"""

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

CUT: Final = -1
TOO_LONG: Final = -2


def read_varint(data: bytes, pos: i64, end: i64) -> tuple[i64, i64]:
    """Read the int32 at `pos`; return it and the position after it, or CUT or TOO_LONG. Stops before `end`."""
    v: i64 = 0
    shift: i64 = 0
    while pos < end:
        b: i64 = data[pos]
        pos += 1
        v |= (b & 0x7F) << shift
        if b < 0x80:
            v &= 0xFFFFFFFF
            return (v >> 1) ^ -(v & 1), pos
        shift += 7
        if shift > 28:
            return 0, TOO_LONG
    return 0, CUT


def read_varlong(data: bytes, pos: i64, end: i64) -> tuple[i64, i64]:
    """Read the int64 at `pos`; return it and the position after it, or CUT or TOO_LONG. Stops before `end`."""
    v: i64 = 0
    shift: i64 = 0
    while pos < end:
        b: i64 = data[pos]
        pos += 1
        if shift < 56:
            v |= (b & 0x7F) << shift
            if b < 0x80:
                return (v >> 1) ^ -(v & 1), pos
        elif shift == 56:
            # Bit 63 and beyond would not fit a signed word: the value is put together from its halves, so that the
            # interpreted form (whose integers do not wrap) and the compiled one agree.
            half = (v >> 1) | ((b & 0x7F) << 55)
            if b < 0x80:
                return half ^ -(v & 1), pos
            if pos >= end:
                return 0, CUT
            b = data[pos]
            pos += 1
            if b >= 0x80:
                return 0, TOO_LONG
            if b & 1:
                half |= 1 << 62
            return half ^ -(v & 1), pos
        shift += 7
    return 0, CUT


def write_varint(out: BytesWriter, value: i64) -> None:
    """Append `value` (int32 or int64: the encoding is the same)."""
    if 0 <= value < 64:
        out.append(u8(value << 1))  # with a u8 this is a C call, with other types a Python call
        return
    # Zig-zag without the 64th bit: the lowest seven bits first, then the rest of the magnitude is shifted by six.
    sign: i64 = 1 if value < 0 else 0
    rest: i64 = ~value if value < 0 else value
    low: i64 = ((rest & 0x3F) << 1) | sign
    rest >>= 6
    while rest:
        out.append(u8(low | 0x80))
        low = rest & 0x7F
        rest >>= 7
    out.append(u8(low))


def varint_size(value: i64) -> i64:
    """Return the number of bytes that `write_varint` appends."""
    rest: i64 = ~value if value < 0 else value
    size: i64 = 1
    rest >>= 6
    while rest:
        size += 1
        rest >>= 7
    return size
