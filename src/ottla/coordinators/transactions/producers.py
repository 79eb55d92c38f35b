"""InitProducerId with a transactional id: a producer id and an epoch that fence the id's previous producer (KIP-98, KIP-360).

    a new transactional id   a new producer id, epoch 0
    no transaction open      the next epoch; after the last one a new producer id
    a transaction open       it is aborted under a fencing epoch, and the client must retry: CONCURRENT_TRANSACTIONS
    its end is decided       CONCURRENT_TRANSACTIONS

A client that recovers from an error names its producer id and epoch: with the current epoch it gets the next one; with the
previous epoch, as in a repeated request, it gets the current one; with any other epoch PRODUCER_FENCED.
"""

from typing import Final, NamedTuple

from ottla.coordinators.runtime import Millis, Result, operation
from ottla.coordinators.transactions.ending import write_decision
from ottla.coordinators.transactions.state import Transactions
from ottla.coordinators.transactions.transaction import (
    EMPTY,
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARED,
    Transaction,
    record_of,
)
from ottla.protocol import errors
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.transaction_log_record import TransactionLogValue

_TWO_PHASE_TIMEOUT_MS: Final = 0x7FFFFFFF


class _Next(NamedTuple):
    """Next producer id and epoch of the client, and the previous epoch, which a repeated request may still name."""

    producer_id: int
    epoch: int
    last_epoch: int


def refuse_init(request: InitProducerIdRequest, code: int) -> InitProducerIdResponse:  # noqa: ARG001
    """Return an error response."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


@operation(refuse_init)
def init_producer_id(state: Transactions, request: InitProducerIdRequest, now: Millis) -> Result:
    """Assign a producer id and an epoch to the transactional id. Source: TransactionCoordinator.handleInitProducerId."""
    assert request.transactional_id is not None
    timeout_ms = _TWO_PHASE_TIMEOUT_MS if request.enable2_pc else request.transaction_timeout_ms
    transaction = state.transactions.get(request.transactional_id)
    if transaction is None:
        transaction = _fresh(request.transactional_id, state.new_producer_id(), timeout_ms)
    elif transaction.state in PREPARED:
        return Result(answers=[(request, refuse_init(request, errors.CONCURRENT_TRANSACTIONS))])
    if not _may_go_on(transaction, request):
        return Result(answers=[(request, refuse_init(request, errors.PRODUCER_FENCED))])
    if transaction.state == ONGOING:
        answer = refuse_init(request, errors.CONCURRENT_TRANSACTIONS)
        return write_decision(state, transaction, now, commit=False, fences=True)._replace(answers=[(request, answer)])
    following = _next(state, transaction, request)
    if following is None:
        return Result(answers=[(request, refuse_init(request, errors.PRODUCER_FENCED))])
    rotates = following.producer_id != transaction.producer_id
    record = record_of(
        transaction,
        state.record_version,
        now,
        partitions=(),
        transaction_status=EMPTY,
        producer_id=following.producer_id,
        previous_producer_id=transaction.producer_id if rotates else transaction.previous_producer_id,
        producer_epoch=following.epoch,
        transaction_timeout_ms=timeout_ms,
        transaction_start_timestamp_ms=-1,
    )
    response = InitProducerIdResponse(producer_id=following.producer_id, producer_epoch=following.epoch)
    transactional_id, last_epoch = request.transactional_id, following.last_epoch

    def remember(state: Transactions, now: Millis) -> Result:  # noqa: ARG001
        state.transactions[transactional_id].last_epoch = last_epoch
        return Result()

    return Result(records=[record], answers=[(request, response)], then=remember)


def _fresh(transactional_id: str, producer_id: int, timeout_ms: int) -> Transaction:
    value = TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=NO_EPOCH,
        transaction_timeout_ms=timeout_ms,
        transaction_status=EMPTY,
        transaction_partitions=None,
        transaction_start_timestamp_ms=-1,
    )
    return Transaction(transactional_id, value)


def _may_go_on(transaction: Transaction, request: InitProducerIdRequest) -> bool:
    """Return whether the client may continue: it names no producer id, the current one, or an exhausted previous one."""
    named = request.producer_id
    if named == NO_PRODUCER_ID or transaction.epoch == NO_EPOCH or named == transaction.producer_id:
        return True
    return named == transaction.previous_producer_id and request.producer_epoch >= LAST_EPOCH


def _next(state: Transactions, transaction: Transaction, request: InitProducerIdRequest) -> _Next | None:
    """Return the next producer id and epoch; None to fence the client."""
    named = request.producer_epoch if request.producer_id != NO_PRODUCER_ID else None
    current = transaction.epoch
    if transaction.is_exhausted and (named is None or named == current):
        return _Next(state.new_producer_id(), 0, NO_EPOCH if named is None else current)
    following = current + 1
    if named is None:
        return _Next(transaction.producer_id, following, NO_EPOCH)
    if current == NO_EPOCH or named == current:
        return _Next(transaction.producer_id, following, current)
    if named == transaction.last_epoch:
        return _Next(transaction.producer_id, current, transaction.last_epoch)
    return None
