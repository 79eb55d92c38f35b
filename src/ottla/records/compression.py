"""Compression and decompression of a batch's records section (or, in old formats, of a wrapped message set).

Lengths in the data are not trusted: every decompressor writes to a buffer of at most `limit` bytes, so that a few kilobytes
that claim to be, or really are, gigabytes when decompressed cannot exhaust the broker's memory.

    gzip    RFC 1952, concatenated members accepted, bytes after the last member ignored (as Java does)
    snappy  written in the xerial framing, read with it or as one raw block:

             0                  8            12            16
            +------------------+------------+-------------+------------------+-----------+----
            | 82 'SNAPPY' 00   | version 1  | compatible 1| block length i32 | raw block | ...
            +------------------+------------+-------------+------------------+-----------+----

    lz4     one frame of independent blocks (KAFKA-3160), bytes after its end mark ignored
    zstd    frames; Java leaves the content size out of them

The table `CODECS`, below the functions, has one row for each codec.
"""

import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import cramjam

from ottla.records.codec_names import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from ottla.records.errors import BeyondLimit, CorruptRecords

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK: Final = 32 * 1024
# A snappy copy element has three bytes and yields at most 64.
_SNAPPY_MAX_RATIO: Final = 22
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT_BLOCKS: Final = 0x60
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_BLOCK_SIZES: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: 4 << 20}
_GZIP_OWN_LEVEL: Final = 6
PIECE: Final = 1 << 20
"""Size of a piece in bytes, which is decompressed in about a millisecond."""
_FRAMES_AT_ONCE: Final = 250
"""Maximum number of frames, members or blocks that are decompressed in one step of a few milliseconds."""
_FIRST_WINDOW: Final = 1 << 20
"""Size of the input window for the first frame or member, usually the only one, in bytes."""
_WINDOW: Final = 64 << 10
_SMALLEST_WINDOW: Final = 512
"""Initial window size for further frames or members: the bytes after one are copied, so it grows only as needed."""
_SMALLEST_GUESS: Final = 4096
# cramjam's message for a full output buffer, the only way to distinguish that from bad data.
_FULL: Final = "failed to write whole buffer"


class Codec(NamedTuple):
    """Compression codec: a row of `CODECS`.

    compress        (data, level): compressed data as one stream
    compress_parts  (parts, level): the compressed stream in parts, one for each of `parts`, then its rest
    decompress      (data, limit, most): at most `limit` bytes of at most `most` frames, members or blocks
    pieces          (data, largest): the decompressed data in pieces; see `pieces`
    levels          valid levels, empty if the codec has no levels
    default_level   Kafka's default level; a number outside of `levels` is the library's default
    first_produce   first version of Produce that supports the codec
    first_fetch     first version of Fetch that supports the codec
    """

    id: int
    name: str
    compress: Callable[[bytes | memoryview, int], bytes]
    compress_parts: Callable[[Iterable[bytes], int], Iterator[bytes]]
    decompress: Callable[[memoryview, int, int], bytes]
    pieces: Callable[[memoryview, int], Iterator[bytes]]
    levels: range = range(0)
    default_level: int = 0
    first_produce: int = 0
    first_fetch: int = 0


