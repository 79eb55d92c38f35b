"""Batch read: all offsets are fixed when the query is planned."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.client.topics import TopicPartition
from ottla.spark.filters import Filter, Pruning, pruning
from ottla.spark.offsets import DataLoss, OffsetRange, Positions, check_order, check_times, ranges
from ottla.spark.options import SourceOptions
from ottla.spark.reading import TopicReader
from ottla.spark.releases import HAS_FILTERS


class _PushedFilters:
    """Callable that replaces `pushFilters` of a reader.

    Spark rejects a reader that overrides the method unless spark.sql.python.filterPushdown.enabled is set (default: false). It
    compares `reader.pushFilters.__func__` with its own function; this object has that attribute, so it passes the check, and
    Spark calls it when the setting is on.
    """

    def __init__(self, reader: "OttlaReader") -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Derive bounds for the read from the filters; Spark evaluates all of them again."""
        self._reader.pruning = pruning(filters)
        return filters


class OttlaReader(TopicReader, DataSourceReader):
    """Batch read of the topics of a query.

    pruning  bounds that the pushed filters set
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        check_times(options.start, options.end)
        super().__init__(options, schema)
        self.pruning = Pruning()
        if HAS_FILTERS:
            vars(self)["pushFilters"] = _PushedFilters(self)

    def partitions(self) -> Sequence[InputPartition]:
        partitions = self.current_partitions()
        start = self.positions(self.options.start, partitions)
        end = self._ending(partitions)
        check_order(start, end, self.options.start.option, self.options.end.option)
        pieces = self._prune(ranges(start, end)[0])
        ids = self.topic_ids(piece.partition for piece in pieces)
        return self.tasks(pieces, ids)

    def _ending(self, partitions: list[TopicPartition]) -> Positions:
        """Return the end offsets of the read. Raises DataLoss for one beyond the log end, unless failOnDataLoss=false."""
        end = self.positions(self.options.end, partitions)
        if self.options.end.offsets is None:
            return end
        latest = self.ends(partitions)
        beyond = [partition for partition in partitions if end[partition] > latest[partition]]
        if beyond and self.options.fail_on_data_loss:
            first = beyond[0]
            raise DataLoss(
                f"endingOffsets names offset {end[first]} of {first}, which ends at {latest[first]}. "
                "Set failOnDataLoss=false to read up to the end of the partition"
            )
        return {partition: min(end[partition], latest[partition]) for partition in partitions}

    def _prune(self, pieces: list[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges limited by the filters.

        Every record before the offset of a timestamp is older than that timestamp, so a range may start at that offset.
        """
        left = [kept for piece in pieces if (kept := self.pruning.of(piece)) is not None]
        since = self.pruning.since_ms
        if since is None or since < 0 or not left:
            return left
        begins = self.ends([piece.partition for piece in left], since)
        return [
            OffsetRange(piece.partition, start, piece.end)
            for piece in left
            if begins[piece.partition] >= 0 and (start := max(piece.start, begins[piece.partition])) < piece.end
        ]
