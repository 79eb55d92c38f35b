"""UnregisterBroker: remove the registration of a broker that was taken away for good (KIP-500).

Authorization
    cluster: ALTER   CLUSTER_AUTHORIZATION_FAILED

Behaviour
    an unknown broker        BROKER_ID_NOT_REGISTERED
    a live broker            INVALID_REQUEST (Apache Kafka removes it, although it is running)
"""

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.broker.permission import may_use_cluster
from ottla.metadata.refusal import ChangeResult
from ottla.protocol.errors import BROKER_ID_NOT_REGISTERED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, error
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.security.operations import AclOperation
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer


@handles(UnregisterBrokerRequest, in_turn=True)
def unregister_broker(request: UnregisterBrokerRequest, broker: Broker) -> Answer[UnregisterBrokerResponse]:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        code = CLUSTER_AUTHORIZATION_FAILED
        return UnregisterBrokerResponse(error_code=code, error_message=error(code).message)
    node_id = request.broker_id
    if node_id not in broker.image.registered:
        text = f"Broker ID {node_id} is not currently registered"
        return UnregisterBrokerResponse(error_code=BROKER_ID_NOT_REGISTERED, error_message=text)
    if node_id in broker.image.brokers:
        text = f"Broker {node_id} is running: stop it before it is unregistered"
        return UnregisterBrokerResponse(error_code=INVALID_REQUEST, error_message=text)

    def response(change: ChangeResult) -> UnregisterBrokerResponse:
        return UnregisterBrokerResponse(error_code=change.error_code, error_message=change.error_message)

    return after(broker.metadata.unregister(node_id), response)
