"""Comparison of the answers of two brokers to one request."""

import re
from collections.abc import Iterator
from typing import Any, Final

from ottla.records.batch import CONTROL

from .identities import CATEGORIES, Alias, Identities

_VOLATILE: Final = frozenset(
    (
        "broker_id",
        "brokers",
        "client_host",
        "cluster_id",
        "controller_id",
        "documentation",
        "eligible_leader_replicas",
        "host",
        "log_dir",
        "last_timestamp",
        "log_append_time_ms",
        "node_endpoints",
        "port",
        "throttle_time_ms",
        "timestamp",
        "total_bytes",
        "transaction_start_time_ms",
        "usable_bytes",
    )
)
"""Fields whose values differ between any two brokers, or two moments; and the eligible leader replicas, among which Apache
Kafka has replicas that a reassignment has removed.
"""
_NAMES: Final = (
    "name",
    "topic",
    "topic_name",
    "group_id",
    "transactional_id",
    "partition_index",
    "index",
    "partition",
    "partition_id",
    "resource_type",
    "resource_name",
    "key",
    "subtopology_id",
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![\w-])[\w-]{22}(?![\w-])")
_NOT_ACQUIRED: Final = re.compile(r"(batch is not in the acquired state|offset is not acquired)|The (batch|offset)\b")
"""The differing part of the texts for a batch and for its offsets, one of which Apache Kafka keeps."""
_BATCH_CRC: Final = slice(17, 21)
_BATCH_ATTRIBUTES: Final = 22
_BATCH_TIMES: Final = slice(27, 43)
_BATCH_PRODUCER: Final = slice(43, 51)


def differences(one: Any, other: Any, identities: Identities, path: str = "") -> Iterator[str]:
    """Yield where two plain answers, of Ottla and of the broker it is compared with, differ, as "path: value of the first |
    value of the second". The order of a list does not count.
    """
    field = path.rpartition(".")[2]
    if field in _VOLATILE:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name, value in one.items():
            yield from differences(value, other[name], identities, f"{path}.{name}" if path else name)
    elif isinstance(one, list) and isinstance(other, list) and len(_joined(one)) == len(_joined(other)):
        rows = sorted(_joined(one), key=lambda row: _key(row, field, identities, 0))
        others = sorted(_joined(other), key=lambda row: _key(row, field, identities, 1))
        for row, counterpart in zip(rows, others, strict=True):
            yield from differences(row, counterpart, identities, path)
    elif field in CATEGORIES:
        contradiction = identities.difference(field, one, other)
        if contradiction is not None:
            yield f"{path}: {contradiction}"
    elif not _alike(field, one, other):
        yield f"{path}: {one!r} | {other!r}"


def _alike(field: str, one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return _text(one) == _text(other)
    if field == "records":
        return _without_producers(one or b"") == _without_producers(other or b"")
    if field == "heartbeat_interval_ms":  # Ottla asks members that wait for partitions earlier, see docs/differences.md
        return bool(0 < one <= other or one == other)
    return bool(one == other)


def _text(value: str) -> str:
    text = _UUID.sub("<id>", value)
    return _NOT_ACQUIRED.sub("<not acquired>", text) if "acquired" in text else text


def _without_producers(data: bytes) -> bytes:
    """Return record batches without their producer ids, the times of markers, and the checksums over these."""
    masked, at = b"", 0
    while len(data) - at > _BATCH_PRODUCER.stop:
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        batch = bytearray(data[at:end])
        batch[_BATCH_CRC] = bytes(4)
        batch[_BATCH_PRODUCER] = bytes(8)
        if batch[_BATCH_ATTRIBUTES] & CONTROL:
            batch[_BATCH_TIMES] = bytes(16)
        masked, at = masked + batch, end
    return masked + data[at:]


def _joined(rows: list[Any]) -> list[Any]:
    """Return rows with one row for each topic: Apache Kafka begins another one when a topic comes again. So does it for ranges
    of acquired records that were acquired one by one before.
    """
    if rows and all(isinstance(row, dict) and "delivery_count" in row for row in rows):
        return _joined_ranges(rows)
    if not all(isinstance(row, dict) and isinstance(row.get("partitions"), list) for row in rows):
        return rows
    joined: dict[object, Any] = {}
    for row in rows:
        topic = row.get("topic"), row.get("name"), row.get("topic_id")
        before = joined.setdefault(topic, row)
        if before is not row:
            joined[topic] = {**before, "partitions": [*before["partitions"], *row["partitions"]]}
    return list(joined.values())


def _joined_ranges(rows: list[Any]) -> list[Any]:
    joined: list[Any] = []
    for row in sorted(rows, key=lambda row: int(row["first_offset"])):
        last = joined[-1] if joined else {"last_offset": None, "delivery_count": None}
        if (last["last_offset"], last["delivery_count"]) == (row["first_offset"] - 1, row["delivery_count"]):
            joined[-1] = {**last, "last_offset": row["last_offset"]}
        else:
            joined.append(row)
    return joined


def _key(row: Any, field: str, identities: Identities, side: int) -> str:
    """Return what rows are sorted by: names first, then all that is not volatile or another list."""
    if not isinstance(row, dict):
        return repr(identities.alias(field, row, side) if field in CATEGORIES else row)
    aliases = (identities.alias(name, row[name], side) for name in CATEGORIES if name in row)
    ids = [alias for alias in aliases if isinstance(alias, Alias)]
    names = [row[name] for name in _NAMES if name in row]
    rest = [
        (name, _UUID.sub("<id>", repr(value)))
        for name, value in row.items()
        if name not in _VOLATILE and name not in CATEGORIES and not isinstance(value, list | dict | bytes)
    ]
    return repr((ids, names, rest))
