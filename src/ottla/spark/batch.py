"""A batch read: offsets are fixed when it is planned."""

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ottla.client.topics import TopicPartition
from ottla.spark.filters import Pruning, pruning
from ottla.spark.offsets import DataLoss, OffsetRange, Positions, check_order, ranges
from ottla.spark.options import SourceOptions
from ottla.spark.reading import TopicReader


class _PushedFilters:
    """`pushFilters` of a reader, as Spark's planner sees it.

    Spark refuses a reader that implements it unless spark.sql.python.filterPushdown.enabled is set, which by default it is
    not; it looks whether `reader.pushFilters.__func__` is its own. Here it is, and where the setting is on this is called.
    """

    def __init__(self, reader: "OttlaReader") -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note what they leave out; all of them are left to Spark as well."""
        self._reader.pruning = pruning(filters)
        return filters


class OttlaReader(TopicReader, DataSourceReader):
    """A batch read.

    pruning  what filters leave of it
    """

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self.pruning = Pruning()
        vars(self)["pushFilters"] = _PushedFilters(self)

    def partitions(self) -> Sequence[InputPartition]:
        partitions = self.current_partitions()
        start = self.positions(self.options.start, partitions)
        end = self._ending(partitions)
        check_order(start, end, self.options.start.option, self.options.end.option)
        pieces = self._pruned(ranges(start, end)[0])
        ids = self.topic_ids(piece.partition for piece in pieces)
        return self.tasks(pieces, ids)

    def _ending(self, partitions: list[TopicPartition]) -> Positions:
        """Return the end offsets of the read. Raises DataLoss for named offsets that do not exist (yet), unless allowed."""
        end = self.positions(self.options.end, partitions)
        if self.options.end.offsets is None:
            return end
        latest = self.ends(partitions)
        beyond = [partition for partition in partitions if end[partition] > latest[partition]]
        if beyond and self.options.fail_on_data_loss:
            first = beyond[0]
            raise DataLoss(
                f"endingOffsets names offset {end[first]} of {first}, which ends at {latest[first]}. "
                "failOnDataLoss=false reads what is there"
            )
        return {partition: min(end[partition], latest[partition]) for partition in partitions}

    def _pruned(self, pieces: list[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges that filters leave.

        All records of a partition before the first one at or after a time are older than that time.
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
