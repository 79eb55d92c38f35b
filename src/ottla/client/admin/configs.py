"""Configs of topics, brokers, loggers, groups and client-metrics subscriptions: read, changed, listed."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from ottla.arguments import checked_tuple
from ottla.client.admin.requests import Requests, refusal
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError, Permission, UnsupportedVersion, error_for
from ottla.protocol.errors import NONE, UNSUPPORTED_VERSION
from ottla.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig as IncrementalConfig,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as IncrementalResourceResponse,
)
from ottla.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest

V = TypeVar("V")


class ResourceType(IntEnum):
    """Type of a resource that has configs."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Source of a config value."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigType(IntEnum):
    """Type of a config value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigOperation(IntEnum):
    """Operation on a config; APPEND and SUBTRACT change lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@checked_tuple
class ConfigResource(NamedTuple):
    """Resource with configs. The name of a broker is its node id; "" is the default of all brokers."""

    type: ResourceType
    name: str


class ConfigSynonym(NamedTuple):
    """Value of a config at one source; the first synonym is in effect, the next ones would apply without it."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """Config with its value and source. The value is None if the config is sensitive or unset."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """True if the value is the default."""
        return self.source == ConfigSource.DEFAULT_CONFIG


@checked_tuple
class ConfigChange(NamedTuple):
    """A change of one config; `value` is None for DELETE."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


_OF_ONE_NODE: Final = frozenset({ResourceType.BROKER, ResourceType.BROKER_LOGGER})


class Configs(Requests):
    """Requests about configs. Those of one broker go to that broker, all others to any broker."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        """Describe the configs of each resource by name: these `names`, or all."""
        config_names = None if names is None else list(names)

        async def ask(
            node: int | None, its: list[ConfigResource]
        ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.type, resource_name=resource.name, configuration_keys=config_names
                    )
                    for resource in its
                ]
            )
            link = await (self.metadata.any_link() if node is None else self.node_link(node))
            version = link.version(DescribeConfigsRequest)
            request.include_synonyms = include_synonyms and version >= 1
            request.include_documentation = include_documentation and version >= 3
            answer = await link.request(request, version)
            outcomes: dict[ConfigResource, dict[str, ConfigEntry] | KafkaError] = {}
            for row in answer.results:
                resource = ConfigResource(ResourceType(row.resource_type), row.resource_name)
                error = refusal(
                    row.error_code, f"describe {_text_of(resource)}", row.error_message, _permission(resource)
                )
                outcomes[resource] = error or {config.name: _entry(config, resource, version) for config in row.configs}
            return outcomes

        return await self._by_node("describe configs", resources, ask, timeout)

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Replace all configs of each resource: configs that are not listed are reset to their defaults.

        For brokers before Kafka 2.3; `incremental_alter_configs` changes only the listed configs.
        """

        async def ask(node: int | None, its: list[ConfigResource]) -> dict[ConfigResource, KafkaError | None]:
            request = AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[AlterableConfig(name=name, value=text) for name, text in configs[resource].items()],
                    )
                    for resource in its
                ],
                validate_only=validate_only,
            )
            answer = await (self.metadata.ask(-1, request) if node is None else self.on_node(node, request))
            return _alteration_outcomes(answer.responses)

        return await self._by_node("alter configs", configs, ask, timeout)

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> Results[ConfigResource, None]:
        """Change some configs of each resource (KIP-339; since Kafka 2.3)."""
        changes_of = {resource: list(its) for resource, its in changes.items()}

        async def ask(node: int | None, its: list[ConfigResource]) -> dict[ConfigResource, KafkaError | None]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            IncrementalConfig(name=change.name, config_operation=change.operation, value=change.value)
                            for change in changes_of[resource]
                        ],
                    )
                    for resource in its
                ],
                validate_only=validate_only,
            )
            answer = await (self.metadata.ask(-1, request) if node is None else self.on_node(node, request))
            return _alteration_outcomes(answer.responses)

        return await self._by_node("alter configs", changes_of, ask, timeout)

    async def list_config_resources(
        self, types: Iterable[ResourceType] = (), *, timeout: float | None = None
    ) -> list[ConfigResource]:
        """List the resources with configs, of these types or (empty) of all types (KIP-1142; client metrics since Kafka 3.7,
        the others since 4.1)."""
        requested = list(types)

        async def attempt() -> list[ConfigResource]:
            link = await self.metadata.any_link()
            version = link.version(ListConfigResourcesRequest)
            if version == 0 and requested != [ResourceType.CLIENT_METRICS]:
                raise UnsupportedVersion(f"{link} lists client-metrics resources alone", UNSUPPORTED_VERSION)
            request = ListConfigResourcesRequest(resource_types=list(requested) if version >= 1 else [])
            answer = await link.request(request, version)
            if answer.error_code != NONE:
                raise error_for(
                    answer.error_code, "list config resources", None, Permission("DescribeConfigs", "cluster")
                )
            return [
                ConfigResource(ResourceType(row.resource_type), row.resource_name) for row in answer.config_resources
            ]

        return await self.metadata.retrying("list config resources", attempt, self.limit_ms(timeout))

    async def _by_node(
        self,
        about: str,
        resources: Iterable[ConfigResource],
        ask: Callable[[int | None, list[ConfigResource]], Awaitable[dict[ConfigResource, V | KafkaError]]],
        timeout: float | None,
    ) -> Results[ConfigResource, V]:
        async def one(node: int | None, its: list[ConfigResource]) -> dict[ConfigResource, V | KafkaError]:
            try:
                return await ask(node, its)
            except KafkaError as error:
                return dict.fromkeys(its, error)

        async def round_of(left: list[ConfigResource]) -> dict[ConfigResource, V | KafkaError]:
            by_node: dict[int | None, list[ConfigResource]] = {}
            for resource in left:
                its_own = resource.type in _OF_ONE_NODE and resource.name.isdecimal()
                by_node.setdefault(int(resource.name) if its_own else None, []).append(resource)
            outcomes: dict[ConfigResource, V | KafkaError] = {}
            for answer in await self.side_by_side([one(node, its) for node, its in by_node.items()]):
                outcomes |= answer
            return outcomes

        return await self.repeating(about, resources, round_of, timeout)


