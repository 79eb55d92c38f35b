"""DescribeCluster: the cluster's id, its brokers and its controller (KIP-700).

Behaviour
    controllers requested    not available on a broker's listener: MISMATCHED_ENDPOINT_TYPE (KIP-919)
    other endpoint types     UNSUPPORTED_ENDPOINT_TYPE

Versions
    1  endpoint types
    2  fenced brokers, on request
"""

from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.protocol.errors import MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.security.operations import NOT_REQUESTED, AclResourceType, authorized_operations
from ottla.tasks.deferred import Answer

BROKERS: Final = 1
CONTROLLERS: Final = 2


@handles(DescribeClusterRequest)
def describe_cluster(request: DescribeClusterRequest, broker: Broker) -> Answer[DescribeClusterResponse]:
    asked = request.endpoint_type
    if asked == CONTROLLERS:
        text = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return DescribeClusterResponse(error_code=MISMATCHED_ENDPOINT_TYPE, error_message=text)
    if asked != BROKERS:
        text = f"Unsupported endpoint type {asked}"
        return DescribeClusterResponse(error_code=UNSUPPORTED_ENDPOINT_TYPE, error_message=text)
    image = broker.image
    nodes = image.registered if request.include_fenced_brokers else image.brokers
    return DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=broker.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=node.node_id,
                host=address[0],
                port=address[1],
                rack=node.rack,
                is_fenced=node.node_id not in image.brokers,
            )
            for node in nodes.values()
            if (address := broker.address_of(node, request.context)) is not None
        ],
        cluster_authorized_operations=authorized_operations(request.context, AclResourceType.CLUSTER)
        if request.include_cluster_authorized_operations
        else NOT_REQUESTED,
    )
