"""Stream of the records of a share group (KIP-932): shareGroup=NAME.

A share session is bound to one connection, but Spark's workers are short-lived. Therefore the driver is the member of the
group: it acquires records and puts their offsets into the end offset of the batch; executors read them with ordinary fetches,
and the driver accepts them once Spark has committed the batch.

    driver     poll: 40-49 acquired ... RENEW ... RENEW ... | batch is committed: ACCEPT   | or the query ends: RELEASE
    executors                 read 40-44, read 45-49

Spark kills the driver's Python process when a query ends, so the member cannot leave; its id is in the checkpoint, and the next
run continues as that member. While a batch is running, its acquisition locks are renewed (KIP-1222) every third of their
duration. Delivery is at least once: a batch that is run again after a driver crash reads the same records, and the group
delivers them again later.
"""

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from ottla.client.blocking import ShareConsumer
from ottla.client.errors import KafkaError, RequestTimedOut
from ottla.client.share.delivery import AcknowledgeType
from ottla.client.topics import EARLIEST, TopicPartition
from ottla.records.record import Record
from ottla.spark.offsets import OffsetRange, Positions
from ottla.spark.options import SourceOptions
from ottla.spark.reading import TopicReader
from ottla.spark.stream_offset import AcquiredRanges, StreamOffset, stream_offset

logger = logging.getLogger("ottla.spark")

_WAIT_S: Final = 0.1
# availableNow: timeout for empty polls while the group has a backlog; partitions are assigned with a heartbeat.
_EMPTY_GROUP_TIMEOUT_MS: Final = 15_000
_CLOSE_TIMEOUT_S: Final = 5.0


class ShareGroupBatch:
    """Acquired records of one batch; a thread renews their locks until they are acknowledged.

    turn  number of the batch
    """

    def __init__(self, member: ShareConsumer, records: list[Record], turn: int) -> None:
        self.turn = turn
        self._member = member
        self._records = records
        self._settled = threading.Event()
        self._lock = threading.Lock()
        lock_ms = member.acquisition_lock_timeout_ms()
        self._renew_interval_s = (lock_ms or 30_000) / 3000
        self._renewing = threading.Thread(target=self._renew, name="ottla-renew", daemon=True)
        self._renewing.start()

    def _renew(self) -> None:
        while not self._settled.wait(self._renew_interval_s):
            with self._lock:
                if self._settled.is_set():
                    return
                try:
                    self._acknowledge(AcknowledgeType.RENEW)
                except KafkaError as error:
                    logger.warning("share group: renewal of acquisition locks failed: %s", error)
                    return

    def _acknowledge(self, kind: AcknowledgeType) -> None:
        """Acknowledge all records. On an error the group delivers them again (at least once). Raises IllegalState."""
        for record in self._records:
            self._member.acknowledge(record, kind)
        try:
            answers = self._member.commit()
        except RequestTimedOut as late:
            logger.warning("share group: %s: %s; the records may be delivered again", kind.name, late)
            return
        for partition, error in answers.items():
            if error is not None:
                logger.warning(
                    "share group: %s of %s: %s; its records may be delivered again", kind.name, partition, error
                )

    def settle(self, kind: AcknowledgeType) -> None:
        """Stop the renewal and acknowledge all records with `kind`. Raises IllegalState."""
        self._settled.set()
        with self._lock:
            self._acknowledge(kind)
        self._renewing.join()


def _partition_of(record: Record) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def ranges_of(records: Iterable[Record]) -> AcquiredRanges:
    """Return the offsets of records as ranges of consecutive offsets (inclusive)."""
    acquired: AcquiredRanges = {}
    for record in records:
        ranges = acquired.setdefault(_partition_of(record), [])
        if ranges and ranges[-1][1] + 1 == record.offset:
            ranges[-1] = ranges[-1][0], record.offset
        else:
            ranges.append((record.offset, record.offset))
    return acquired


class OttlaShareReader(TopicReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream of the records of a share group."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._member: ShareConsumer | None = None
        self._batch: ShareGroupBatch | None = None
        self._target: Positions | None = None
        self._member_id: str | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  (Spark's name)
        self.current_partitions()  # raises UnknownTopic for a missing topic
        return StreamOffset({}, {}, is_start=True).json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self.ends(self.current_partitions())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        del limit  # the member's max.poll.records is maxOffsetsPerTrigger
        known = stream_offset(start)
        self._accept_batch(known)
        self._member_id = self._member_id or known.member
        records = self._acquire()
        if not records and not known.is_start:
            return start
        turn = known.turn + 1
        if records:
            self._batch = ShareGroupBatch(self._open_member(), records, turn)
        acquired = ranges_of(records)
        ends = {partition: ranges[-1][1] + 1 for partition, ranges in acquired.items()}
        ids = self.topic_ids(acquired)
        return StreamOffset(ends, ids, acquired=acquired, turn=turn, member=self._member_id).json()

    def _open_member(self) -> ShareConsumer:
        if self._member is None:
            self._member = ShareConsumer(self.options.share_consumer_config(), member_id=self._member_id)
            self._member_id = self._member.member_id
            self._member.subscribe(self.options.topics or [])
        return self._member

    def _acquire(self) -> list[Record]:
        """Acquire records from the group; with availableNow, wait for records before the target."""
        member = self._open_member()
        records = member.poll(_WAIT_S)
        if self._target is None:
            return records
        clock = self.cluster.clock
        until = clock.now_ms() + _EMPTY_GROUP_TIMEOUT_MS
        while not records and not self._has_reached(self._target) and clock.now_ms() < until:
            records = member.poll(_WAIT_S)
        if records and all(record.offset >= self._target.get(_partition_of(record), 0) for record in records):
            # All of them arrived after this run began: leave them to the next run.
            records = []
        if not records:
            self.stop()  # Spark does not announce the end of the query: release the unacknowledged records now
        return records

    def _has_reached(self, target: Positions) -> bool:
        """Return whether the group has processed all records before the target."""
        earliest = self.ends(target, EARLIEST)
        filled = [partition for partition, end in target.items() if end > earliest[partition]]
        offsets = self.cluster.share_group_offsets(self.options.share_group or "", filled)
        return all(
            partition in offsets
            and (offsets[partition].lag == 0 or (offsets[partition].start_offset or 0) >= target[partition])
            for partition in filled
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        del start
        until = stream_offset(end)
        pieces = [
            OffsetRange(partition, first, last + 1)
            for partition, ranges in (until.acquired or {}).items()
            for first, last in ranges
        ]
        return self.tasks(pieces, until.topic_ids)

    def commit(self, end: dict[str, Any]) -> None:
        """Accept the records of a batch that Spark has committed."""
        self._accept_batch(stream_offset(end))

    def _accept_batch(self, offset: StreamOffset) -> None:
        """Accept the records of the batch that ends here: Spark has committed it once it requests the next offset."""
        if self._batch is not None and self._batch.turn == offset.turn:
            batch, self._batch = self._batch, None
            batch.settle(AcknowledgeType.ACCEPT)

    def stop(self) -> None:
        """Release the records of an uncommitted batch and leave the group."""
        if self._batch is not None:
            batch, self._batch = self._batch, None
            batch.settle(AcknowledgeType.RELEASE)
        if self._member is not None:
            self._member.close(_CLOSE_TIMEOUT_S)
            self._member = None
