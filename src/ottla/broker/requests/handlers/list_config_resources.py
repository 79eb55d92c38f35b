"""ListConfigResources: resources that have, or can have, configs (KIP-1142; version 0 is ListClientMetricsResources).

Authorization
    cluster: DESCRIBE_CONFIGS   CLUSTER_AUTHORIZATION_FAILED

Behaviour
    topics, brokers, loggers      all of them
    groups, client metrics        those that have configs of their own
    an unknown type               UNSUPPORTED_VERSION, and nothing else

Versions
    0  client-metrics subscriptions only
    1  types; an empty list means all
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.metadata.configs.alteration import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.protocol.errors import CLUSTER_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION
from ottla.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.security.operations import AclOperation


@handles(ListConfigResourcesRequest, response_rows="config_resources")
async def list_config_resources(request: ListConfigResourcesRequest, broker: Broker) -> ListConfigResourcesResponse:
    if not may_use_cluster(request.context, AclOperation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=CLUSTER_AUTHORIZATION_FAILED)
    image = broker.image
    nodes = [str(node) for node in image.registered]
    names = {
        GROUP: [name for kind, name in image.configs if kind == GROUP],
        CLIENT_METRICS: [name for kind, name in image.configs if kind == CLIENT_METRICS],
        BROKER_LOGGER: nodes,
        BROKER: nodes,
        TOPIC: list(image.topics),
    }
    kinds = set(request.resource_types) or set(names)
    if request.context.version == 0:
        kinds = {CLIENT_METRICS}
    if kinds - names.keys():
        return ListConfigResourcesResponse(error_code=UNSUPPORTED_VERSION)
    resources = []
    for kind in names:
        for name in names[kind] if kind in kinds else ():
            await broker.tasks.pace()
            resources.append(ConfigResource(resource_name=name, resource_type=kind))
    return ListConfigResourcesResponse(config_resources=resources)
