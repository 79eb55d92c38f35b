"""Packing and unpacking of a batch's records section (or, in old formats, of a wrapped message set).

Nothing here trusts a length it was given: every reader writes into a buffer that is at most `limit` bytes, so that a
few kilobytes which claim to be, or really are, gigabytes cannot take the broker's memory.

    gzip    RFC 1952, concatenated members accepted, bytes after the last member ignored (as Java does)
    snappy  written in the xerial framing, read in it or as one bare block:

             0                  8            12            16
            +------------------+------------+-------------+------------------+-----------+----
            | 82 'SNAPPY' 00   | version 1  | compatible 1| block length i32 | raw block | ...
            +------------------+------------+-------------+------------------+-----------+----

    lz4     one frame of independent blocks (KAFKA-3160), bytes after its end mark ignored
    zstd    frames; Java leaves the content size out of them, so the buffer grows until it fits
"""

import zlib
from typing import Final

import cramjam

from ottla.records.errors import BeyondLimit, CorruptRecords

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 * 1024
# A snappy copy element takes three bytes and yields at most 64.
_SNAPPY_MAX_RATIO: Final = 22
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_SIZES: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_ZSTD_DEFAULT_LEVEL: Final = 3
_SMALLEST_GUESS: Final = 4096
# cramjam's words for "the output buffer is full", which is the only way to tell that from bad data.
_FULL: Final = "failed to write whole buffer"


def compress(codec: int, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Pack `data`; `level` None is Kafka's default of the codec. Raises ValueError for an unknown codec."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        # Kafka's "-1" means the library's own default.
        return bytes(cramjam.gzip.compress(data, 6 if level is None or level < 0 else level))
    if codec == SNAPPY:
        return _write_xerial(memoryview(data))
    if codec == LZ4:
        # Kafka's own levels 1-17 steer the high compression mode; 9, its default, means the fast one.
        packer = cramjam.lz4.Compressor(
            None if level is None or level == 9 else level, content_checksum=False, block_linked=False
        )
        packer.compress(data)
        return bytes(packer.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))
    raise ValueError(f"unknown compression codec {codec}")


def decompress(codec: int, data: bytes | memoryview, limit: int) -> bytes:
    """Unpack `data` to at most `limit` bytes. Raises BeyondLimit for more, CorruptRecords for bad data or an unknown codec."""
    view = memoryview(data)
    if codec == NONE:
        if len(view) > limit:
            raise _beyond(limit)
        return bytes(view)
    if codec == GZIP:
        return _read_gzip(view, limit)
    if codec == SNAPPY:
        return _read_snappy(view, limit)
    if codec == LZ4:
        return _read_lz4(view, limit)
    if codec == ZSTD:
        return _read_zstd(view, limit)
    raise CorruptRecords(f"unknown compression codec {codec}")


def _beyond(limit: int) -> BeyondLimit:
    return BeyondLimit(f"records unpack to more than {limit} bytes")


def _read_gzip(data: memoryview, limit: int) -> bytes:
    parts: list[bytes] = []
    left = limit
    rest: bytes | memoryview = data
    while True:
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(rest, left + 1)
        except zlib.error as error:
            if parts and bytes(rest[:2]) != b"\x1f\x8b":
                break  # no further member: Java ignores what follows the last one
            raise CorruptRecords(f"gzip: {error}") from None
        left -= len(part)
        if left < 0:
            raise _beyond(limit)
        if not member.eof:
            raise CorruptRecords("gzip: cut short")
        parts.append(part)
        rest = member.unused_data
        if not rest:
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _read_snappy(data: memoryview, limit: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _read_snappy_block(data, limit, limit)
    parts: list[bytes] = []
    left = limit
    pos = 0
    while pos < len(data):
        if bytes(data[pos : pos + 8]) == _XERIAL_MAGIC:  # concatenated streams repeat the header
            if len(data) - pos < 16:
                raise CorruptRecords("snappy: cut short in the header")
            pos += 16
            continue
        size = int.from_bytes(data[pos : pos + 4], "big", signed=True)
        if size < 0 or size > len(data) - pos - 4:
            raise CorruptRecords("snappy: block length beyond the data")
        part = _read_snappy_block(data[pos + 4 : pos + 4 + size], left, limit)
        left -= len(part)
        parts.append(part)
        pos += 4 + size
    return b"".join(parts)


def _read_snappy_block(data: memoryview, left: int, limit: int) -> bytes:
    """One bare block of at most `left` bytes, what remains of `limit`."""
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > left:
            raise _beyond(limit)
        if size > len(data) * _SNAPPY_MAX_RATIO:
            raise CorruptRecords("snappy: block claims more than it can hold")
        block = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(data, block)
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"snappy: {error}") from None
    if written != size:
        raise CorruptRecords("snappy: block shorter than it claims")
    return bytes(block)


def _read_lz4(data: memoryview, limit: int) -> bytes:
    end, bound = _lz4_frame(data)
    return _read_growing("lz4", data[:end], min(bound, max(_SMALLEST_GUESS, 4 * len(data))), min(bound, limit), limit)


def _lz4_frame(data: memoryview) -> tuple[int, int]:
    """Where the first frame ends, and how much its blocks can yield at most."""
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptRecords("lz4: no frame")
    flags = data[4]
    if flags >> 6 != 1 or not flags & 0x20:
        raise CorruptRecords("lz4: unsupported version or dependent blocks")
    block_size = _LZ4_BLOCK_SIZES.get((data[5] >> 4) & 7)
    if block_size is None:
        raise CorruptRecords("lz4: unknown block size")
    pos = 6 + (8 if flags & 0x08 else 0) + 1
    after_block = 4 if flags & 0x10 else 0
    blocks = 0
    while True:
        if pos + 4 > len(data):
            raise CorruptRecords("lz4: cut short")
        size = int.from_bytes(data[pos : pos + 4], "little") & 0x7FFFFFFF
        pos += 4
        if size == 0:
            break
        if size > block_size:
            raise CorruptRecords("lz4: block larger than its frame allows")
        blocks += 1
        pos += size + after_block
    pos += 4 if flags & 0x04 else 0
    if pos > len(data):
        raise CorruptRecords("lz4: cut short")
    return pos, blocks * block_size


def _read_zstd(data: memoryview, limit: int) -> bytes:
    if not data:
        return b""
    return _read_growing("zstd", data, max(_SMALLEST_GUESS, 8 * len(data)), limit, limit)


def _read_growing(name: str, data: memoryview, guess: int, most: int, limit: int) -> bytes:
    """Unpack into a buffer of `guess` bytes, or four times as much until it fits, never above `most` (<= limit)."""
    size = min(guess, most)
    while True:
        out = bytearray(size)
        try:
            written = (
                cramjam.zstd.decompress_into(data, out) if name == "zstd" else cramjam.lz4.decompress_into(data, out)
            )
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise CorruptRecords(f"{name}: {error}") from None
            if size >= most:
                raise _beyond(limit) from None
            size = min(size * 4, most)
            continue
        return bytes(memoryview(out)[:written])
