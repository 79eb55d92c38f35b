"""Effects of the exactly-once sink: tasks open transactions, the driver ends them. `publication.py` has the decisions.

    task     read the last decision; if it is about this batch, end its transactions
             InitProducerId: fences older attempts, and a driver that has yet to end their transactions
             fetch markers (require-stable) -> task_action
             begin, write rows, TxnOffsetCommit of the marker, leave the transaction open
    driver   write the decision, end every transaction                        (commit)
             or abort every transaction                                       (abort)

Ending a transaction bumps its producer's epoch (KIP-890), so every task creates its own producer. The decisions of all sinks
are in one compacted topic, keyed by sink; the last decision of a sink is located by reading backwards.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from ottla.client.blocking import Producer
from ottla.client.config import ClientConfig
from ottla.client.errors import FencedError, KafkaError, RequestTimedOut
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.topics import EARLIEST, LATEST, TopicPartition
from ottla.protocol import errors as table
from ottla.records import arrow
from ottla.records.columns import RowEncoder
from ottla.records.digest import digest_of
from ottla.records.partitioner import partition_of
from ottla.spark.cluster import ClusterClient
from ottla.spark.publication import (
    Decision,
    PublicationError,
    TaskAction,
    TaskMarker,
    TaskTransaction,
    check_batch,
    check_same,
    read_decision,
    read_marker,
    task_action,
)

MARKERS: Final = "ottla-sink-markers"
DECISIONS: Final = "ottla-sink-decisions"
_MARKER_PARTITIONS: Final = 32
_DECISION_PARTITIONS: Final = 8
_TAIL: Final = 32
_READ_MS: Final = 30_000
# Timeout for offsets of an ended transaction to become stable.
_STABLE_MS: Final = 5_000
# Timeout for a failing task to abort its transaction.
_ABORT_S: Final = 10.0
_NOTHING: Final = TaskMarker(-1)
# Errors of EndTxn when the transaction has already been ended, or was taken over by another producer.
_ENDED: Final = frozenset({table.INVALID_TXN_STATE, table.INVALID_PRODUCER_ID_MAPPING})


class TaskResult(WriterCommitMessage):
    """Commit message of a task.

    transaction  open transaction of the task; None for a sink without transactions
    sink         id of the sink; "" without transactions
    refusal      reason why the task wrote nothing: the driver raises it, instead of a failed task and its retries
    """

    def __init__(self, transaction: TaskTransaction | None = None, sink: str = "", refusal: str | None = None) -> None:
        self.transaction = transaction
        self.sink = sink
        self.refusal = refusal


class _TaskProducer(Producer):
    """Producer that exposes its identity: the driver ends its transaction."""

    @property
    def identity(self) -> tuple[int, int]:
        """Current producer id and epoch."""
        return self._call(lambda: self._producer.identity)


def transactional_id(sink: str, task: int) -> str:
    """Return the transactional.id of a task."""
    return f"ottla.{sink}.{task}"


def group_of(sink: str) -> str:
    """Return the id of the group whose committed offsets are the markers of a sink."""
    return f"ottla.{sink}"


def prepare(cluster: ClusterClient) -> None:
    """Create the topics of markers and decisions if they are missing. Raises KafkaError, also for brokers before 0.11."""
    cluster.check_transactions()
    cluster.ensure_topic(MARKERS, _MARKER_PARTITIONS, {})
    cluster.ensure_topic(DECISIONS, _DECISION_PARTITIONS, {"cleanup.policy": "compact"})


class TaskWriter:
    """Writer of one task of one batch.

    config  producer config, with the transactional.id of the task
    batch   None for a batch write: it is never run again, so it has no markers
    named   the option sinkId is set
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ClientConfig,
        topic: str | None,
        sink: str,
        batch: int | None,
        task: int,
        *,
        named: bool = False,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._topic = topic
        self._sink = sink
        self._batch = batch
        self._task = task
        self._named = named
        self._marker = _NOTHING

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        """Write the rows, unless they are published already. Raises PublicationError, KafkaError."""
        batch, task, sink = self._batch, self._task, self._sink
        decision = None
        if batch is not None:
            self._marker = TaskMarker(batch)
            decision = last_decision(self._cluster, sink)
            first = decision is None and batch > 0
            check_batch(sink, batch, decision, unknown=first and (self._named or self._has_markers()))
            if decision is not None and decision.batch == batch:
                end_all(self._cluster, sink, decision.transactions, commit=True, ignore_lost=True)
        with _TaskProducer(self._config) as producer:
            producer.init_transactions()
            if batch is None:
                return self._write_transaction(producer, batches)
            self._cluster.ensure_topic(MARKERS, task + 1, {})
            markers = self._markers({task}) | self._markers_of_others(decision)
            action = task_action(sink, batch, task, decision, markers)
            if action is TaskAction.WRITE:
                if task not in markers:
                    # With an initial marker in place, a missing marker means an expired one.
                    self._cluster.commit(group_of(sink), {_marker_partition(task): 0}, metadata=_NOTHING.text())
                return self._write_transaction(producer, self._with_digest(batches))
        if action is TaskAction.COMPARE:
            for _ in self._with_digest(batches):
                pass
            check_same(sink, batch, task, markers[task], self._marker)
        return TaskResult(TaskTransaction(task, -1, -1), sink)

    def _write_transaction(self, producer: _TaskProducer, batches: Iterator[pa.RecordBatch]) -> TaskResult:
        producer.begin_transaction()
        try:
            report = producer.produce_arrow(batches, self._topic)
            producer.flush()
            report.result()
            if self._batch is not None:
                marker = OffsetAndMetadata(self._batch, self._marker.text())
                group = GroupMetadata(group_of(self._sink))
                producer.send_offsets_to_transaction({_marker_partition(self._task): marker}, group)
        except BaseException:
            # Abort now: if the task is not retried, readers would be blocked until transaction.timeout.ms.
            with suppress(KafkaError):
                producer.abort_transaction(_ABORT_S)
            raise
        return TaskResult(TaskTransaction(self._task, *producer.identity), self._sink)

    def _with_digest(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the non-empty batches and add their rows and digest to the marker."""
        for batch in batches:
            if batch.num_rows:
                marker = self._marker
                digest = (marker.digest + batch_digest(batch, self._topic is None)) % 2**64
                self._marker = TaskMarker(marker.batch, marker.rows + batch.num_rows, digest)
                yield batch

    def _has_markers(self) -> bool:
        """Return whether any task of the sink has published a batch."""
        partitions = self._cluster.partitions(MARKERS)
        offsets = self._cluster.committed(group_of(self._sink), partitions, stable=False)
        return any(read_marker(offset.metadata) != _NOTHING for offset in offsets.values())

    def _markers_of_others(self, decision: Decision | None) -> dict[int, TaskMarker]:
        """Return the markers of the other tasks if the decision is about this batch.

        Empty while the transaction of one of them is open: that task has to write again.
        """
        if decision is None or decision.batch != self._batch:
            return {}
        try:
            return self._markers(decision.tasks - {self._task}, _STABLE_MS)
        except RequestTimedOut:
            return {}

    def _markers(self, tasks: set[int], timeout_ms: int | None = None) -> dict[int, TaskMarker]:
        offsets = self._cluster.committed(
            group_of(self._sink), [_marker_partition(task) for task in sorted(tasks)], timeout_ms
        )
        return {partition.partition: read_marker(offset.metadata) for partition, offset in offsets.items()}


def _marker_partition(task: int) -> TopicPartition:
    return TopicPartition(MARKERS, task)


def batch_digest(batch: pa.RecordBatch, with_topics: bool) -> int:
    """Return the digest of the rows of an Arrow batch, including topic and partition if the rows have these columns."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    timestamp: pa.Array | int = 0
    if "timestamp" in columns:
        timestamp = pc.fill_null(arrow.milliseconds(columns["timestamp"]), 0)
    digest = digest_of(
        RowEncoder(arrow.rows_of(columns["value"], columns.get("key"), columns.get("headers"), timestamp))
    )
    named = [columns[name].cast(pa.string()) for name in ("topic", "partition") if name in columns]
    if with_topics and named:
        places = named[0] if len(named) == 1 else pc.binary_join_element_wise(*named, "/", null_handling="replace")
        digest += digest_of(RowEncoder(arrow.rows_of(places, None, None, 0)))
    return digest


# -- the driver --


def publish(
    cluster: ClusterClient, producer: Producer, sink: str, batch: int | None, transactions: list[TaskTransaction]
) -> None:
    """Write the decision about a complete batch and commit its transactions. Raises PublicationError, KafkaError.

    transactions  those of all tasks; empty for a batch without tasks
    producer      writes the decision; not transactional
    """
    unpublished = [transaction for transaction in transactions if transaction.producer_id >= 0]
    if transactions and not unpublished:
        return
    if batch is not None:
        decision = Decision(batch, sorted(transactions))
        where = partition_of(sink.encode(), len(cluster.topic(DECISIONS).leaders))
        producer.send(DECISIONS, decision.text(), sink, where).result()
    end_all(cluster, sink, unpublished, commit=True, ignore_lost=False)


def end_all(
    cluster: ClusterClient, sink: str, transactions: list[TaskTransaction], *, commit: bool, ignore_lost: bool
) -> None:
    """End all transactions of a batch that can be ended.

    ignore_lost  accept transactions that were ended already or taken over by another producer

    Raises PublicationError for the first lost transaction unless `ignore_lost`, KafkaError if brokers cannot be reached.
    """
    lost: PublicationError | None = None
    for transaction in transactions:
        if transaction.producer_id < 0:
            continue
        name = transactional_id(sink, transaction.task)
        try:
            cluster.end_transaction(name, transaction.producer_id, transaction.epoch, commit=commit)
        except KafkaError as error:
            if not isinstance(error, FencedError) and error.code not in _ENDED:
                raise
            lost = lost or PublicationError(
                f"transaction {name} was ended by another client before its batch was complete ({error}): the batch took "
                "longer than kafka.transaction.timeout.ms, or another run of this query has taken over. Restart the query "
                "to write the batch again"
            )
    if lost is not None and not ignore_lost:
        raise lost


def abort_batch(cluster: ClusterClient, sink: str, batch: int | None, transactions: list[TaskTransaction]) -> None:
    """Abort the transactions of a failed batch, unless there is a decision about it: then the next run commits them."""
    if batch is not None:
        decision = last_decision(cluster, sink)
        if decision is not None and decision.batch >= batch:
            return
    end_all(cluster, sink, transactions, commit=False, ignore_lost=True)


def last_decision(cluster: ClusterClient, sink: str) -> Decision | None:
    """Read the newest decision of a sink; None without one."""
    key = sink.encode()
    partition = TopicPartition(DECISIONS, partition_of(key, len(cluster.topic(DECISIONS).leaders)))
    end = cluster.list_offsets({partition: LATEST}, committed=False)[partition].offset
    begin = cluster.list_offsets({partition: EARLIEST})[partition].offset
    size = _TAIL
    limit: int = max(_READ_MS, cluster.config["default.api.timeout.ms"])
    while end > begin:
        start = max(begin, end - size)
        newest: Decision | None = None
        for chunk in cluster.read(partition, start, end, timeout_ms=limit):
            for record in chunk.records():
                if record.key == key and record.offset < end and record.value is not None:
                    decision = read_decision(record.value)
                    # A superseded driver may have appended an older decision late: the highest batch wins.
                    newest = decision if newest is None or decision.batch >= newest.batch else newest
        if newest is not None:
            return newest
        end, size = start, size * 8
    return None
