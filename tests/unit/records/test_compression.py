"""Compression and decompression: round trips, what other writers send, and what must not take memory."""

import gzip
import random
import tracemalloc
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.metadata.configs.table import TOPIC
from ottla.records.codec_names import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD
from ottla.records.compression import (
    CODECS,
    compress,
    compress_in_steps,
    decompress,
    newer_than_fetch,
    newer_than_produce,
    pieces,
)
from ottla.records.errors import CorruptRecords

MANY = settings(max_examples=60, deadline=None)

ALL = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
COMPRESSING = [GZIP, SNAPPY, LZ4, ZSTD]
MIB = 1 << 20


@pytest.mark.parametrize("codec", ALL, ids=CODEC_NAMES)
@MANY
@given(data=st.binary(max_size=300))
def test_compressed_data_is_decompressed(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", ALL, ids=CODEC_NAMES)
@pytest.mark.parametrize("size", [0, 1, 32768, 32769, 65536, 200_001])
def test_blocks_and_buffer_growth(codec: int, size: int) -> None:
    data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    assert decompress(codec, memoryview(compress(codec, data)), size) == data


@pytest.mark.parametrize("codec", COMPRESSING, ids=CODEC_NAMES[1:])
def test_growth_reaches_far_beyond_the_first_guess(codec: int) -> None:
    data = bytes(10 * MIB)
    assert decompress(codec, compress(codec, data), 11 * MIB) == data


@pytest.mark.parametrize("codec", ALL, ids=CODEC_NAMES)
@pytest.mark.parametrize("size", [0, 1, MIB, MIB + 1, 3 * MIB + 7])
def test_data_that_was_compressed_in_steps_is_decompressed(codec: int, size: int) -> None:
    data = random.Random(7).randbytes(size // 2) + bytes(size - size // 2)
    steps = compress_in_steps(codec, data)
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            compressed = stop.value
            break
        pauses += 1
    assert decompress(codec, compressed, size) == data
    assert pauses == (0 if codec == NONE else max(0, -(-size // MIB) - 1))


@pytest.mark.parametrize("codec", ALL, ids=CODEC_NAMES)
def test_one_byte_beyond_the_limit_is_refused(codec: int) -> None:
    with pytest.raises(CorruptRecords, match="more than 99999 bytes"):
        decompress(codec, compress(codec, bytes(100_000)), 99_999)


@pytest.mark.parametrize("codec", COMPRESSING, ids=CODEC_NAMES[1:])
def test_a_bomb_takes_no_more_memory_than_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecords):
            decompress(codec, bomb, MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB + 2 * len(bomb)


def test_a_snappy_block_that_lies_about_its_size_allocates_nothing() -> None:
    with pytest.raises(CorruptRecords):
        decompress(SNAPPY, b"\xff\xff\xff\xff\x07" + b"a" * 20, 2**31 - 1)


@pytest.mark.parametrize("codec", COMPRESSING, ids=CODEC_NAMES[1:])
@MANY
@given(data=st.binary(max_size=200))
def test_garbage_raises_the_one_error(codec: int, data: bytes) -> None:
    with suppress(CorruptRecords):
        assert len(decompress(codec, data, 1000)) <= 1000


@pytest.mark.parametrize("codec", COMPRESSING, ids=CODEC_NAMES[1:])
@MANY
@given(position=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255), cut=st.booleans())
def test_mutations_raise_the_one_error(codec: int, position: int, flip: int, cut: bool) -> None:
    compressed = bytearray(compress(codec, b"the same words, the same words, the same words" * 4))
    position %= len(compressed)
    if cut:
        del compressed[position:]
    else:
        compressed[position] ^= flip
    with suppress(CorruptRecords):
        assert len(decompress(codec, bytes(compressed), 10_000)) <= 10_000


def test_gzip_members_are_joined_and_a_tail_is_ignored() -> None:
    compressed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(GZIP, compressed, 100) == b"one two"
    assert decompress(GZIP, compressed + b"\0\0\0\0junk", 100) == b"one two"
    with pytest.raises(CorruptRecords):
        decompress(GZIP, compressed, 6)


@pytest.mark.parametrize("codec", [GZIP, ZSTD], ids=["gzip", "zstd"])
@pytest.mark.parametrize("first", [0, 10, 2 * MIB])
def test_frames_of_any_size_are_joined(codec: int, first: int) -> None:
    """Further frames are read through a window, which is smaller than some of them."""
    chance = random.Random(7)
    parts = [chance.randbytes(size) for size in (first, 0, 1, 511, 513, 70_000, 3, 300_000, 0)]
    compressed = b"".join(compress(codec, part) for part in parts)
    assert decompress(codec, compressed, 3 * MIB) == b"".join(parts)
    assert b"".join(pieces(codec, compressed, 0)) == b"".join(parts)
    for cut in (len(compressed) - 1, len(compressed) - 100_000):
        with pytest.raises(CorruptRecords, match="cut short"):
            decompress(codec, compressed[:cut], 3 * MIB)


def test_a_damaged_gzip_member_is_no_tail_to_be_ignored() -> None:
    compressed = bytearray(gzip.compress(b"one") + gzip.compress(random.Random(7).randbytes(200_000)))
    compressed[150_000] ^= 0xFF
    with pytest.raises(CorruptRecords, match="gzip"):
        decompress(GZIP, bytes(compressed), MIB)


def test_snappy_is_written_as_java_writes_it() -> None:
    compressed = compress(SNAPPY, b"x" * 32769)
    assert compressed[:16] == bytes.fromhex("82534e41505059000000000100000001")
    first = int.from_bytes(compressed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(compressed[20 : 20 + first])) == b"x" * 32768


def test_snappy_is_read_bare_and_with_a_second_header() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(b"bare")), 10) == b"bare"
    assert decompress(SNAPPY, compress(SNAPPY, b"one ") + compress(SNAPPY, b"two"), 10) == b"one two"


def test_lz4_is_one_frame_of_independent_blocks() -> None:
    compressed = compress(LZ4, b"abc" * 50_000)
    assert compressed[:4] == bytes.fromhex("04224d18")
    assert compressed[4] >> 6 == 1
    assert compressed[4] & 0x20, "block independence (KAFKA-3160)"
    assert decompress(LZ4, compressed + b"ignored", 150_000) == b"abc" * 50_000


def test_lz4_with_dependent_blocks_is_refused() -> None:
    with pytest.raises(CorruptRecords, match="dependent"):
        decompress(LZ4, bytes(cramjam.lz4.compress(b"abc" * 50_000)), 150_000)


def test_unknown_codecs() -> None:
    with pytest.raises(CorruptRecords):
        decompress(5, b"", 10)
    with pytest.raises(ValueError, match="unknown"):
        compress(5, b"")


def test_levels_are_those_of_the_configs() -> None:
    """The ranges and defaults that a topic may have are the rows' own."""
    entries = {entry[0]: entry for entry in TOPIC if entry[0].startswith("compression.")}
    for row in CODECS:
        assert (f"compression.{row.name}.level" in entries) == bool(row.levels)
        if row.levels:
            entry = entries[f"compression.{row.name}.level"]
            limits = f"[{row.levels[0]}..{row.levels[-1]}]"
            assert entry[2] == str(row.default_level)
            assert entry[3] == (limits if row.default_level in row.levels else f"{limits} or {row.default_level}")


def test_zstd_alone_is_newer_than_some_versions() -> None:
    assert [newer_than_produce(version) for version in (0, 6, 7)] == [{ZSTD}, {ZSTD}, frozenset()]
    assert [newer_than_fetch(version) for version in (0, 9, 10)] == [{ZSTD}, {ZSTD}, frozenset()]