def _text_of(resource: ConfigResource) -> str:
    """Format the type and name of a resource for an error message."""
    return f"configs of {resource.type.name.lower().replace('_', ' ')} {resource.name or '(default)'}"


def _alteration_outcomes(
    rows: Iterable[AlterConfigsResourceResponse | IncrementalResourceResponse],
) -> dict[ConfigResource, KafkaError | None]:
    outcomes: dict[ConfigResource, KafkaError | None] = {}
    for row in rows:
        resource = ConfigResource(ResourceType(row.resource_type), row.resource_name)
        outcomes[resource] = refusal(
            row.error_code, f"alter {_text_of(resource)}", row.error_message, _permission(resource, "AlterConfigs")
        )
    return outcomes


def _entry(row: DescribeConfigsResourceResult, resource: ConfigResource, version: int) -> ConfigEntry:
    if version == 0:  # version 0 returns only whether the value is the default
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG
        if resource.type == ResourceType.BROKER:
            own = ConfigSource.STATIC_BROKER_CONFIG
        source = ConfigSource.DEFAULT_CONFIG if row.is_default else own
    else:
        source = _source(row.config_source)
    kind = ConfigType(row.config_type) if row.config_type in _TYPES else ConfigType.UNKNOWN
    return ConfigEntry(
        row.name,
        row.value,
        source,
        row.read_only,
        row.is_sensitive,
        tuple(ConfigSynonym(synonym.name, synonym.value, _source(synonym.source)) for synonym in row.synonyms),
        kind,
        row.documentation,
    )


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in _SOURCES else ConfigSource.UNKNOWN


_SOURCES: Final = frozenset(map(int, ConfigSource))
_TYPES: Final = frozenset(map(int, ConfigType))


def _permission(resource: ConfigResource, operation: str = "DescribeConfigs") -> Permission:
    if resource.type in (ResourceType.TOPIC, ResourceType.GROUP):
        return Permission(operation, resource.type.name.lower(), (resource.name,))
    return Permission(operation, "cluster")
