"""A stream: what each micro-batch reads, and what is known once it is done. Spark keeps one of these on the driver for offsets;
copies of another read on the executors.

A stream long-polls in latestOffset for a moment when there is nothing new: Spark asks again every 10 ms otherwise. That Spark
asks what comes after an offset says that everything before it is committed; a query that ends is asked once more (availableNow)
or asks first when it starts again. So that is where a consumer group's offsets are committed (groupOffsets).
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.client.errors import KafkaError, UnknownTopic
from ottla.client.topics import EARLIEST, TopicPartition
from ottla.protocol.uuids import uuid_text
from ottla.spark.offsets import DataLoss, Positions, limited, limited_by_bytes, ranges, to_json
from ottla.spark.options import SourceOptions
from ottla.spark.reading import TopicReader
from ottla.spark.stream_offset import StreamOffset, stream_offset

logger = logging.getLogger("ottla.spark")

# How long latestOffset waits for something new. Another source of the same query waits as long, so it is not long.
_WAIT_MS: Final = 100
# How much of a partition is looked at to learn how large its records are (maxBytesPerTrigger).
_SAMPLE_BYTES: Final = 64 << 10
# A group's offsets are for people who watch: no batch waits longer for them.
_COMMIT_MS: Final = 5_000
_MISSING_TOPIC_REMEDY: Final = (
    "failOnDataLoss=false goes on without it, onTopicRecreated=restart waits until it is there again "
    "(missingTopicTimeout)"
)


class OttlaStreamReader(TopicReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the topics of a query."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._initial: StreamOffset | None = None
        self._target: Positions | None = None
        self._highest: Positions = {}
        self._triggered_ms: int | None = None
        self._group_positions: Positions = {}
        self._unreachable_since_ms: int | None = None
        """Since when brokers have not answered."""
        # Topics that were read and do not exist, and since when.
        self._missing_ms: dict[str, int] = {}

    @property
    def _tolerates_missing_topics(self) -> bool:
        """A topic that is deleted does not end the query."""
        return self.options.restarts_recreated or not self.options.fail_on_data_loss

    # -- outages --

    def _keeps_waiting(self, error: KafkaError) -> bool:
        """Return whether the query goes on waiting for brokers that do not answer (brokerOutageTimeout)."""
        if not error.retriable:
            return False
        now, limit = self.cluster.clock.now_ms(), self.options.outage_ms
        if self._unreachable_since_ms is None:
            self._unreachable_since_ms = now - self.cluster.config["default.api.timeout.ms"]
        waited = now - self._unreachable_since_ms
        if waited >= limit:
            return False
        logger.warning(
            "no answer for %.0f s, the query waits for up to %.0f s (brokerOutageTimeout): %s",
            waited / 1000,
            limit / 1000,
            error,
        )
        return True

    def _on_answer(self) -> None:
        """Brokers answer (again)."""
        if self._unreachable_since_ms is not None:
            seconds = (self.cluster.clock.now_ms() - self._unreachable_since_ms) / 1000
            logger.warning("brokers answer again after %.0f s: the query goes on", seconds)
            self._unreachable_since_ms = None

    # -- offsets --

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        # Asked twice for batch 0: a second look at the end would lose what came in between.
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
            # Whether that is a loss, or a name that was never there, is said by who is asked for offsets next.
            self._target = None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        known = stream_offset(start)
        while True:
            try:
                latest = self._latest_offset_with_retry(start, known, limit)
            except KafkaError as error:
                # Nothing new is an answer too: Spark asks again, and can end the query meanwhile. A query that begins fails.
                if known.is_start or not self._keeps_waiting(error):
                    raise
                if self._target is None:
                    return start
                continue  # to availableNow nothing new means that all is read
            self._on_answer()
            return latest

    def _latest_offset_with_retry(self, start: dict[str, Any], known: StreamOffset, limit: ReadLimit) -> dict[str, Any]:
        deadline = self.cluster.clock.now_ms() + self.options.missing_topic_ms
        while True:
            try:
                return self._latest_offset(start, known, limit)
            except UnknownTopic as error:
                if not self._tolerates_missing_topics or self.cluster.clock.now_ms() >= deadline:
                    raise DataLoss(f"{error}. {_MISSING_TOPIC_REMEDY}") from None
                # Deleted between two of the requests, or not yet known to all brokers: look at everything again.
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
            end = self._limited(begins, latest)
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
        """The ends now; partitions of a missing topic keep their position while it is waited for.

        An end that went back is looked at again; if it stays, `partitions` calls it data loss. Raises UnknownTopic, DataLoss.
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
        """Positions in topics that were read and do not exist, until missingTopicTimeout is over.

        After that they are left out with failOnDataLoss=false, or raise DataLoss. A recreated topic is recognised by its id.
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
                    "topic %s does not exist: waiting for it for %d s (missingTopicTimeout)", name, limit // 1000
                )
            if now - since < limit:
                self._missing_ms[name] = since
                kept |= {partition: offset for partition, offset in known.items() if partition.topic == name}
            elif self.options.fail_on_data_loss:
                raise DataLoss(
                    f"topic {name} was deleted and did not come back within {limit / 1000:g} s (missingTopicTimeout). "
                    "failOnDataLoss=false goes on without it"
                )
        for name in before.keys() & existing:
            logger.warning("topic %s is back", name)
        return kept

    def _may_have_new_records(self, positions: Positions) -> bool:
        """Return whether there may be new records, after a short wait for them."""
        try:
            existing = {part: offset for part, offset in positions.items() if part.topic not in self._missing_ms}
            return self.cluster.wait_for_records(existing, _WAIT_MS)
        except UnknownTopic:
            return True

    def _start_offsets(self, start: StreamOffset, end: Positions, ids: dict[str, bytes]) -> Positions:
        """Return the start offsets of a batch that goes on at `start`: new partitions and topics are read from their beginning.

        Raises DataLoss for a recreated topic, and for a new partition whose first records are gone already.
        """
        recreated = [name for name, topic_id in ids.items() if start.topic_ids.get(name, topic_id) != topic_id]
        kept = {partition: offset for partition, offset in start.positions.items() if partition.topic not in recreated}
        if recreated and not self.options.restarts_recreated:
            if self.options.fail_on_data_loss:
                was, now = (uuid_text(ids_by_name[recreated[0]]) for ids_by_name in (start.topic_ids, ids))
                raise DataLoss(
                    f"topic {recreated[0]} was deleted and created again (its id was {was} and is {now}). onTopicRecreated=restart "
                    "reads the new one from its beginning, failOnDataLoss=false goes on at the same offset"
                )
            kept = dict(start.positions)
        new = [partition for partition in end if partition not in kept]
        earliest = self._earliest(new, end)
        lost = [partition for partition, offset in earliest.items() if offset > 0 and partition.topic not in recreated]
        if lost and self.options.fail_on_data_loss and not start.is_start:
            raise DataLoss(
                f"{lost[0]} is new and begins at offset {earliest[lost[0]]} instead of 0: some of it was gone before it "
                "was read. failOnDataLoss=false goes on with what is left"
            )
        return kept | earliest

    def _earliest(self, new: list[TopicPartition], end: Positions) -> Positions:
        """Beginnings of new partitions; their `end` in a topic that was deleted meanwhile, of which nothing can be read."""
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
        """Return whether there is too little for a batch, after a short wait (minOffsetsPerTrigger, maxTriggerDelay)."""
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

    def _limited(self, begins: Positions, latest: Positions) -> Positions:
        """Return the end offsets of a batch: `latest`, limited by maxOffsetsPerTrigger and maxBytesPerTrigger."""
        end = latest
        if self.options.max_bytes:
            behind = {partition: begins[partition] for partition in end if begins[partition] < end[partition]}
            sizes = self.cluster.bytes_per_offset(behind, _SAMPLE_BYTES)
            end = limited_by_bytes(begins, end, sizes, self.options.max_bytes)
        return limited(begins, end, self.options.max_offsets) if self.options.max_offsets else end

    # -- batches --

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        until = stream_offset(end)
        known = stream_offset(start)
        if until.begins is not None:
            known = known._replace(positions=until.begins, topic_ids=until.topic_ids)
        begins = self._start_offsets_with_retry(known, until)
        pieces, lost = ranges(begins, until.positions)
        if lost and self.options.fail_on_data_loss:
            raise DataLoss(f"{'; '.join(lost)}. failOnDataLoss=false goes on with what is left")
        return self.tasks(pieces, until.topic_ids)

    def _start_offsets_with_retry(self, known: StreamOffset, until: StreamOffset) -> Positions:
        """As `_start_offsets`; a batch that is planned waits for brokers."""
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
        """Spark has committed a batch; it says so when it plans the one after the next."""
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
