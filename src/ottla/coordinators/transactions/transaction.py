"""One transactional id: its producer, the state of its transaction, and the record of both.

    Empty ---------------> Ongoing ----> PrepareCommit ----> CompleteCommit
      ^                      |    \\                               |
      |                      |     +---> PrepareAbort -----> CompleteAbort
      +----------------------+------------------------------------+
        InitProducerId                     the next transaction begins from either Complete

Prepare is the decision: once its record is committed the transaction ends that way, even after a crash. Complete means that
every partition has its marker. `last_epoch`, by which a retried request is recognized, is in memory only.
"""

from collections.abc import Iterable
from typing import Final

from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis
from ottla.protocol.messages.transaction_log_record import PartitionsSchema, TransactionLogKey, TransactionLogValue

EMPTY: Final = 0
ONGOING: Final = 1
PREPARE_COMMIT: Final = 2
PREPARE_ABORT: Final = 3
COMPLETE_COMMIT: Final = 4
COMPLETE_ABORT: Final = 5
STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""Names of the states in Kafka; the last two are never in a record."""
PREPARED: Final = frozenset((PREPARE_COMMIT, PREPARE_ABORT))
NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 32766
"""The last epoch assigned to a producer; 32767 is reserved for fencing it."""
VERSION_WITH_EPOCH_BUMP: Final = 2
"""From this transaction.version on each transaction has an epoch of its own (KIP-890)."""

TopicPartition = tuple[str, int]


class Transaction:
    """Coordinator state of one transactional id.

    previous_producer_id  the producer id that `producer_id` took over from when epochs ran out, -1 for none
    next_producer_id      the producer id that takes over when the transaction is complete, -1 for none
    last_epoch            the previous epoch, which the client may still name; -1 if it is not known
    started_ms            start of the transaction, -1 before the first one
    version               transaction.version that the client uses
    """

    __slots__ = (
        "epoch",
        "last_epoch",
        "next_producer_id",
        "partitions",
        "previous_producer_id",
        "producer_id",
        "started_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "updated_ms",
        "version",
    )

    def __init__(self, transactional_id: str, value: TransactionLogValue) -> None:
        self.transactional_id = transactional_id
        self.last_epoch = NO_EPOCH
        self.take(value)

    def take(self, value: TransactionLogValue) -> None:
        """Apply the value of a record."""
        self.producer_id = value.producer_id
        self.previous_producer_id = value.previous_producer_id
        self.next_producer_id = value.next_producer_id
        self.epoch = value.producer_epoch
        self.timeout_ms = value.transaction_timeout_ms
        self.state = value.transaction_status
        self.partitions: set[TopicPartition] = {
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        }
        self.updated_ms = value.transaction_last_update_timestamp_ms
        self.started_ms = value.transaction_start_timestamp_ms
        self.version = value.client_transaction_version

    @property
    def is_exhausted(self) -> bool:
        """True if no further epoch is left for this producer id."""
        return self.epoch >= LAST_EPOCH


def record_of(
    transaction: Transaction,
    version: int,
    now: Millis,
    *,
    partitions: Iterable[TopicPartition] | None = None,
    **changes: int,
) -> CoordinatorRecord:
    """Return the record of the next state of `transaction`.

    version     version of the value: 1 if transaction.version is at least 1
    partitions  the next partitions, None for the current ones
    changes     changed fields of TransactionLogValue
    """
    fields: dict[str, int] = {
        "producer_id": transaction.producer_id,
        "previous_producer_id": transaction.previous_producer_id,
        "next_producer_id": NO_PRODUCER_ID,
        "producer_epoch": transaction.epoch,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_status": transaction.state,
        "transaction_last_update_timestamp_ms": now,
        "transaction_start_timestamp_ms": transaction.started_ms,
        "client_transaction_version": transaction.version,
        **changes,
    }
    if version == 0:
        for name in ("previous_producer_id", "next_producer_id", "client_transaction_version"):
            del fields[name]
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions if partitions is None else partitions):
        topics.setdefault(topic, []).append(index)
    listed = [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
    value = TransactionLogValue(
        transaction_partitions=None if fields["transaction_status"] == EMPTY else listed,
        **fields,
    )
    return CoordinatorRecord(TransactionLogKey(transactional_id=transaction.transactional_id), value, version)


def tombstone_of(transactional_id: str) -> CoordinatorRecord:
    """Return the tombstone of a transactional id."""
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)