def compress(codec: int, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Compress `data`; `level` None is Kafka's default of the codec. Raises ValueError for an unknown codec."""
    row = _row(codec)
    if row is None:
        raise ValueError(f"unknown compression codec {codec}")
    return row.compress(data, row.default_level if level is None else level)


def compress_in_steps(codec: int, data: bytes, level: int | None = None) -> Generator[None, None, bytes]:
    """Compress `data` in steps, with a yield after each PIECE of the data."""
    row = _row(codec)
    if row is None or codec == NONE or len(data) <= PIECE:
        return compress(codec, data, level)
    starts = range(0, len(data), PIECE)
    compressed: list[bytes] = []
    parts = (data[start : start + PIECE] for start in starts)
    for part in row.compress_parts(parts, row.default_level if level is None else level):
        compressed.append(part)
        if len(compressed) < len(starts):
            yield
    return b"".join(compressed)


def decompress(codec: int, data: bytes | memoryview, limit: int) -> bytes:
    """Decompress `data` to at most `limit` bytes. Raises BeyondLimit for more, CorruptRecords for bad data or an unknown
    codec.
    """
    return _row_of_data(codec).decompress(memoryview(data), limit, sys.maxsize)


def decompress_at_once(codec: int, data: bytes | memoryview, limit: int) -> bytes:
    """Decompress `data` if that takes a few milliseconds at most. Raises the errors of `decompress`, and BeyondLimit for
    many frames as well; `pieces` decompresses these in steps.
    """
    return _row_of_data(codec).decompress(memoryview(data), limit, _FRAMES_AT_ONCE)


def pieces(codec: int, data: bytes | memoryview, largest: int) -> Iterator[bytes]:
    """Decompress `data` in pieces of about PIECE bytes, or of one block of lz4 or snappy; one piece at a time is in memory.
    A piece may be empty, as each takes a few milliseconds at most.

    largest  maximum decompressed size of a snappy block, which cannot be decompressed in parts

    Raises BeyondLimit for a larger block, CorruptRecords for bad data or an unknown codec, after the pieces before it.
    """
    return _join_small(_row_of_data(codec).pieces(memoryview(data), largest))


@cache
def newer_than_produce(version: int) -> frozenset[int]:
    """Return the codecs that Produce `version` does not support."""
    return frozenset(row.id for row in CODECS if row.first_produce > version)


@cache
def newer_than_fetch(version: int) -> frozenset[int]:
    """Return the codecs that Fetch `version` does not support."""
    return frozenset(row.id for row in CODECS if row.first_fetch > version)


def _row(codec: int) -> Codec | None:
    return CODECS[codec] if 0 <= codec < len(CODECS) else None


def _row_of_data(codec: int) -> Codec:
    row = _row(codec)
    if row is None:
        raise CorruptRecords(f"unknown compression codec {codec}")
    return row


def _copy(data: bytes | memoryview, _level: int) -> bytes:
    return bytes(data)


def _copy_parts(parts: Iterable[bytes], _level: int) -> Iterator[bytes]:
    return iter(parts)


def _copy_up_to(data: memoryview, limit: int, _most: int) -> bytes:
    if len(data) > limit:
        raise _beyond(limit)
    return bytes(data)


def _slices(data: memoryview, _largest: int) -> Iterator[bytes]:
    return (bytes(data[start : start + PIECE]) for start in range(0, len(data), PIECE))


def _beyond(limit: int) -> BeyondLimit:
    return BeyondLimit(f"records decompress to more than {limit} bytes")


def _join(parts: Iterator[bytes], limit: int, most: int) -> bytes:
    """Join the parts. Raises BeyondLimit for more than `limit` bytes, or more than `most` parts."""
    listed: list[bytes] = []
    left = limit
    for part in parts:
        left -= len(part)
        if left < 0 or len(listed) == most:
            raise _beyond(limit)
        listed.append(part)
    return listed[0] if len(listed) == 1 else b"".join(listed)


def _join_small(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Join small parts up to PIECE bytes, at most _FRAMES_AT_ONCE of them at a time."""
    small: list[bytes] = []
    size = 0
    for part in parts:
        small.append(part)
        size += len(part)
        if size >= PIECE or len(small) == _FRAMES_AT_ONCE:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)


def _compress_gzip(data: bytes | memoryview, level: int) -> bytes:
    return bytes(cramjam.gzip.compress(data, _GZIP_OWN_LEVEL if level < 0 else level))


def _compress_gzip_parts(parts: Iterable[bytes], level: int) -> Iterator[bytes]:
    compressor = zlib.compressobj(_GZIP_OWN_LEVEL if level < 0 else level, wbits=31)
    for part in parts:
        yield compressor.compress(part)
    yield compressor.flush()


def _decompress_gzip(data: memoryview, limit: int, most: int) -> bytes:
    return _join(_gzip_pieces(data, limit + 1), limit, most)


def _gzip_pieces(data: memoryview, size: int) -> Iterator[bytes]:
    """Decompress the gzip members of `data`, in pieces of at most `size` bytes."""
    position = 0
    window = _FIRST_WINDOW
    while True:
        member = zlib.decompressobj(wbits=31)
        begins = position
        while not member.eof:
            chunk = data[position : position + window]
            try:
                part = member.decompress(chunk, size)
            except zlib.error as error:
                if begins and bytes(data[begins : begins + 2]) != b"\x1f\x8b":
                    return  # no further member: Java ignores what follows the last one
                raise CorruptRecords(f"gzip: {error}") from None
            if not part and not chunk and not member.eof:
                raise CorruptRecords("gzip: cut short")
            position += len(chunk) - len(member.unconsumed_tail) - len(member.unused_data)
            window = min(2 * window, _WINDOW)
            yield part
        if position == len(data):
            return
        window = _SMALLEST_WINDOW


def _compress_snappy(data: bytes | memoryview, _level: int) -> bytes:
    return _XERIAL_HEADER + _xerial_blocks(memoryview(data))


def _compress_snappy_parts(parts: Iterable[bytes], _level: int) -> Iterator[bytes]:
    # Blocks are independent, and PIECE is a multiple of their size.
    header = _XERIAL_HEADER
    for part in parts:
        yield header + _xerial_blocks(memoryview(part))
        header = b""


def _xerial_blocks(data: memoryview) -> bytes:
    parts = []
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit: int, most: int) -> bytes:
    return _join(_snappy_blocks(data, limit), limit, most)


def _snappy_blocks(data: memoryview, largest: int) -> Iterator[bytes]:
    """Decompress the blocks of a xerial stream, or one raw block, each to at most `largest` bytes."""
    if bytes(data[:8]) != _XERIAL_MAGIC:
        yield _read_snappy_block(data, largest)
        return
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
        yield _read_snappy_block(data[pos + 4 : pos + 4 + size], largest)
        pos += 4 + size


def _read_snappy_block(data: memoryview, limit: int) -> bytes:
    """Decompress one raw block to at most `limit` bytes."""
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > len(data) * _SNAPPY_MAX_RATIO:
            raise CorruptRecords("snappy: block claims more than it can hold")
        if size > limit:
            raise _beyond(limit)
        block = bytearray(size)
        written = cramjam.snappy.decompress_raw_into(data, block)
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"snappy: {error}") from None
    if written != size:
        raise CorruptRecords("snappy: block shorter than it claims")
    return bytes(block)


class _Lz4Frame(NamedTuple):
    """Header of the first frame of lz4 data: its flags, the byte with the block size, and that size.

    start  position of the first block
    """

    flags: int
    size_code: int
    block_size: int
    start: int

    @property
    def size_after_blocks(self) -> int:
        """Return the size of the end mark and the content checksum, in bytes."""
        return 8 if self.flags & _LZ4_CONTENT_CHECKSUM else 4


def _compress_lz4(data: bytes | memoryview, level: int) -> bytes:
    compressor = _lz4_compressor(level)
    compressor.compress(data)
    return bytes(compressor.finish())


def _compress_lz4_parts(parts: Iterable[bytes], level: int) -> Iterator[bytes]:
    return _compress_parts(_lz4_compressor(level), parts)


def _lz4_compressor(level: int) -> Any:
    # Kafka's levels 1-17 select the high compression mode; its default, 9, means the fast mode.
    return cramjam.lz4.Compressor(None if level == 9 else level, content_checksum=False, block_linked=False)


def _compress_parts(compressor: Any, parts: Iterable[bytes]) -> Iterator[bytes]:
    """Compress a stream with a compressor of cramjam, which buffers its output until the end."""
    for part in parts:
        compressor.compress(part)
        yield b""
    yield bytes(compressor.finish())


def _decompress_lz4(data: memoryview, limit: int, most_blocks: int) -> bytes:
    frame = _lz4_frame(data)
    end = frame.start
    count = 0
    for _, block_end in _lz4_bounds(data, frame):
        end = block_end
        count += 1
        if count > most_blocks:
            raise _beyond(limit)
    end += frame.size_after_blocks
    most = min(count * frame.block_size, limit)
    size = min(max(_SMALLEST_GUESS, 4 * len(data)), most)
    while True:
        out = bytearray(size)
        try:
            written = cramjam.lz4.decompress_into(data[:end], out)
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise CorruptRecords(f"lz4: {error}") from None
            if size >= most:
                raise _beyond(limit) from None
            size = min(size * 4, most)
            continue
        return bytes(memoryview(out)[:written])


def _lz4_blocks(data: memoryview, _largest: int) -> Iterator[bytes]:
    """Decompress each block of the first frame, as a frame of its own."""
    frame = _lz4_frame(data)
    descriptor = bytes((_LZ4_INDEPENDENT_BLOCKS | (frame.flags & _LZ4_BLOCK_CHECKSUM), frame.size_code))
    header = _LZ4_MAGIC + descriptor + bytes(((short_xxhash32(descriptor) >> 8) & 0xFF,))
    out = bytearray(frame.block_size)
    for start, end in _lz4_bounds(data, frame):
        try:
            written = cramjam.lz4.decompress_into(b"".join((header, data[start:end], bytes(4))), out)
        except cramjam.DecompressionError as error:
            raise CorruptRecords(f"lz4: {error}") from None
        yield bytes(memoryview(out)[:written])


def _lz4_frame(data: memoryview) -> _Lz4Frame:
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise CorruptRecords("lz4: no frame")
    flags = data[4]
    if flags >> 6 != 1 or not flags & 0x20:
        raise CorruptRecords("lz4: unsupported version or dependent blocks")
    block_size = _LZ4_BLOCK_SIZES.get((data[5] >> 4) & 7)
    if block_size is None:
        raise CorruptRecords("lz4: unknown block size")
    return _Lz4Frame(flags, data[5], block_size, 6 + (8 if flags & 0x08 else 0) + 1)


def _lz4_bounds(data: memoryview, frame: _Lz4Frame) -> Iterator[tuple[int, int]]:
    """Iterate over (position, end) of each block, with its length and checksum. Raises CorruptRecords."""
    position = frame.start
    checksum_size = 4 if frame.flags & _LZ4_BLOCK_CHECKSUM else 0
    while True:
        if position + 4 > len(data):
            raise CorruptRecords("lz4: cut short")
        size = int.from_bytes(data[position : position + 4], "little") & 0x7FFFFFFF
        if size == 0:
            break
        if size > frame.block_size:
            raise CorruptRecords("lz4: block larger than its frame allows")
        end = position + 4 + size + checksum_size
        yield position, end
        position = end
    if position + frame.size_after_blocks > len(data):
        raise CorruptRecords("lz4: cut short")


def _compress_zstd(data: bytes | memoryview, level: int) -> bytes:
    return bytes(cramjam.zstd.compress(data, level))


def _compress_zstd_parts(parts: Iterable[bytes], level: int) -> Iterator[bytes]:
    return _compress_parts(cramjam.zstd.Compressor(level), parts)


def _decompress_zstd(data: memoryview, limit: int, most: int) -> bytes:
    return _join(_zstd_pieces(data, limit + 1), limit, most)


def _zstd_pieces(data: memoryview, size: int) -> Iterator[bytes]:
    """Decompress the zstd frames of `data`, in pieces of at most `size` bytes."""
    position = 0
    window = _FIRST_WINDOW
    while position < len(data):
        frame = _zstd().ZstdDecompressor()
        try:
            while not frame.eof:
                chunk = data[position : position + window] if frame.needs_input else b""
                if frame.needs_input and not chunk:
                    raise CorruptRecords("zstd: cut short")
                part = frame.decompress(chunk, size)
                position += len(chunk)
                window = min(2 * window, _WINDOW)
                yield part
        except _zstd().ZstdError as error:
            raise CorruptRecords(f"zstd: {error}") from None
        position -= len(frame.unused_data)
        window = _SMALLEST_WINDOW


@cache
def _zstd() -> Any:
    """Return Python 3.14's zstd module, which decompresses in pieces, or its backport; imported on first use."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_WORD: Final = 0xFFFFFFFF


def short_xxhash32(data: bytes) -> int:
    """Return xxHash32 with seed 0 of fewer than 16 bytes, the maximum size of an lz4 frame descriptor."""
    value = (_PRIMES[4] + len(data)) & _WORD
    position = 0
    while position + 4 <= len(data):
        lane = int.from_bytes(data[position : position + 4], "little")
        value = (_rotate((value + lane * _PRIMES[2]) & _WORD, 17) * _PRIMES[3]) & _WORD
        position += 4
    for byte in data[position:]:
        value = (_rotate((value + byte * _PRIMES[4]) & _WORD, 11) * _PRIMES[0]) & _WORD
    value = ((value ^ (value >> 15)) * _PRIMES[1]) & _WORD
    value = ((value ^ (value >> 13)) * _PRIMES[2]) & _WORD
    return value ^ (value >> 16)


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _WORD


def _up_to_a_piece(read: Callable[[memoryview, int], Iterator[bytes]]) -> Callable[[memoryview, int], Iterator[bytes]]:
    """Adapt `read` to `Codec.pieces`: its piece size is always PIECE, as it can decompress in parts of any size."""
    return lambda data, _largest: read(data, PIECE)


# Indexed by codec id. Below the functions, because it refers to them.
CODECS: Final = (
    Codec(NONE, CODEC_NAMES[NONE], _copy, _copy_parts, _copy_up_to, _slices),
    Codec(
        GZIP,
        CODEC_NAMES[GZIP],
        _compress_gzip,
        _compress_gzip_parts,
        _decompress_gzip,
        _up_to_a_piece(_gzip_pieces),
        levels=range(1, 10),
        default_level=-1,
    ),
    Codec(SNAPPY, CODEC_NAMES[SNAPPY], _compress_snappy, _compress_snappy_parts, _decompress_snappy, _snappy_blocks),
    Codec(
        LZ4,
        CODEC_NAMES[LZ4],
        _compress_lz4,
        _compress_lz4_parts,
        _decompress_lz4,
        _lz4_blocks,
        levels=range(1, 18),
        default_level=9,
    ),
    Codec(
        ZSTD,
        CODEC_NAMES[ZSTD],
        _compress_zstd,
        _compress_zstd_parts,
        _decompress_zstd,
        _up_to_a_piece(_zstd_pieces),
        levels=range(-131072, 23),
        default_level=3,
        first_produce=7,
        first_fetch=10,
    ),
)
CODEC_IDS: Final = {row.name: row.id for row in CODECS}
