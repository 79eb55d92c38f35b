"""InitProducerId: a producer id for an idempotent producer, or id and epoch for a transactional one (KIP-98, KIP-360).

Authorization
    transactional id: WRITE   TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    without one               IDEMPOTENT_WRITE on the cluster, else WRITE on any topic: CLUSTER_AUTHORIZATION_FAILED

Behaviour
    no transactional id    a new id, epoch 0; ids are assigned once, even after a crash
    an id and epoch        without a transactional id they are ignored, as no state is kept of them; only one of the two:
                           INVALID_REQUEST
    no id can be reserved  COORDINATOR_LOAD_IN_PROGRESS, as in Kafka: the metadata cannot be written now
    a transactional id     empty: INVALID_REQUEST; else decided by the coordinator (`coordinators/transactions/producers.py`)
    a timeout below 1 or above transaction.max.timeout.ms   INVALID_TRANSACTION_TIMEOUT

Versions
    2  flexible
    3  the producer's own id and epoch (KIP-360)
    4  PRODUCER_FENCED; before, INVALID_PRODUCER_EPOCH
    5  TRANSACTION_ABORTABLE (KIP-890)
"""

from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.config import BrokerConfig
from ottla.broker.coordination.verification import without_fenced
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster, may_use_transactional_id
from ottla.coordinators.transactions.producers import init_producer_id as operation
from ottla.coordinators.transactions.producers import refuse_init
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    NONE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.security.operations import AclOperation, AclResourceType
from ottla.tasks.deferred import awaitable

_FIRST_WITH_FENCED: Final = 4


@handles(InitProducerIdRequest)
async def init_producer_id(request: InitProducerIdRequest, broker: Broker) -> InitProducerIdResponse:
    code = _denial(request) or _check(request, broker.config)
    if code != NONE:
        return refuse_init(request, code)
    if not await awaitable(broker.producer_ids.reserve(), broker.tasks):
        return refuse_init(request, COORDINATOR_LOAD_IN_PROGRESS)
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=broker.producer_ids.take(), producer_epoch=0)
    answer = broker.coordination.transactions.run(request.transactional_id, operation, request)
    response = await awaitable(answer, broker.tasks)
    return response if request.context.version >= _FIRST_WITH_FENCED else without_fenced(response)


def _denial(request: InitProducerIdRequest) -> int:
    context = request.context
    if context.authorizer is None:
        return NONE
    if request.transactional_id is not None:
        is_allowed = may_use_transactional_id(context, AclOperation.WRITE, request.transactional_id)
        if is_allowed and request.enable2_pc:
            is_allowed = may_use_transactional_id(context, AclOperation.TWO_PHASE_COMMIT, request.transactional_id)
        return NONE if is_allowed else TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if may_use_cluster(context, AclOperation.IDEMPOTENT_WRITE, is_logged=False):
        return NONE
    is_allowed = context.authorizer.allows_any(context, AclOperation.WRITE, AclResourceType.TOPIC)
    return NONE if is_allowed else CLUSTER_AUTHORIZATION_FAILED


def _check(request: InitProducerIdRequest, config: BrokerConfig) -> int:
    """Return an error that does not depend on the coordinator: any broker returns it."""
    if (request.producer_id == -1) != (request.producer_epoch == -1) or request.transactional_id == "":
        return INVALID_REQUEST
    if request.transactional_id is None:
        return NONE
    if request.enable2_pc and not config.flag("transaction.two.phase.commit.enable"):
        return TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared_txn:
        return UNSUPPORTED_VERSION
    if not request.enable2_pc and not 0 < request.transaction_timeout_ms <= config.integer(
        "transaction.max.timeout.ms"
    ):
        return INVALID_TRANSACTION_TIMEOUT
    return NONE
