"""EndTxn: commit or abort a transaction.

Authorization
    transactional id: WRITE   TRANSACTIONAL_ID_AUTHORIZATION_FAILED

Behaviour
    answered when the end is decided   the markers follow; until they are written, the next request of the same transactional
                                       id may get CONCURRENT_TRANSACTIONS
    the same end again                 success, with the same epoch
    an empty transactional id          INVALID_REQUEST; an unknown one, or another producer id: INVALID_PRODUCER_ID_MAPPING
    another epoch                      PRODUCER_FENCED
    nothing to commit                  INVALID_TXN_STATE

Versions
    2  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
    4  TRANSACTION_ABORTABLE (KIP-890)
    5  each transaction has its own epoch; the answer holds the next one. An abort without a transaction succeeds
"""

from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.coordination.verification import without_fenced
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_transactional_id
from ottla.coordinators.transactions.ending import end_transaction
from ottla.protocol.errors import TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import awaitable

_FIRST_WITH_FENCED: Final = 2


@handles(EndTxnRequest)
async def end_txn(request: EndTxnRequest, broker: Broker) -> EndTxnResponse:
    if not may_use_transactional_id(request.context, AclOperation.WRITE, request.transactional_id):
        return EndTxnResponse(error_code=TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    answer = broker.coordination.transactions.run(request.transactional_id, end_transaction, request)
    response = await awaitable(answer, broker.tasks)
    return response if request.context.version >= _FIRST_WITH_FENCED else without_fenced(response)
