"""DescribeConfigs: the configs of topics, brokers, groups and client-metrics subscriptions, and the sources of their values.

Authorization
    topic, group, cluster: DESCRIBE_CONFIGS   TOPIC_, GROUP_, CLUSTER_AUTHORIZATION_FAILED; these resources come last

Behaviour
    keys null or empty         all configs of the resource; keys without a config are left out
    unknown topic              UNKNOWN_TOPIC_OR_PARTITION; illegal name INVALID_TOPIC_EXCEPTION
    broker                     "": configs set for all brokers; this node's id: its own; other ids INVALID_REQUEST
    broker logger              the levels of this broker's loggers
    passwords                  null
    an unknown type            INVALID_REQUEST for every resource of the request
    success                    an empty error message, not a null one, as Kafka 4.4 answers

Versions
    1  sources and synonyms instead of is_default
    3  types and documentation, when asked for
"""

from collections.abc import Iterable
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import config_denial
from ottla.metadata.configs import TYPE_IDS, Config, ConfigSource, group_configs, topic_configs
from ottla.metadata.configs.alteration import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from ottla.metadata.configs.descriptions import (
    Described,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_resource,
)
from ottla.metadata.configs.effects import LISTENER_PREFIX
from ottla.metadata.plans.topics import check_name
from ottla.metadata.refusal import Refused
from ottla.observability import logs
from ottla.protocol.errors import INVALID_REQUEST, NONE, UNKNOWN_TOPIC_OR_PARTITION, error
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.security.operations import AclOperation

_TYPES: Final = frozenset((TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP))


@handles(DescribeConfigsRequest, rows="resources.configuration_keys")
async def describe_configs(request: DescribeConfigsRequest, broker: Broker) -> DescribeConfigsResponse:
    results = []
    if any(resource.resource_type not in _TYPES for resource in request.resources):
        message = error(INVALID_REQUEST).message
        return DescribeConfigsResponse(
            results=[_result(resource, INVALID_REQUEST, message, []) for resource in request.resources]
        )
    denied = []
    for resource in request.resources:
        await broker.tasks.pace()
        code = config_denial(
            request.context, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
        )
        if code != NONE:
            denied.append(_result(resource, code, error(code).message, []))
            continue
        try:
            described = list(_describe(resource, broker))
        except Refused as refused:
            results.append(_result(resource, refused.code, refused.message or "", []))
            continue
        keys = set(resource.configuration_keys or ())
        configs = [_config(entry, request) for entry in described if not keys or entry.config.name in keys]
        results.append(_result(resource, NONE, "", configs))
    return DescribeConfigsResponse(results=results + denied)


def _describe(resource: DescribeConfigsResource, broker: Broker) -> Iterable[Described]:
    """Return the configs of a resource. Raises Refused."""
    name = resource.resource_name
    match resource.resource_type:
        case kind if kind == TOPIC:
            check_name(name)
            topic = broker.image.topics.get(name)
            if topic is None:
                raise Refused(UNKNOWN_TOPIC_OR_PARTITION, "")
            return describe_resource(topic_configs(topic.configs, broker.config))
        case kind if kind == BROKER:
            if name == "":
                return describe_broker_defaults(broker.config)
            if not name.removeprefix("-").isdecimal():
                raise Refused(INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
            if int(name) != broker.node_id:
                raise Refused(
                    INVALID_REQUEST,
                    f"Unexpected broker id, expected {broker.node_id} or empty string, but received {name}",
                )
            return describe_broker(broker.config)
        case kind if kind == BROKER_LOGGER:
            _check_logger_node(name, broker.node_id)
            return [_logger(*item) for item in logs.levels().items()]
        case kind if kind == GROUP:
            if not name:
                raise Refused(INVALID_REQUEST, "Group name must not be empty")
            return describe_resource(group_configs(broker.image.configs_of(GROUP, name), broker.config))
        case kind if kind == CLIENT_METRICS:
            if not name:
                raise Refused(INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return describe_client_metrics(broker.image.configs_of(CLIENT_METRICS, name))
        case _:
            raise Refused(INVALID_REQUEST, error(INVALID_REQUEST).message)


def _check_logger_node(name: str, own: int) -> None:
    if not name:
        raise Refused(INVALID_REQUEST, "Broker id must not be empty")
    if not name.removeprefix("-").isdecimal():
        raise Refused(INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != own:
        raise Refused(INVALID_REQUEST, f"Unexpected broker id, expected {own} but received {name}")


def _logger(name: str, level: str) -> Described:
    row = Config("", name, "", None, "", "", ())
    return Described(row, level, ConfigSource.DYNAMIC_BROKER_LOGGER, [])


def _config(described: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    config = described.config
    synonyms = described.synonyms if request.include_synonyms else []
    return DescribeConfigsResourceResult(
        name=config.name,
        value=described.text,
        read_only=config.read_only,
        is_default=described.is_default if request.context.version == 0 else False,
        config_source=described.source,
        is_sensitive=config.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.text, source=synonym.source) for synonym in synonyms
        ],
        config_type=TYPE_IDS.get(config.type, 0),  # a logger has no type
        documentation=_documentation(config) if request.include_documentation else None,
    )


def _documentation(config: Config) -> str | None:
    """Return the documentation of a config; None for one of a listener, and for an unknown one, as in Kafka."""
    if config.is_unknown or config.name.startswith(LISTENER_PREFIX):
        return None
    from ottla.metadata.configs.docs import documentation

    return documentation(config.scope, config.name) if config.scope else ""


def _result(
    resource: DescribeConfigsResource, code: int, message: str, configs: list[DescribeConfigsResourceResult]
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )
