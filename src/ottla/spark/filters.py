"""Pruning of batch reads by pushed filters: topic, partition, offset and lower bound of the timestamp.

Spark evaluates all filters again, so an unsupported filter costs time but never correctness. An upper bound of the timestamp
cannot prune: timestamps need not increase with offsets.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.spark.offsets import OffsetRange
from ottla.spark.releases import HAS_FILTERS

if TYPE_CHECKING or HAS_FILTERS:
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
else:
    Filter = object

__all__ = ["Filter", "Pruning", "pruning"]

_BEYOND: Final = 2**63


class Pruning(NamedTuple):
    """Bounds of the records that can pass the filters.

    topics      topic names; None for all
    partitions  partition numbers; None for all
    start       first offset (inclusive)
    end         last offset (exclusive)
    since_ms    minimum timestamp; None for no bound
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
            bounds = bounds._replace(topics=_both(bounds.topics, _values_of(condition)))
        elif column == "partition":
            bounds = bounds._replace(partitions=_both(bounds.partitions, _values_of(condition)))
        elif column == "offset":
            bounds = _offsets(bounds, condition)
        elif column == "timestamp":
            bounds = _times(bounds, condition)
    return bounds


def _values_of(condition: Filter) -> frozenset[Any] | None:
    """Return the values that a filter accepts; None if it does not list them."""
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
    values = _values_of(condition)
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
