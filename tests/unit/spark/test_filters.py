"""Pruning of a batch read by its filters."""
# ruff: noqa: E402 - an older PySpark lacks what is imported

from datetime import UTC, datetime

import pytest

from tests.spark import skip_module_before

skip_module_before("4.1")
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from ottla.client.topics import TopicPartition
from ottla.spark.filters import Pruning, pruning
from ottla.spark.offsets import OffsetRange

MOMENT = datetime(2026, 5, 6, 7, 8, 9, 123_456, tzinfo=UTC)
MOMENT_MS = 1_778_051_289_123


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], Pruning()),
        ([IsNotNull(("topic",)), EqualTo(("topic",), "t")], Pruning(topics=frozenset(["t"]))),
        ([In(("topic",), ("a", "b")), EqualNullSafe(("topic",), "b")], Pruning(topics=frozenset(["b"]))),
        ([EqualTo(("topic",), "a"), EqualTo(("topic",), "b")], Pruning(topics=frozenset())),
        ([In(("partition",), (1, 3))], Pruning(partitions=frozenset([1, 3]))),
        ([StringStartsWith(("topic",), "t"), Not(EqualTo(("partition",), 1))], Pruning()),
        ([GreaterThan(("offset",), 4), LessThan(("offset",), 9)], Pruning(start=5, end=9)),
        ([GreaterThanOrEqual(("offset",), 4), LessThanOrEqual(("offset",), 9)], Pruning(start=4, end=10)),
        ([In(("offset",), (7, 3)), GreaterThan(("offset",), 1)], Pruning(start=3, end=8)),
        ([EqualNullSafe(("offset",), None)], Pruning(end=0)),
        ([GreaterThanOrEqual(("timestamp",), MOMENT)], Pruning(since_ms=MOMENT_MS)),
        ([LessThan(("timestamp",), MOMENT)], Pruning()),
        ([EqualTo(("value",), b"v")], Pruning()),
    ],
)
def test_filters_become_a_pruning(filters: list[Filter], expected: Pruning) -> None:
    assert pruning(filters) == expected


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (Pruning(), (10, 20)),
        (Pruning(topics=frozenset(["other"])), None),
        (Pruning(partitions=frozenset([1])), None),
        (Pruning(partitions=frozenset([0]), start=12, end=15), (12, 15)),
        (Pruning(start=20), None),
        (Pruning(end=10), None),
    ],
)
def test_a_pruning_limits_a_range(kept: Pruning, expected: tuple[int, int] | None) -> None:
    partition = TopicPartition("t", 0)
    left = kept.of(OffsetRange(partition, 10, 20))
    assert left == (None if expected is None else OffsetRange(partition, *expected))
