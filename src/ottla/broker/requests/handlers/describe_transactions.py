"""DescribeTransactions: the coordinator's state of transactional ids (KIP-664).

Authorization
    transactional id: DESCRIBE   TRANSACTIONAL_ID_AUTHORIZATION_FAILED, alike for unknown ids
    topic: DESCRIBE              other topics are left out

Behaviour
    an empty id      INVALID_REQUEST
    an unknown one   TRANSACTIONAL_ID_NOT_FOUND
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_topic, may_use_transactional_id
from ottla.coordinators.transactions.state import Transactions
from ottla.coordinators.transactions.transaction import STATES
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    INVALID_REQUEST,
    NONE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_NOT_FOUND,
)
from ottla.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer


@handles(DescribeTransactionsRequest, rows="transactional_ids")
def describe_transactions(request: DescribeTransactionsRequest, broker: Broker) -> Answer[DescribeTransactionsResponse]:
    return DescribeTransactionsResponse(
        transaction_states=[
            _describe(transactional_id, broker, request.context) for transactional_id in request.transactional_ids
        ]
    )


def _describe(transactional_id: str, broker: Broker, context: RequestContext) -> TransactionState:
    if not may_use_transactional_id(context, AclOperation.DESCRIBE, transactional_id):
        code = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return TransactionState(error_code=code, transactional_id=transactional_id)
    if not transactional_id:
        return TransactionState(error_code=INVALID_REQUEST, transactional_id=transactional_id)
    runtime = broker.coordination.transactions
    partition = runtime.partition_of(transactional_id)
    code = runtime.availability(partition)
    state: Transactions | None = runtime.state_of(partition)
    transaction = None if state is None else state.transactions.get(transactional_id)
    if code == NONE and transaction is None:
        code = TRANSACTIONAL_ID_NOT_FOUND
    if transaction is None:
        return TransactionState(error_code=code, transactional_id=transactional_id)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        if may_use_topic(context, AclOperation.DESCRIBE, topic, is_logged=False):
            topics.setdefault(topic, []).append(index)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=STATES[transaction.state],
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
