"""Partitioners: choose the partition of records that are produced without one.

Kafka's default partitioner uses murmur2 of the key; records without a key stick to a partition for batch.size bytes
(KIP-480, KIP-794; 16 KB by default), so that batches are full. The others are round robin, random, and librdkafka's consistent
(CRC-32), murmur2 and fnv1a, which map all records without a key to one partition or (`_random`) each to a random one.
"""

import zlib
from collections.abc import Callable
from typing import Final

from ottla.client.producer.accumulator import Sticky, TopicBuffers
from ottla.environment import Random
from ottla.records.partitioner import partition_of

Partitioner = Callable[[TopicBuffers, bytes | None], int]
"""(topic, key) -> partition"""


def partitioner(name: str, random: Random, sticky_bytes: int, *, ignore_keys: bool = False) -> Partitioner:
    """Return the partitioner with a name of the config `partitioner`; see config.PARTITIONERS."""
    if name == "round_robin":
        return _RoundRobin()
    if name == "random":
        return lambda topic, key: random.below(topic.partitions)  # noqa: ARG005
    if name == "murmur2_sticky":
        return Sticky(random.below, sticky_bytes, ignore_keys)
    hashing = _HASHES[name.partition("_")[0]]
    keyless: Partitioner
    if name.endswith("_random"):

        def anywhere(topic: TopicBuffers, key: bytes | None) -> int:
            del key
            return random.below(topic.partitions)

        keyless = anywhere
    else:

        def empty_key(topic: TopicBuffers, key: bytes | None) -> int:
            return hashing(key or b"", topic.partitions)

        keyless = empty_key
    # librdkafka's consistent_random treats an empty key as missing.
    needs_key = name == "consistent_random"

    def choose(topic: TopicBuffers, key: bytes | None) -> int:
        if key is None or (needs_key and not key):
            return keyless(topic, key)
        return hashing(key, topic.partitions)

    return choose


def _crc32(key: bytes, partitions: int) -> int:
    return zlib.crc32(key) % partitions


def _fnv1a(key: bytes, partitions: int) -> int:
    """Return the partition by 32-bit FNV-1a as in Sarama and librdkafka: the absolute value of the signed hash."""
    value = 0x811C9DC5
    for byte in key:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    signed = value - 0x100000000 if value & 0x80000000 else value
    # The remainder as in C, with the sign of the dividend.
    return abs(signed) % partitions


_HASHES: Final[dict[str, Callable[[bytes, int], int]]] = {
    "murmur2": partition_of,
    "consistent": _crc32,
    "fnv1a": _fnv1a,
}


class _RoundRobin:
    """Round robin over the partitions, separately for each topic."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: TopicBuffers, key: bytes | None) -> int:
        del key
        chosen = self._next.get(topic.name, 0) % topic.partitions
        self._next[topic.name] = chosen + 1
        return chosen
