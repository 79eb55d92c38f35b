"""Java's murmur2: its own vectors, and the partitions of ten thousand keys as Apache Kafka's producer chooses them."""

import hashlib
import zlib

import pytest

from ottla.records.partitioner import murmur2, partition_of

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


@pytest.mark.parametrize(("partitions", "crc"), [(1, 0x4D3BCA2E), (7, 0xDA0EF7BE), (50, 0xCC2FA713), (100, 0xC459E1A6)])
def test_ten_thousand_keys_go_where_apache_kafka_sends_them(partitions: int, crc: int) -> None:
    """The checksums are those that Partitions.java prints with Apache Kafka 4.4."""
    keys = (hashlib.sha512(b"%d" % number).digest()[: number % 65] for number in range(10_000))
    assert zlib.crc32(bytes(partition_of(key, partitions) for key in keys)) == crc
