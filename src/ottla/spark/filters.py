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

from ottla.spark.offsets import Range

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

    def of(self, piece: Range) -> Range | None:
        """Return the part of a range within the bounds of topics, partitions and offsets, None if it is empty."""
        topic, number = piece.partition
        if self.topics is not None and topic not in self.topics:
            return None
        if self.partitions is not None and number not in self.partitions:
            return None
        start, end = max(piece.start, self.start), min(piece.end, self.end)
        return Range(piece.partition, start, end) if start < end else None


def pruning(filters: Iterable[Filter]) -> Pruning:
    """Return the bounds of the records that can pass all of these filters."""
    found = Pruning()
    for each in filters:
        column = ".".join(getattr(each, "attribute", ()))
        if column == "topic":
            found = found._replace(topics=_both(found.topics, _among(each)))
        elif column == "partition":
            found = found._replace(partitions=_both(found.partitions, _among(each)))
        elif column == "offset":
            found = _offsets(found, each)
        elif column == "timestamp":
            found = _times(found, each)
    return found


def _among(each: Filter) -> frozenset[Any] | None:
    """The values that a filter lets pass, None when it does not list them."""
    if isinstance(each, EqualTo | EqualNullSafe):
        return frozenset([each.value])
    if isinstance(each, In):
        return frozenset(each.value)
    return None


def _both(left: frozenset[Any] | None, right: frozenset[Any] | None) -> frozenset[Any] | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _offsets(found: Pruning, each: Filter) -> Pruning:
    among = _among(each)
    if among is not None:
        offsets = [offset for offset in among if offset is not None]
        if not offsets:
            return found._replace(end=0)
        return found._replace(start=max(found.start, min(offsets)), end=min(found.end, max(offsets) + 1))
    if isinstance(each, GreaterThan):
        return found._replace(start=max(found.start, each.value + 1))
    if isinstance(each, GreaterThanOrEqual):
        return found._replace(start=max(found.start, each.value))
    if isinstance(each, LessThan):
        return found._replace(end=min(found.end, each.value))
    if isinstance(each, LessThanOrEqual):
        return found._replace(end=min(found.end, each.value + 1))
    return found


def _times(found: Pruning, each: Filter) -> Pruning:
    if not isinstance(each, EqualTo | GreaterThan | GreaterThanOrEqual) or not isinstance(each.value, datetime):
        return found
    moment = each.value if each.value.tzinfo is not None else each.value.astimezone()
    since = int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    return found._replace(since_ms=since if found.since_ms is None else max(found.since_ms, since))
