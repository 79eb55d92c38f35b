"""End of transactions: EndTxn, the transaction timeout, producer fencing; and the markers that follow.

    1  decided    a Prepare record, the decision, is written. It is committed before it is visible to any client
    2  Markers    are written to every partition; the runtime sends them once 1 is committed, and again after a restart
    3  completed  a Complete record is written when all partitions have their marker

From transaction.version 2 on each transaction ends with a new epoch, which its markers carry: partitions then reject requests
of the old epoch that are still in flight (KIP-890). EndTxn 5 returns the new epoch to the client; a client that repeats the
request with the old epoch gets the same response.
"""

from typing import Final

from ottla.coordinators.runtime import Millis, Result, Timer, operation
from ottla.coordinators.transactions.state import Markers, Transactions
from ottla.coordinators.transactions.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LAST_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    VERSION_WITH_EPOCH_BUMP,
    Transaction,
    record_of,
    tombstone_of,
)
from ottla.protocol import errors
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_FIRST_WITH_EPOCH_BUMP: Final = 5
"""First version of EndTxn for transaction.version 2."""
_MOST_AT_ONCE: Final = 500
"""Maximum number of records in a batch that a timer writes."""


def refuse_end(request: EndTxnRequest, code: int) -> EndTxnResponse:  # noqa: ARG001
    """Return an error response."""
    return EndTxnResponse(error_code=code)


def _check_id(request: EndTxnRequest) -> int:
    return errors.NONE if request.transactional_id else errors.INVALID_REQUEST


@operation(refuse_end, check=_check_id)
def end_transaction(state: Transactions, request: EndTxnRequest, now: Millis) -> Result:
    """Commit or abort a transaction. Source: TransactionCoordinator.endTransaction."""
    transaction = state.transactions.get(request.transactional_id)
    bumps = request.context.version >= _FIRST_WITH_EPOCH_BUMP
    if transaction is None:
        code: int | None = errors.INVALID_PRODUCER_ID_MAPPING
    elif bumps:
        code = _error_with_bump(transaction, request)
    else:
        code = _error_of(transaction, request)
    if code is not None:
        answer = refuse_end(request, code)
        if code == errors.NONE and transaction is not None:
            answer = EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.epoch)
        return Result(answers=[(request, answer)])
    assert transaction is not None
    result = write_decision(state, transaction, now, commit=request.committed, bumps=bumps)
    (record,) = result.records
    value = record.value
    producer_id, epoch = value.producer_id, value.producer_epoch  # type: ignore[union-attr]
    if value.next_producer_id != NO_PRODUCER_ID:  # type: ignore[union-attr]
        producer_id, epoch = value.next_producer_id, 0  # type: ignore[union-attr]
    response = EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
    return result._replace(answers=[(request, response)])


def _error_of(transaction: Transaction, request: EndTxnRequest) -> int | None:
    """Return the error code for a client before transaction.version 2; None if the transaction may end."""
    if transaction.producer_id != request.producer_id:
        return errors.INVALID_PRODUCER_ID_MAPPING
    if transaction.epoch != request.producer_epoch:
        return errors.PRODUCER_FENCED
    if transaction.state == ONGOING:
        return None
    return _error_without_transaction(transaction, request)


def _error_with_bump(transaction: Transaction, request: EndTxnRequest) -> int | None:
    """Return the error code for a client of transaction.version 2; None if the transaction may end."""
    if transaction.state in PREPARED:
        return errors.CONCURRENT_TRANSACTIONS
    overflowed = (
        transaction.previous_producer_id == request.producer_id
        and request.producer_epoch == LAST_EPOCH
        and transaction.epoch == 0
    )
    if transaction.producer_id != request.producer_id and not overflowed:
        return errors.INVALID_PRODUCER_ID_MAPPING
    current = transaction.epoch == request.producer_epoch and not overflowed
    if transaction.state == ONGOING:
        return None if current else errors.PRODUCER_FENCED
    ended = transaction.state != EMPTY  # the epoch before may be that of a repeated request
    repeated = ended and (overflowed or transaction.epoch == request.producer_epoch + 1)
    if not current and not repeated:
        return errors.PRODUCER_FENCED
    if repeated:
        return _error_without_transaction(transaction, request)
    # Without a transaction an abort succeeds, and raises the epoch as well; a commit is an error.
    return errors.INVALID_TXN_STATE if request.committed else None


def _error_without_transaction(transaction: Transaction, request: EndTxnRequest) -> int:
    """Return the error code without an ongoing transaction: NONE if the last one ended as requested."""
    ended = COMPLETE_COMMIT if request.committed else COMPLETE_ABORT
    ending = PREPARE_COMMIT if request.committed else PREPARE_ABORT
    if transaction.state == ended:
        return errors.NONE
    return errors.CONCURRENT_TRANSACTIONS if transaction.state == ending else errors.INVALID_TXN_STATE


