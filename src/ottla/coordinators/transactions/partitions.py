"""Partitions of a transaction: added before the first batch, or verified by the broker that leads the partition.

A client before transaction.version 2 adds partitions itself (AddPartitionsToTxn, AddOffsetsToTxn), and the broker that gets a
first batch verifies that it did (KIP-890 part 1). From version 2 on the broker adds the partition itself (part 2).
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.coordinators.runtime import Millis, Result, operation
from ottla.coordinators.transactions.state import Transactions
from ottla.coordinators.transactions.transaction import ONGOING, PREPARED, TopicPartition, Transaction, record_of
from ottla.protocol import errors

Codes = Mapping[TopicPartition, int]


class PartitionsOf(NamedTuple):
    """Request about partitions of a producer's transaction.

    version  transaction.version that the client uses
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    version: int = 0


def _refuse(request: PartitionsOf, code: int) -> Codes:
    return dict.fromkeys(request.partitions, code)


def _check_id(request: PartitionsOf) -> int:
    return errors.NONE if request.transactional_id else errors.INVALID_REQUEST


@operation(_refuse, check=_check_id)
def add_partitions(state: Transactions, request: PartitionsOf, now: Millis) -> Result:
    """Add partitions to the transaction, which begins if it has not begun. The answer is an error code for each partition.
    Source: TransactionCoordinator.handleAddPartitionsToTransaction.
    """
    transaction = state.transactions.get(request.transactional_id)
    if transaction is not None and transaction.state in PREPARED:
        # Before the producer is checked: the request may have the id that follows the end of this transaction (KIP-890).
        return Result(answers=[(request, _refuse(request, errors.CONCURRENT_TRANSACTIONS))])
    code = _error_of(transaction, request)
    if code != errors.NONE or transaction is None:
        return Result(answers=[(request, _refuse(request, code))])
    begins = transaction.state != ONGOING
    if not begins and request.partitions <= transaction.partitions:
        return Result(answers=[(request, _refuse(request, errors.NONE))])
    record = record_of(
        transaction,
        state.record_version,
        now,
        partitions=request.partitions if begins else request.partitions | transaction.partitions,
        transaction_status=ONGOING,
        transaction_start_timestamp_ms=now if begins else transaction.started_ms,
        client_transaction_version=request.version,
    )
    answers = [(request, _refuse(request, errors.NONE))]
    return Result(records=[record], answers=answers)


@operation(_refuse, check=_check_id)
def verify_partitions(state: Transactions, request: PartitionsOf, now: Millis) -> Result:  # noqa: ARG001
    """Verify that the partitions belong to the transaction: TRANSACTION_ABORTABLE for one that does not."""
    transaction = state.transactions.get(request.transactional_id)
    code = _error_of(transaction, request)
    if transaction is not None and code == errors.NONE and transaction.state in PREPARED:
        code = errors.CONCURRENT_TRANSACTIONS
    if code != errors.NONE or transaction is None:
        return Result(answers=[(request, _refuse(request, code))])
    codes = {
        partition: errors.NONE if partition in transaction.partitions else errors.TRANSACTION_ABORTABLE
        for partition in request.partitions
    }
    return Result(answers=[(request, codes)])


def _error_of(transaction: Transaction | None, request: PartitionsOf) -> int:
    """Return the error code for a producer that is not the one of the transaction."""
    if transaction is None or transaction.producer_id != request.producer_id:
        return errors.INVALID_PRODUCER_ID_MAPPING
    return errors.NONE if transaction.epoch == request.producer_epoch else errors.PRODUCER_FENCED
