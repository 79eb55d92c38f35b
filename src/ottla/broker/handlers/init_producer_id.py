"""InitProducerId: a producer id for an idempotent producer.

Behaviour
    no transactional id    a new id, epoch 0; ids are given out once, even after a crash
    an id and epoch given  the same as none: without a transactional id nothing is known of them; only one of the two:
                           INVALID_REQUEST
    a transactional id     empty: INVALID_REQUEST; any other: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which clients take as
                           final, as long as this broker has no transaction coordinator

Versions
    2  flexible
    3  the producer's own id and epoch (KIP-360)
    5  TRANSACTION_ABORTABLE (KIP-890)
"""

from typing import TYPE_CHECKING

from ottla.broker.dispatch import handles
from ottla.protocol.answer import Answer
from ottla.protocol.errors import INVALID_REQUEST, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker


@handles(InitProducerIdRequest)
def init_producer_id(request: InitProducerIdRequest, broker: "Broker") -> Answer[InitProducerIdResponse]:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=INVALID_REQUEST, producer_id=-1, producer_epoch=-1)
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=broker.new_producer_id(), producer_epoch=0)
    code = TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else INVALID_REQUEST
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
