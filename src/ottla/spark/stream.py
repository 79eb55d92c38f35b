"""Stream reader: offsets of each micro-batch on the driver, records on the executors.

latestOffset long-polls for a moment when there is nothing new: Spark would otherwise call it every 10 ms. A call of
latestOffset with a start offset implies that Spark has committed everything before it; with availableNow there is one more
call at the end, and a restarted query begins with one. So latestOffset commits the offsets of the consumer group
(groupOffsets).
"""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ottla.client.errors import KafkaError, UnknownTopic
from ottla.client.topics import EARLIEST, TopicPartition
from ottla.protocol.uuids import uuid_text
from ottla.spark.offsets import DataLoss, Positions, limit_bytes, limit_rows, ranges, to_json
from ottla.spark.options import SourceOptions
from ottla.spark.reading import TopicReader
from ottla.spark.releases import HAS_ADMISSION_CONTROL
from ottla.spark.stream_offset import StreamOffset, stream_offset

if TYPE_CHECKING or HAS_ADMISSION_CONTROL:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadAllAvailable:
        """Limit of a batch on releases that have none."""

    class SupportsTriggerAvailableNow:
        """Base class of releases that limit a batch with availableNow; Spark reads all in one batch here."""

    ReadLimit = ReadAllAvailable

__all__ = ["MISSING_TOPIC_REMEDY", "OttlaStreamReader", "ReadAllAvailable"]

logger = logging.getLogger("ottla.spark")

# Long-poll timeout of latestOffset. Short, because each source of a query waits that long in turn.
_WAIT_MS: Final = 100
# Bytes sampled per partition to estimate record sizes (maxBytesPerTrigger).
_SAMPLE_BYTES: Final = 64 << 10
# Timeout of a group commit, which is for monitoring only: it must not delay a batch.
_COMMIT_MS: Final = 5_000
MISSING_TOPIC_REMEDY: Final = (
    "Set failOnDataLoss=false to continue without it, or onTopicRecreated=restart to wait until it is recreated "
    "(missingTopicTimeout)"
)


