"""UnregisterBroker: remove the registration of a broker that was taken away for good (KIP-500).

Authorization
    cluster: ALTER   CLUSTER_AUTHORIZATION_FAILED

Behaviour
    an unknown broker        BROKER_ID_NOT_REGISTERED
    a live broker            INVALID_REQUEST (Apache Kafka removes it, although it is running)
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.metadata import changes
from ottla.metadata.image import Image
from ottla.metadata.refusal import Refused
from ottla.metadata.store import Change
from ottla.protocol.errors import BROKER_ID_NOT_REGISTERED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, error
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.security.operations import AclOperation


@handles(UnregisterBrokerRequest)
async def unregister_broker(request: UnregisterBrokerRequest, broker: Broker) -> UnregisterBrokerResponse:
    if not may_use_cluster(request.context, AclOperation.ALTER):
        code = CLUSTER_AUTHORIZATION_FAILED
        return UnregisterBrokerResponse(error_code=code, error_message=error(code).message)
    node_id = request.broker_id

    def plan(image: Image) -> Change:
        if node_id not in image.registered:
            raise Refused(BROKER_ID_NOT_REGISTERED, f"Broker ID {node_id} is not currently registered")
        if node_id in image.brokers:
            raise Refused(INVALID_REQUEST, f"Broker {node_id} is running: stop it before it is unregistered")
        return changes.unregister(image, node_id)

    code, message = await broker.metadata.result_of(plan)
    return UnregisterBrokerResponse(error_code=code, error_message=message)
