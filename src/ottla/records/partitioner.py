"""Partition of a key by murmur2, as in Kafka's Java producer.

32-bit murmur2 with seed 0x9747b28c, over little-endian words. The arithmetic is done in 64 bits and masked: the product of
two 32-bit numbers is computed in two halves, since a compiled i64 overflows and an interpreted int does not.
"""

from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64

_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF
# The multiplier 0x5BD1E995 in halves.
_HIGH: Final = 0x5BD1
_LOW: Final = 0xE995


def _murmur2(data: bytes, start: i64, end: i64) -> i64:
    """Return the unsigned hash of data[start:end]."""
    length: i64 = end - start
    h: i64 = _SEED ^ (length & _MASK)
    pos: i64 = start
    stop: i64 = start + (length & ~3)
    while pos < stop:
        word: int = read_i32_le(data, pos)
        k: i64 = word
        k &= _MASK
        k = (k * _LOW + (((k * _HIGH) & 0xFFFF) << 16)) & _MASK
        k ^= k >> 24
        k = (k * _LOW + (((k * _HIGH) & 0xFFFF) << 16)) & _MASK
        h = (h * _LOW + (((h * _HIGH) & 0xFFFF) << 16)) & _MASK
        h ^= k
        pos += 4
    left: i64 = end - pos
    if left:
        if left == 3:
            b: i64 = data[pos + 2]
            h ^= b << 16
        if left >= 2:
            b = data[pos + 1]
            h ^= b << 8
        b = data[pos]
        h ^= b
        h = (h * _LOW + (((h * _HIGH) & 0xFFFF) << 16)) & _MASK
    h ^= h >> 13
    h = (h * _LOW + (((h * _HIGH) & 0xFFFF) << 16)) & _MASK
    h ^= h >> 15
    return h


def murmur2(key: bytes) -> int:
    """Return the hash of a key as Java's `Utils.murmur2` does: a signed int32."""
    h: i64 = _murmur2(key, 0, len(key))
    return h - 0x100000000 if h > 0x7FFFFFFF else h


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of a key among `partitions` (at least 1)."""
    return (_murmur2(key, 0, len(key)) & 0x7FFFFFFF) % partitions


def partition_between(data: bytes, start: i64, end: i64, partitions: i64) -> i64:
    """Return the partition of the key data[start:end] among `partitions` (at least 1)."""
    return (_murmur2(data, start, end) & 0x7FFFFFFF) % partitions
