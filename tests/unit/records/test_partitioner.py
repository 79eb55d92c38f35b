"""Java's murmur2: its own vectors, and the same over a column."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.partitioner import murmur2, partition_of, partitions_of

MANY = settings(max_examples=60, deadline=None)

VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
    (b"", 275646681),
    (b"a", -1563381124),
    (b"ab", 316155434),
    (b"abcd", -1323649548),
    (b"123456789", -1822237082),
    (b"\x00 ", 1121897742),
    (b"kafka", -798503068),
    (b"key-0", 29210041),
    (b"\xff", -311467685),
    (b"\xff\xfe\xfd", 998637092),
    (b"The quick brown fox jumps over the lazy dog", 495243318),
]


@pytest.mark.parametrize(("key", "expected"), VECTORS)
def test_vectors(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@pytest.mark.parametrize(
    ("key", "expected"), [(b"", 681), (b"a", 524), (b"ab", 434), (b"abc", 107), (b"123456789", 566)]
)
def test_partitions_of_a_thousand(key: bytes, expected: int) -> None:
    assert partition_of(key, 1000) == expected


@MANY
@given(
    keys=st.lists(st.none() | st.binary(max_size=20), max_size=20),
    first=st.integers(min_value=0, max_value=5),
    count=st.integers(min_value=1, max_value=2**31 - 1),
)
def test_a_column_gives_each_key_its_own_partition(keys: list[bytes | None], first: int, count: int) -> None:
    first = min(first, len(keys))
    ends = [0]
    for key in keys:
        ends.append(ends[-1] + len(key or b""))
    bits = sum(1 << i for i, key in enumerate(keys) if key is not None)
    data = partitions_of(
        b"".join(key or b"" for key in keys),
        struct.pack(f"<{len(ends)}i", *ends),
        bits.to_bytes((len(keys) + 7) // 8, "little"),
        first,
        len(keys) - first,
        count,
        -7,
    )
    expected = [-7 if key is None else partition_of(key, count) for key in keys[first:]]
    assert list(struct.unpack(f"<{len(expected)}i", data)) == expected


@pytest.mark.parametrize("offsets", [(0, 4), (-1, 2), (2, 1)])
def test_offsets_beyond_the_data_are_an_error(offsets: tuple[int, int]) -> None:
    with pytest.raises(IndexError):
        partitions_of(b"abc", struct.pack("<2i", *offsets), None, 0, 1, 3, 0)
