"""Partitions of a transaction: added before the first batch, or verified by the broker that leads the partition.

A client before transaction.version 2 adds partitions itself (AddPartitionsToTxn, AddOffsetsToTxn), and the broker that gets a
first batch verifies that it did (KIP-890 part 1). From version 2 on the broker adds the partition itself (part 2).
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.coordinators.runtime import Millis, Result, operation
from ottla.coordinators.transactions.state import Transactions
from ottla.coordinators.transactions.transaction import ONGOING, PREPARED, Partition, Transaction, record_of
from ottla.protocol import errors

Codes = Mapping[Partition, int]


class PartitionsOf(NamedTuple):
    """A transaction of a producer, and partitions of it.

    version  transaction.version as the client speaks it
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[Partition]
    version: int = 0


def _refuse(wanted: PartitionsOf, code: int) -> Codes:
    return dict.fromkeys(wanted.partitions, code)


def _check_id(wanted: PartitionsOf) -> int:
    return errors.NONE if wanted.transactional_id else errors.INVALID_REQUEST


@operation(_refuse, check=_check_id)
def add_partitions(state: Transactions, wanted: PartitionsOf, now: Millis) -> Result:
    """Add partitions to the transaction, which begins if it has not. The answer is a code for each of them.
    Source: TransactionCoordinator.handleAddPartitionsToTransaction.
    """
    transaction = state.transactions.get(wanted.transactional_id)
    code = _judge(transaction, wanted)
    if code != errors.NONE or transaction is None:
        return Result(answers=[(wanted, _refuse(wanted, code))])
    begins = transaction.state != ONGOING
    if not begins and wanted.partitions <= transaction.partitions:
        return Result(answers=[(wanted, _refuse(wanted, errors.NONE))])
    record = record_of(
        transaction,
        state.record_version,
        now,
        partitions=wanted.partitions if begins else wanted.partitions | transaction.partitions,
        transaction_status=ONGOING,
        transaction_start_timestamp_ms=now if begins else transaction.started_ms,
        client_transaction_version=wanted.version,
    )
    answers = [(wanted, _refuse(wanted, errors.NONE))]
    return Result(records=[record], answers=answers)


@operation(_refuse, check=_check_id)
def verify_partitions(state: Transactions, wanted: PartitionsOf, now: Millis) -> Result:  # noqa: ARG001
    """Verify that the partitions belong to the transaction: TRANSACTION_ABORTABLE for one that does not."""
    transaction = state.transactions.get(wanted.transactional_id)
    code = _judge(transaction, wanted)
    if code != errors.NONE or transaction is None:
        return Result(answers=[(wanted, _refuse(wanted, code))])
    codes = {
        partition: errors.NONE if partition in transaction.partitions else errors.TRANSACTION_ABORTABLE
        for partition in wanted.partitions
    }
    return Result(answers=[(wanted, codes)])


def _judge(transaction: Transaction | None, wanted: PartitionsOf) -> int:
    if transaction is None or transaction.producer_id != wanted.producer_id:
        return errors.INVALID_PRODUCER_ID_MAPPING
    if transaction.epoch != wanted.producer_epoch:
        return errors.PRODUCER_FENCED
    return errors.CONCURRENT_TRANSACTIONS if transaction.state in PREPARED else errors.NONE
