"""IncrementalAlterConfigs: change single configs of topics, brokers, loggers, groups, client-metrics subscriptions (KIP-339).

Authorization
    topic, group, cluster: ALTER_CONFIGS   TOPIC_, GROUP_, CLUSTER_AUTHORIZATION_FAILED

Behaviour
    set, delete, append, subtract   lists only for the last two; a topic's list begins with the value in force
    a config twice, a null value    INVALID_REQUEST for the resource; a resource twice: for each of them
    one bad config                  the resource stays unchanged; other resources are altered
    a broker's fixed configs        INVALID_REQUEST "Cannot update these configs dynamically"; unknown ones are stored unchecked
    loggers                         levels of this process, lost at a restart
    validate only                   everything is checked, nothing changes
"""

from ottla.broker.broker import Broker
from ottla.broker.requests.alterations import Alteration, ConfigAlterations, Outcome
from ottla.broker.requests.dispatch import handles
from ottla.metadata.configs.alteration import Edit
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@handles(IncrementalAlterConfigsRequest, rows="resources.configs", is_whole=True)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, broker: Broker
) -> IncrementalAlterConfigsResponse:
    requested = []
    for resource in request.resources:
        await broker.tasks.pace()
        edits = [Edit(config.name, config.config_operation, config.value) for config in resource.configs]
        requested.append(Alteration(resource.resource_type, resource.resource_name, edits, replaces=False))
    alterations = ConfigAlterations(
        broker.metadata, lambda: broker.config, broker.node_id, broker.config_checks, broker.config_preparations
    )
    return _response(await alterations.alter(requested, request.context, validate_only=request.validate_only))


def _response(outcomes: list[Outcome]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(error_code=code, error_message=message, resource_type=kind, resource_name=name)
            for kind, name, code, message in outcomes
        ]
    )
