"""ListTransactions: the transactional ids of this coordinator (KIP-664).

Authorization
    transactional id: DESCRIBE   other transactions are left out

Behaviour
    filters by state, producer id, duration and pattern; all of them must hold
    states that do not exist   listed in the answer; case counts
    duration                   since the transaction began; an id without any transaction matches every duration
    a pattern                  of the whole id, in RE2's syntax (KIP-1152); an invalid one: INVALID_REGULAR_EXPRESSION
    a partition is loading     COORDINATOR_LOAD_IN_PROGRESS

Versions
    1  duration (KIP-994)
    2  pattern
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_transactional_id
from ottla.coordinators.transactions.transaction import STATES, Transaction
from ottla.protocol.errors import COORDINATOR_LOAD_IN_PROGRESS, INVALID_REGULAR_EXPRESSION
from ottla.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from ottla.regexes import InvalidRegex, compiled
from ottla.security.operations import AclOperation


@handles(ListTransactionsRequest, response_rows="transaction_states")
async def list_transactions(request: ListTransactionsRequest, broker: Broker) -> ListTransactionsResponse:
    runtime = broker.coordination.transactions
    if runtime.is_loading:
        return ListTransactionsResponse(error_code=COORDINATOR_LOAD_IN_PROGRESS)
    pattern = request.transactional_id_pattern
    try:
        expression = compiled(pattern or "")
    except InvalidRegex:
        return ListTransactionsResponse(error_code=INVALID_REGULAR_EXPRESSION)
    unknown = [state for state in request.state_filters if state not in STATES]
    states = set(request.state_filters) - set(unknown)
    producer_ids = set(request.producer_id_filters)
    now = broker.clock.wall_ms()

    def is_wanted(transaction: Transaction) -> bool:
        if request.state_filters and STATES[transaction.state] not in states:
            return False
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        if request.duration_filter >= 0 and now - transaction.started_ms <= request.duration_filter:
            return False
        if pattern and not expression.fullmatch(transaction.transactional_id):
            return False
        return may_use_transactional_id(
            request.context, AclOperation.DESCRIBE, transaction.transactional_id, is_logged=False
        )

    transactions = []
    for state in list(runtime.states()):
        for transaction in list(state.transactions.values()):
            await broker.tasks.pace()
            if is_wanted(transaction):
                transactions.append(
                    TransactionState(
                        transactional_id=transaction.transactional_id,
                        producer_id=transaction.producer_id,
                        transaction_state=STATES[transaction.state],
                    )
                )
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=transactions)
