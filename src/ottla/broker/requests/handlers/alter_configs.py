"""AlterConfigs: replace all configs of a topic, broker, group or client-metrics subscription; the others are removed.

Authorization
    topic, group, cluster: ALTER_CONFIGS   TOPIC_, GROUP_, CLUSTER_AUTHORIZATION_FAILED

Behaviour
    as an IncrementalAlterConfigs (KIP-339) that sets every config
    loggers          INVALID_REQUEST: they cannot be replaced
    a resource twice INVALID_REQUEST for each; Kafka 4.4 never answers

Versions
    1  throttled
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.alterations import Alteration, ConfigAlterations, Outcome
from ottla.broker.requests.dispatch import handles
from ottla.metadata.configs.alteration import SET, Edit
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(AlterConfigsRequest, rows="resources.configs", is_whole=True)
async def alter_configs(request: AlterConfigsRequest, broker: Broker) -> AlterConfigsResponse:
    requested = []
    for resource in request.resources:
        await broker.tasks.pace()
        edits = [Edit(config.name, SET, config.value) for config in resource.configs]
        requested.append(Alteration(resource.resource_type, resource.resource_name, edits, replaces=True))
    alterations = ConfigAlterations(
        broker.metadata, lambda: broker.config, broker.node_id, broker.config_checks, broker.config_preparations
    )
    return _response(await alterations.alter(requested, request.context, validate_only=request.validate_only))


def _response(outcomes: list[Outcome]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error_code=code, error_message=message, resource_type=kind, resource_name=name)
            for kind, name, code, message in outcomes
        ]
    )
