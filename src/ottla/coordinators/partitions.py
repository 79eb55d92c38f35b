"""Partition of an internal topic for a key: its leader is the key's coordinator.

As in Kafka, the hash is the absolute value of Java's String.hashCode, or 0 for the smallest int. All brokers and versions must
agree on it, or clients look for groups at the wrong broker.
"""

import struct
from functools import lru_cache


def java_hash(text: str) -> int:
    """Return Java's String.hashCode: 31 * h + c over UTF-16 code units, wrapped to a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=20_000)
def partition_of(key: str, count: int) -> int:
    """Return the partition of `key` (a group id, transactional id or share coordinator key) among `count` partitions."""
    value = java_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % count
