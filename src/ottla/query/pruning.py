"""Offsets that can pass a filter, found before anything is read.

DuckDB hands the filters that it pushes into a scan over as one Arrow expression. Arrow has no way to look into an expression,
but it simplifies one by what is guaranteed of all rows of a fragment, to leave out fragments of a data set:

    guarantee  partition == 0 and 0 <= offset < 500         filter  partition = 0 and "offset" >= 500
    result     false for every row: this range has nothing to read

So the first offset that may pass is found by bisection over ranges, in about 40 steps of 0.1 ms; it works for any combination
of AND, OR, IN and comparisons, and what Arrow cannot simplify is read.
"""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

_LAST_US: Final = 2**63 - 1
_TIME: Final = pa.timestamp("us", tz="UTC")


class Pruning:
    """Bounds of what can pass a filter.

    predicate  expression over columns of `schema`
    """

    def __init__(self, predicate: Any, schema: pa.Schema) -> None:
        self._predicate = predicate
        self._schema = schema
        self._format = ds.ParquetFileFormat()  # no file is opened, but a fragment has a format
        self._files = LocalFileSystem()

    def offsets(self, partition: int, start: int, end: int) -> tuple[int, int]:
        """Return the part of a range of offsets outside of which nothing passes, (start, start) if nothing does."""
        number, offset = ds.field("partition"), ds.field("offset")
        here = number.is_valid() & (number == pa.scalar(partition, pa.int32()))

        def may_pass(low: int, high: int) -> bool:
            # To Arrow there are numbers between 6 and 7: with "below 7" it would find that > 6 may be true.
            last = pa.scalar(high - 1, pa.int64())
            return self._may_pass(here & offset.is_valid() & (offset >= pa.scalar(low, pa.int64())) & (offset <= last))

        if start >= end or not may_pass(start, end):
            return start, start
        # [start, n) has something to read from some n on, [n, end) up to some n.
        first = _first(start + 1, end, lambda n: may_pass(start, n)) - 1
        last = _first(first + 1, end, lambda n: n == end or not may_pass(n, end))
        return first, last

    def since_ms(self) -> int | None:
        """Return a time in ms before which no record passes; None without one after the epoch."""
        moment = ds.field("timestamp")

        def may_pass(end: int) -> bool:
            return self._may_pass(moment.is_valid() & (moment <= pa.scalar(end - 1, _TIME)))

        # Records without a timestamp have NULL, which no comparison lets pass, but IS NULL does.
        if self._may_pass(moment.is_null()) or may_pass(1):
            return None
        return (_first(1, _LAST_US, lambda end: end == _LAST_US or may_pass(end)) - 1) // 1000

    def _may_pass(self, guarantee: Any) -> bool:
        fragment = self._format.make_fragment("range", self._files, partition_expression=guarantee)
        whole = ds.FileSystemDataset([fragment], self._schema, self._format, self._files)
        return next(iter(whole.get_fragments(self._predicate)), None) is not None


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first number from `low` to `high` for which `holds`, which holds for `high` and for all after the first."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
