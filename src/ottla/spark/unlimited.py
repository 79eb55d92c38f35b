"""Stream on PySpark before 4.2, which has no admission control: Spark passes `latestOffset` neither position nor limit.

The position is the offset that Spark got or planned last in this process. At its start a query does not know its own, not even
whether it begins or is restarted. The end of its first batch is then the end of the topics, and names in "#from" the start of a
query that begins: `partitions`, which gets both offsets, uses it only there.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from ottla.client.errors import KafkaError
from ottla.spark.offsets import DataLoss, InvalidOption, Positions
from ottla.spark.options import SourceOptions
from ottla.spark.stream import OttlaStreamReader, ReadAllAvailable
from ottla.spark.stream_offset import StreamOffset, stream_offset


class UnlimitedStreamReader(OttlaStreamReader):
    """Stream whose batches have all that is available."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._position: dict[str, Any] | None = None

    def latestOffset(self, *_: object) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        self._position = (
            self._first_end() if self._position is None else super().latestOffset(self._position, ReadAllAvailable())
        )
        return self._position

    def _first_end(self) -> dict[str, Any]:
        """Return the current end. The start is looked up first: Spark asks for it later, when there may be more records."""
        partitions = self.current_partitions()
        begins: Positions | None = None
        with suppress(KafkaError, InvalidOption, DataLoss):  # Spark asks again if the query begins
            begins = stream_offset(self.initialOffset()).positions
        return StreamOffset(self.ends(partitions), self.topic_ids(partitions), begins=begins).json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._position = end
        until = end if stream_offset(start).is_start else stream_offset(end)._replace(begins=None).json()
        return super().partitions(start, until)
