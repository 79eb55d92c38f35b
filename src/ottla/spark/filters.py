"""Pruning of batch reads by filters, before anything is read: by topic, partition, offset and earliest timestamp.

Spark filters the rows again, so a filter that is not understood costs time, never rows. An upper bound of the timestamp leaves
nothing out: times of records need not be in the order of their offsets.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from ottla.spark.offsets import OffsetRange

_BEYOND: Final = 2**63


class Pruning(NamedTuple):
    """Bounds of the records that can pass the filters.

    topics      by name, None for all
    partitions  by number, None for all
    start       first offset
    end         offset behind the last one
    since_ms    no record is older than this; None where that does not matter
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    start: int = 0
    end: int = _BEYOND
    since_ms: int | None = None

    def of(self, piece: OffsetRange) -> OffsetRange | None:
        """Return the part of a range within the bounds of topics, partitions and offsets, None if it is empty."""
        topic, number = piece.partition
        if self.topics is not None and topic not in self.topics:
            return None
        if self.partitions is not None and number not in self.partitions:
            return None
        start, end = max(piece.start, self.start), min(piece.end, self.end)
        return OffsetRange(piece.partition, start, end) if start < end else None


def pruning(filters: Iterable[Filter]) -> Pruning:
    """Return the bounds of the records that can pass all of these filters."""
    bounds = Pruning()
    for condition in filters:
        column = ".".join(getattr(condition, "attribute", ()))
        if column == "topic":
            bounds = bounds._replace(topics=_both(bounds.topics, _listed_values(condition)))
        elif column == "partition":
            bounds = bounds._replace(partitions=_both(bounds.partitions, _listed_values(condition)))
        elif column == "offset":
            bounds = _offsets(bounds, condition)
        elif column == "timestamp":
            bounds = _times(bounds, condition)
    return bounds


def _listed_values(condition: Filter) -> frozenset[Any] | None:
    """The values that a filter lets pass, None when it does not list them."""
    if isinstance(condition, EqualTo | EqualNullSafe):
        return frozenset([condition.value])
    if isinstance(condition, In):
        return frozenset(condition.value)
    return None


def _both(left: frozenset[Any] | None, right: frozenset[Any] | None) -> frozenset[Any] | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _offsets(bounds: Pruning, condition: Filter) -> Pruning:
    values = _listed_values(condition)
    if values is not None:
        offsets = [offset for offset in values if offset is not None]
        if not offsets:
            return bounds._replace(end=0)
        return bounds._replace(start=max(bounds.start, min(offsets)), end=min(bounds.end, max(offsets) + 1))
    if isinstance(condition, GreaterThan):
        return bounds._replace(start=max(bounds.start, condition.value + 1))
    if isinstance(condition, GreaterThanOrEqual):
        return bounds._replace(start=max(bounds.start, condition.value))
    if isinstance(condition, LessThan):
        return bounds._replace(end=min(bounds.end, condition.value))
    if isinstance(condition, LessThanOrEqual):
        return bounds._replace(end=min(bounds.end, condition.value + 1))
    return bounds


def _times(bounds: Pruning, condition: Filter) -> Pruning:
    if not isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual) or not isinstance(
        condition.value, datetime
    ):
        return bounds
    moment = condition.value if condition.value.tzinfo is not None else condition.value.astimezone()
    since = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    return bounds._replace(since_ms=since if bounds.since_ms is None else max(bounds.since_ms, since))