class OttlaStreamReader(TopicReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream of the topics of a query."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._initial: StreamOffset | None = None
        self._target: Positions | None = None
        self._highest: Positions = {}
        self._triggered_ms: int | None = None
        self._group_positions: Positions = {}
        self._unreachable_since_ms: int | None = None
        """Start of the current outage; None while brokers answer."""
        self._missing_ms: dict[str, int] = {}
        """Deleted topics that the query has read, and the time at which each was first missed."""

    @property
    def _tolerates_missing_topics(self) -> bool:
        """True if the query survives the deletion of a topic."""
        return self.options.restarts_recreated or not self.options.fail_on_data_loss

    # -- outages --

    def _keeps_waiting(self, error: KafkaError) -> bool:
        """Return whether to retry after an error of unreachable brokers (brokerOutageTimeout)."""
        if not error.retriable:
            return False
        now, limit = self.cluster.clock.now_ms(), self.options.outage_ms
        if self._unreachable_since_ms is None:
            self._unreachable_since_ms = now - self.cluster.config["default.api.timeout.ms"]
        waited = now - self._unreachable_since_ms
        if waited >= limit:
            return False
        logger.warning(
            "brokers have not answered for %.0f s, retrying for up to %.0f s (brokerOutageTimeout): %s",
            waited / 1000,
            limit / 1000,
            error,
        )
        return True

    def _on_answer(self) -> None:
        """Note the end of an outage."""
        if self._unreachable_since_ms is not None:
            seconds = (self.cluster.clock.now_ms() - self._unreachable_since_ms) / 1000
            logger.warning("brokers answer again after %.0f s: the query continues", seconds)
            self._unreachable_since_ms = None

    # -- offsets --

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        # Spark calls it twice for batch 0: a second look-up of the end would skip the records in between.
        if self._initial is None:
            partitions = self.current_partitions()
            positions = self.positions(self.options.start, partitions)
            if self.options.group is not None:
                committed = self.cluster.committed(self.options.group, partitions)
                positions |= {partition: offset.offset for partition, offset in committed.items()}
            self._initial = StreamOffset(positions, self.topic_ids(partitions), is_start=True)
        return self._initial.json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self.options
        if options.max_offsets:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes:
            return ReadMaxBytes(options.max_bytes)
        return ReadMinRows(options.min_offsets) if options.min_offsets else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.cluster.forget()
        try:
            self._target = self.ends(self.current_partitions())
        except UnknownTopic:
            # latestOffset, which Spark calls next, decides between data loss and an unknown topic.
            self._target = None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        known = stream_offset(start)
        while True:
            try:
                latest = self._latest_offset_with_retry(start, known, limit)
            except KafkaError as error:
                # Report no new data: Spark calls again and can stop the query meanwhile. A query that begins fails.
                if known.is_start or not self._keeps_waiting(error):
                    raise
                if self._target is None:
                    return start
                continue  # availableNow would take no new data for the end
            self._on_answer()
            return latest

    def _latest_offset_with_retry(self, start: dict[str, Any], known: StreamOffset, limit: ReadLimit) -> dict[str, Any]:
        deadline = self.cluster.clock.now_ms() + self.options.missing_topic_ms
        while True:
            try:
                return self._latest_offset(start, known, limit)
            except UnknownTopic as error:
                if not self._tolerates_missing_topics or self.cluster.clock.now_ms() >= deadline:
                    raise DataLoss(f"{error}. {MISSING_TOPIC_REMEDY}") from None
                # Deleted between two requests, or missing in the metadata of some broker: refresh all metadata.
                self.cluster.forget()
                self.cluster.pause(_WAIT_MS)

    def _latest_offset(self, start: dict[str, Any], known: StreamOffset, limit: ReadLimit) -> dict[str, Any]:
        if not known.is_start:
            self._commit_to_group(known)
        latest = self._target_or_latest(known)
        if (
            self._target is None
            and not known.is_start
            and latest == known.positions
            and self._may_have_new_records(latest)
        ):
            latest = self._target_or_latest(known)
        self._highest = latest
        existing = [partition for partition in latest if partition.topic not in self._missing_ms]
        ids = {name: known.topic_ids[name] for name in self._missing_ms if name in known.topic_ids} | self.topic_ids(
            existing
        )
        begins = self._start_offsets(known, latest, ids)
        end = latest
        if not isinstance(limit, ReadAllAvailable):
            if known.is_start:
                self._triggered_ms = self.cluster.clock.now_ms()
            elif self._waits_for_more(begins, latest):
                return start
            end = self._limit(begins, latest)
        if known.is_start:
            return StreamOffset(end, ids, begins=known.positions).json()
        if end == known.positions and all(ids.get(name) == topic_id for name, topic_id in known.topic_ids.items()):
            return start
        return StreamOffset(end, ids).json()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        return to_json(self._highest)

    def _target_or_latest(self, known: StreamOffset) -> Positions:
        if self._target is None:
            return self._latest(known.positions)
        if any(offset < known.positions.get(partition, 0) for partition, offset in self._target.items()):
            self._target = self._latest(known.positions)
        return self._target

    def _latest(self, known: Positions) -> Positions:
        """Return the current end offsets; partitions of a missing topic keep their position until missingTopicTimeout.

        An end offset that went back is looked up again (fetchOffset.numRetries); if it persists, `partitions` raises DataLoss.
        Raises UnknownTopic, DataLoss.
        """
        partitions = self.current_partitions(allow_missing=self._tolerates_missing_topics)
        missing = self._positions_of_missing_topics(known, {partition.topic for partition in partitions})
        latest = self.ends(partitions)
        for _ in range(1, self.options.offset_attempts):
            if all(latest[partition] >= known.get(partition, 0) for partition in latest):
                break
            self.cluster.forget()
            self.cluster.pause(self.options.retry_interval_ms)
            latest = self.ends(partitions)
        return latest | missing

    def _positions_of_missing_topics(self, known: Positions, existing: set[str]) -> Positions:
        """Return the positions in deleted topics until missingTopicTimeout.

        After that they are dropped with failOnDataLoss=false; otherwise raises DataLoss. A recreated topic has another id.
        """
        if not self._tolerates_missing_topics:
            return {}
        now, limit = self.cluster.clock.now_ms(), self.options.missing_topic_ms
        before = self._missing_ms
        self._missing_ms = {}
        kept: Positions = {}
        for name in sorted({partition.topic for partition in known} - existing):
            since = before.get(name, now)
            if name not in before:
                logger.warning(
                    "topic %s does not exist: waiting up to %d s for it (missingTopicTimeout)", name, limit // 1000
                )
            if now - since < limit:
                self._missing_ms[name] = since
                kept |= {partition: offset for partition, offset in known.items() if partition.topic == name}
            elif self.options.fail_on_data_loss:
                raise DataLoss(
                    f"topic {name} was deleted and not recreated within {limit / 1000:g} s (missingTopicTimeout). "
                    "Set failOnDataLoss=false to continue without it"
                )
        for name in before.keys() & existing:
            logger.warning("topic %s exists again", name)
        return kept

    def _may_have_new_records(self, positions: Positions) -> bool:
        """Wait a moment for new records; return whether there may be some."""
        try:
            existing = {part: offset for part, offset in positions.items() if part.topic not in self._missing_ms}
            return self.cluster.wait_for_records(existing, _WAIT_MS)
        except UnknownTopic:
            return True

    def _start_offsets(self, start: StreamOffset, end: Positions, ids: dict[str, bytes]) -> Positions:
        """Return the start offsets of a batch that continues at `start`: new partitions and topics begin at their earliest
        offset.

        Raises DataLoss for a recreated topic, and for a new partition whose first records were already deleted.
        """
        recreated = [name for name, topic_id in ids.items() if start.topic_ids.get(name, topic_id) != topic_id]
        kept = {partition: offset for partition, offset in start.positions.items() if partition.topic not in recreated}
        if recreated and not self.options.restarts_recreated:
            if self.options.fail_on_data_loss:
                was, now = (uuid_text(ids_by_name[recreated[0]]) for ids_by_name in (start.topic_ids, ids))
                raise DataLoss(
                    f"topic {recreated[0]} was deleted and created again (its id was {was} and is {now}). Set "
                    "onTopicRecreated=restart to read the new one from its beginning, or failOnDataLoss=false to continue "
                    "at the same offset"
                )
            kept = dict(start.positions)
        new = [partition for partition in end if partition not in kept]
        earliest = self._earliest(new, end)
        lost = [partition for partition, offset in earliest.items() if offset > 0 and partition.topic not in recreated]
        if lost and self.options.fail_on_data_loss and not start.is_start:
            raise DataLoss(
                f"{lost[0]} is new and begins at offset {earliest[lost[0]]} instead of 0: records were deleted before they "
                "were read. Set failOnDataLoss=false to continue with the remaining records"
            )
        return kept | earliest

    def _earliest(self, new: list[TopicPartition], end: Positions) -> Positions:
        """Return the earliest offsets of new partitions, or their `end` if the topic was deleted meanwhile."""
        try:
            return self.ends(new, EARLIEST) if new else {}
        except UnknownTopic:
            if not self._tolerates_missing_topics:
                raise
        self.cluster.forget()
        existing = set(self.current_partitions(allow_missing=True))
        begins = {partition: end[partition] for partition in new if partition not in existing}
        return begins | self.ends(existing.intersection(new), EARLIEST)

    # -- triggers --

    def _waits_for_more(self, begins: Positions, latest: Positions) -> bool:
        """Return whether to wait for more records (minOffsetsPerTrigger, maxTriggerDelay); pauses for a moment if so."""
        least = self.options.min_offsets
        if least is None or self._target is not None:
            return False
        backlog = sum(max(offset - begins.get(partition, offset), 0) for partition, offset in latest.items())
        if not backlog:
            return False
        now = self.cluster.clock.now_ms()
        due = 0 if self._triggered_ms is None else self._triggered_ms + self.options.max_delay_ms - now
        if backlog < least and due > 0:
            self.cluster.pause(min(_WAIT_MS, due))
            return True
        self._triggered_ms = now
        return False

    def _limit(self, begins: Positions, latest: Positions) -> Positions:
        """Return the end offsets of a batch: `latest`, limited by maxOffsetsPerTrigger and maxBytesPerTrigger."""
        end = latest
        if self.options.max_bytes:
            behind = {partition: begins[partition] for partition in end if begins[partition] < end[partition]}
            sizes = self.cluster.bytes_per_offset(behind, _SAMPLE_BYTES)
            end = limit_bytes(begins, end, sizes, self.options.max_bytes)
        return limit_rows(begins, end, self.options.max_offsets) if self.options.max_offsets else end

    # -- batches --

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        until = stream_offset(end)
        known = stream_offset(start)
        if until.begins is not None:
            known = known._replace(positions=until.begins, topic_ids=until.topic_ids)
        begins = self._start_offsets_with_retry(known, until)
        pieces, lost = ranges(begins, until.positions)
        if lost and self.options.fail_on_data_loss:
            raise DataLoss(f"{'; '.join(lost)}. Set failOnDataLoss=false to continue with the remaining records")
        return self.tasks(pieces, until.topic_ids)

    def _start_offsets_with_retry(self, known: StreamOffset, until: StreamOffset) -> Positions:
        """Return `_start_offsets`, with retries during an outage of the brokers."""
        while True:
            try:
                begins = self._start_offsets(known, until.positions, until.topic_ids)
            except KafkaError as error:
                if not self._keeps_waiting(error):
                    raise
            else:
                self._on_answer()
                return begins

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a batch to the group; Spark calls it when it plans the batch after the next."""
        self._commit_to_group(stream_offset(end))

    def _commit_to_group(self, offset: StreamOffset) -> None:
        """Commit an offset to the consumer group of groupOffsets. Raises KafkaError when the group has members."""
        group = self.options.group
        if group is None or offset.positions == self._group_positions:
            return
        advanced = {
            partition: end
            for partition, end in offset.positions.items()
            if end >= self._group_positions.get(partition, 0) and partition.topic not in self._missing_ms
        }
        try:
            self.cluster.commit(group, advanced, _COMMIT_MS)
        except KafkaError as error:
            if not error.retriable and not (isinstance(error, UnknownTopic) and self._tolerates_missing_topics):
                raise
            logger.warning("groupOffsets: %s", error)
            return
        self._group_positions = offset.positions
