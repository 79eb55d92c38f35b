"""State of one partition of __transaction_state: its transactional ids."""

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.coordinators.decoding import record_decoder
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import Millis
from ottla.coordinators.transactions.transaction import ONGOING, TopicPartition, Transaction
from ottla.metadata.configs import BrokerValues
from ottla.protocol.messages.transaction_log_record import TransactionLogKey, TransactionLogValue


class TransactionSettings(NamedTuple):
    """Broker configs of the transaction coordinator; times in ms."""

    abort_interval_ms: Millis
    expiration_ms: Millis
    removal_interval_ms: Millis
    verifies_partitions: bool

    @classmethod
    def of(cls, values: BrokerValues) -> "TransactionSettings":
        """Return the settings in a broker's configs."""
        return cls(
            abort_interval_ms=values.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            expiration_ms=values.integer("transactional.id.expiration.ms"),
            removal_interval_ms=values.integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
            verifies_partitions=values.flag("transaction.partition.verification.enable"),
        )


class Markers(NamedTuple):
    """Outgoing message of the runtime: markers for the partitions of a transaction whose end is decided.

    new_epoch   True if the markers have an epoch of their own (transaction.version 2)
    started_ms  start of the transaction, which distinguishes it from another one of the same epoch
    """

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    new_epoch: bool
    started_ms: Millis


class Transactions:
    """Transactional ids of one partition of __transaction_state; only replay changes `transactions`.

    version          returns the finalized level of transaction.version
    new_producer_id  returns a producer id that was never used
    ongoing          the ids whose transaction is open, changed by replay only
    """

    __slots__ = ("new_producer_id", "ongoing", "settings", "transactions", "version")

    def __init__(
        self, settings: TransactionSettings, version: Callable[[], int], new_producer_id: Callable[[], int]
    ) -> None:
        self.settings = settings
        self.version = version
        self.new_producer_id = new_producer_id
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: set[str] = set()

    @property
    def record_version(self) -> int:
        """Version of the records written now."""
        return min(1, self.version())

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record."""
        key, value = record.key, record.value
        assert isinstance(key, TransactionLogKey)
        transaction = self.transactions.get(key.transactional_id)
        if value is None:
            self.transactions.pop(key.transactional_id, None)
            self.ongoing.discard(key.transactional_id)
            return
        assert isinstance(value, TransactionLogValue)
        if value.transaction_status == ONGOING:
            self.ongoing.add(key.transactional_id)
        else:
            self.ongoing.discard(key.transactional_id)
        if transaction is None:
            self.transactions[key.transactional_id] = Transaction(key.transactional_id, value)
        else:
            transaction.take(value)

    def replay_pending(self, record: CoordinatorRecord, producer_id: int) -> None:  # noqa: ARG002
        """Apply the record at once: no transaction of the broker writes into this topic, but another client may."""
        self.replay(record)

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        """Ignore the marker: no state depends on it."""


decode_record: Final = record_decoder({TransactionLogKey.API: (TransactionLogKey, TransactionLogValue)})
