"""Blocking client of a query: topics, offsets, and the records of ranges as columns."""

from collections.abc import Iterator, Mapping
from typing import Final

from ottla.client.consumer.ranges import RangeReading
from ottla.client.errors import CorruptBatch, OffsetOutOfRange
from ottla.client.offsets import list_offsets
from ottla.client.topics import EARLIEST, TopicInfo, TopicPartition
from ottla.client.waiting import Blocking
from ottla.protocol.errors import CORRUPT_MESSAGE
from ottla.records.columns import ColumnReader, Columns
from ottla.records.errors import CorruptRecords

ROWS: Final = 50_000
"""Most rows of a batch: with more, memory grows and throughput does not."""


class QueryReader(Blocking):
    """Client of one scan."""

    def topic_names(self) -> list[str]:
        """Return the sorted names of all topics, internal ones too. Raises KafkaError."""
        return sorted(info.name for info in self._run(self._core.metadata.all_topics()))

    def topic(self, name: str) -> TopicInfo:
        """Return the metadata of a topic. Raises UnknownTopic, KafkaError."""
        return self._run(self._core.metadata.topic(name))

    def offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return offsets by time: EARLIEST, LATEST (the last stable offset), or ms; -1 for no record that is as new.

        Raises KafkaError.
        """
        answers = self._run(list_offsets(self._core, times, committed=True)) if times else {}
        return {partition: answer.offset for partition, answer in answers.items()}

    def read(
        self, partition: TopicPartition, start: int, end: int, topic_id: bytes, columns: ColumnReader
    ) -> Iterator[Columns]:
        """Yield the records from `start` (inclusive) to `end` (exclusive) that exist. Raises KafkaError."""
        while start < end:
            try:
                for read, reached in self._chunks(partition, start, end, topic_id, columns):
                    start = reached
                    if read.rows:
                        yield read
                return
            except OffsetOutOfRange:
                # Retention, or delete-records, has removed what was there when the query began.
                earliest = self.offsets({partition: EARLIEST})[partition]
                if earliest <= start:
                    raise
                start = earliest

    def _chunks(
        self, partition: TopicPartition, start: int, end: int, topic_id: bytes, columns: ColumnReader
    ) -> Iterator[tuple[Columns, int]]:
        reading = RangeReading(self._core, partition, start, end, topic_id=topic_id)
        position = start
        try:
            while (chunk := self._run(reading.next())) is not None:
                data, at, stop = chunk.batches()
                complete = at == stop
                while not complete:
                    read = columns.read(data, position, end, start=at, end=stop)
                    complete, position = read.complete, read.next_offset
                    yield read, position
                position = chunk.next_offset
        except CorruptRecords as damage:
            raise CorruptBatch(f"{partition}: {damage}", CORRUPT_MESSAGE) from None
        finally:
            self._call(reading.close)