def write_decision(
    state: Transactions,
    transaction: Transaction,
    now: Millis,
    *,
    commit: bool,
    bumps: bool = False,
    fences: bool = False,
) -> Result:
    """Write the decision to end `transaction`.

    bumps   True if the client uses transaction.version 2 at the end of the transaction, whatever it used at the start
    fences  True if the producer did not request the end: the epoch is raised in every version, so that it cannot continue
    """
    version = state.version() if fences else VERSION_WITH_EPOCH_BUMP if bumps else 0
    has_epoch = bumps or (fences and version >= VERSION_WITH_EPOCH_BUMP)
    epoch = transaction.epoch
    next_producer_id = state.new_producer_id() if has_epoch and transaction.is_exhausted else NO_PRODUCER_ID
    record = record_of(
        transaction,
        state.record_version,
        now,
        transaction_status=PREPARE_COMMIT if commit else PREPARE_ABORT,
        producer_epoch=epoch + 1 if has_epoch or fences else epoch,
        next_producer_id=next_producer_id if state.record_version else NO_PRODUCER_ID,
        transaction_start_timestamp_ms=transaction.started_ms if transaction.state == ONGOING else now,
        client_transaction_version=version,
    )
    transactional_id = transaction.transactional_id

    def tell(state: Transactions, now: Millis) -> Result:  # noqa: ARG001
        prepared = state.transactions[transactional_id]
        if has_epoch:
            prepared.last_epoch = epoch
        elif fences:
            prepared.last_epoch = -1
        prepared.version = version  # records of version 0 have no such field
        prepared.next_producer_id = next_producer_id
        return Result(outgoing=[markers_of(prepared)])

    return Result(records=[record], then=tell)


def markers_of(transaction: Transaction) -> Markers:
    """Return the markers for the partitions of a transaction whose end is decided."""
    return Markers(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.epoch,
        transaction.state == PREPARE_COMMIT,
        frozenset(transaction.partitions),
        transaction.version >= VERSION_WITH_EPOCH_BUMP,
        transaction.started_ms,
    )


def _refuse_completion(markers: Markers, code: int) -> int:  # noqa: ARG001
    return code


@operation(_refuse_completion)
def complete_transaction(state: Transactions, markers: Markers, now: Millis) -> Result:
    """Complete a transaction whose partitions all have their marker. The answer is an error code."""
    transaction = state.transactions.get(markers.transactional_id)
    if transaction is None or transaction.state not in PREPARED or markers_of(transaction) != markers:
        return Result(answers=[(markers, errors.INVALID_TXN_STATE)])  # completed before, and sent again by a restart
    rotates = transaction.next_producer_id != NO_PRODUCER_ID
    record = record_of(
        transaction,
        state.record_version,
        now,
        partitions=(),
        transaction_status=COMPLETE_COMMIT if markers.commit else COMPLETE_ABORT,
        producer_id=transaction.next_producer_id if rotates else transaction.producer_id,
        previous_producer_id=transaction.producer_id if rotates else transaction.previous_producer_id,
        producer_epoch=0 if rotates else transaction.epoch,
    )
    return Result(records=[record], answers=[(markers, errors.NONE)])


def abort_timed_out(state: Transactions, now: Millis) -> Result:
    """Abort transactions that are open for longer than their timeout; runs periodically."""
    late = [
        transaction
        for transaction in map(state.transactions.__getitem__, sorted(state.ongoing))
        if transaction.started_ms + transaction.timeout_ms < now
    ]
    results = [
        write_decision(state, transaction, now, commit=False, fences=True) for transaction in late[:_MOST_AT_ONCE]
    ]

    def tell(state: Transactions, now: Millis) -> Result:
        outcomes = [result.then(state, now) for result in results if result.then is not None]
        return Result(outgoing=[message for outcome in outcomes for message in outcome.outgoing])

    records = [record for result in results for record in result.records]
    again = [Timer(abort_timed_out, (), 1 if len(late) > len(results) else state.settings.abort_interval_ms)]
    # A failed append changes nothing: the next run aborts the same transactions.
    later = [Timer(abort_timed_out, (), state.settings.abort_interval_ms)]
    return Result(records, timers=again, then=tell, refused=lambda state, code, now: Result(timers=later))  # noqa: ARG005


def remove_expired(state: Transactions, now: Millis) -> Result:
    """Remove transactional ids that were unused for transactional.id.expiration.ms."""
    idle = [
        tombstone_of(transaction.transactional_id)
        for transaction in state.transactions.values()
        if transaction.state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
        and transaction.updated_ms + state.settings.expiration_ms <= now
    ]
    delay_ms = state.settings.removal_interval_ms if len(idle) <= _MOST_AT_ONCE else 1
    again = [Timer(remove_expired, (), delay_ms)]
    return Result(idle[:_MOST_AT_ONCE], timers=again, refused=lambda state, code, now: Result(timers=again))  # noqa: ARG005
