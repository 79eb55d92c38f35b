"""Requests about configs."""

import functools
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from ottla.client.admin import configs as client_configs
from ottla.client.admin.results import Results
from ottla.compat.librdkafka.admin.requests import Requests, distinct, every, limit, require
from ottla.compat.librdkafka.enums import AlterConfigOpType, ConfigSource, ResourceType
from ottla.compat.librdkafka.errors import exception

_TYPES: Final = {
    ResourceType.TOPIC: client_configs.ResourceType.TOPIC,
    ResourceType.GROUP: client_configs.ResourceType.GROUP,
    ResourceType.BROKER: client_configs.ResourceType.BROKER,
}


@dataclass(eq=False, repr=False)
class ConfigEntry:
    """Config with its value; of a resource that is described, or changed.

    source                 number of a ConfigSource
    synonyms               the same config at other sources, by name
    incremental_operation  change of the config
    """

    name: str
    value: str | None
    source: Any = ConfigSource.UNKNOWN_CONFIG
    is_read_only: bool = False
    is_default: bool = False
    is_sensitive: bool = False
    is_synonym: bool = False
    synonyms: dict[str, "ConfigEntry"] = field(default_factory=dict)
    incremental_operation: AlterConfigOpType | None = None

    def __post_init__(self) -> None:
        for name in ("is_read_only", "is_default", "is_sensitive", "is_synonym"):
            setattr(self, name, bool(getattr(self, name)))

    def __repr__(self) -> str:
        return f"ConfigEntry({self})"

    def __str__(self) -> str:
        return f'{self.name}="{self.value}"'


@functools.total_ordering
class ConfigResource:
    """Resource with configs; of a broker, the name is its id.

    set_config           configs for `alter_configs`
    incremental_configs  changes for `incremental_alter_configs`

    Equality, order and hash are those of type and name.
    """

    Type: ClassVar = ResourceType

    def __init__(
        self,
        restype: ResourceType | str | int,
        name: str,
        set_config: dict[str, str] | None = None,
        described_configs: dict[str, ConfigEntry] | None = None,
        error: Any = None,
        incremental_configs: list[ConfigEntry] | None = None,
    ) -> None:
        require(name is not None, ValueError, "Expected resource name to be a string")
        if isinstance(restype, str):
            known = restype.upper() in ResourceType.__members__
            require(known, ValueError, f'Unknown resource type "{restype}": should be a ConfigResource.Type')
            restype = ResourceType[restype.upper()]
        self.restype = ResourceType(restype) if isinstance(restype, int) else restype
        self.restype_int = int(self.restype.value)
        self.name = name
        self.set_config_dict = dict(set_config or {})
        self.incremental_configs = list(incremental_configs or [])
        self.configs = described_configs
        self.error = error

    def set_config(self, name: str, value: str, overwrite: bool = True) -> None:
        """Set a config for `alter_configs`, unless it is set and not to be overwritten."""
        if overwrite or name not in self.set_config_dict:
            self.set_config_dict[name] = value

    def add_incremental_config(self, config_entry: ConfigEntry) -> None:
        """Add a change for `incremental_alter_configs`."""
        self.incremental_configs.append(config_entry)

    def __len__(self) -> int:
        return len(self.set_config_dict)

    def __repr__(self) -> str:
        error = "" if self.error is None else f",{self.error!r}"
        return f"ConfigResource({self.restype},{self.name}{error})"

    def __hash__(self) -> int:
        return hash((self.restype, self.name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfigResource):
            return NotImplemented
        return (self.restype, self.name) == (other.restype, other.name)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, ConfigResource):
            return NotImplemented
        return self.restype < other.restype or self.name < other.name


def _name(resource: ConfigResource) -> client_configs.ConfigResource:
    """Return the client's name of a resource. Raises KafkaException (_INVALID_ARG)."""
    text = f"ConfigResource(type={resource.restype.name}, name={resource.name})"
    if resource.restype not in _TYPES:
        raise exception("_INVALID_ARG", f"{text} has no configs")
    if resource.restype is ResourceType.BROKER and not resource.name.isdecimal():
        raise exception("_INVALID_ARG", f"Expected an int32 broker_id for {text}")
    return client_configs.ConfigResource(_TYPES[resource.restype], resource.name)


def _resources(values: Any, error: type[Exception]) -> list[ConfigResource]:
    resources = every(values, ConfigResource, error)
    require(resources, ValueError, "Expected non-empty list of ConfigResource objects")
    return resources


def _check_brokers(resources: Iterable[ConfigResource]) -> None:
    """Raise KafkaException (_CONFLICT) for two brokers: librdkafka sends a request to one."""
    if sum(resource.restype is ResourceType.BROKER for resource in resources) > 1:
        raise exception("_CONFLICT", "Only one ConfigResource of type BROKER is allowed per call")


def _entries(configs: dict[str, client_configs.ConfigEntry]) -> dict[str, ConfigEntry]:
    return {name: _entry(row) for name, row in configs.items()}


def _entry(row: client_configs.ConfigEntry) -> ConfigEntry:
    synonyms = {
        synonym.name: ConfigEntry(synonym.name, synonym.value, int(synonym.source), is_synonym=True)
        for synonym in row.synonyms
    }
    source = int(row.source)
    return ConfigEntry(
        row.name, row.value, source, row.is_read_only, row.is_default, row.is_sensitive, synonyms=synonyms
    )


def _check_change(index: int, entry: ConfigEntry) -> None:
    """Raise TypeError for what is no change."""
    reason = f"expected ConfigEntry type in incremental_configs field, index {index}"
    require(isinstance(entry, ConfigEntry), TypeError, reason)
    operation = entry.incremental_operation
    require(operation is not None, TypeError, "Required attribute .value missing")
    if operation is not AlterConfigOpType.DELETE:
        reason = f"Expected .value to be str type, not {type(entry.value).__name__}"
        require(isinstance(entry.value, str), TypeError, reason)


def _changes(resource: ConfigResource) -> list[client_configs.ConfigChange]:
    """Return the changes of a resource. Raises KafkaException (_INVALID_ARG) for two of one config."""
    distinct([entry.name for entry in resource.incremental_configs], "Duplicate ConfigEntry found")
    operation = client_configs.ConfigOperation
    return [
        client_configs.ConfigChange(entry.name, entry.value, operation(entry.incremental_operation.value))  # type: ignore[union-attr]  # see _check_change
        for entry in resource.incremental_configs
    ]


class Configs(Requests):
    """Requests about configs; futures are by ConfigResource."""

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float | None = None
    ) -> dict[ConfigResource, "Future[dict[str, ConfigEntry]]"]:
        """Describe configs by name. Raises TypeError, ValueError."""
        chosen, seconds = _resources(resources, ValueError), limit(request_timeout)

        def request(names: list[client_configs.ConfigResource]) -> Results[Any, Any]:
            return self._admin.describe_configs(names, include_synonyms=True, timeout=seconds)

        return self._of_resources(chosen, request, _entries)

    def alter_configs(
        self, resources: list[ConfigResource], *, validate_only: bool = False, request_timeout: float | None = None
    ) -> dict[ConfigResource, "Future[None]"]:
        """Replace all configs of resources: those that are not set get their defaults. Raises TypeError, ValueError."""
        reason = "alter_configs has been deprecated. Use incremental_alter_configs instead."
        warnings.warn(reason, DeprecationWarning, stacklevel=2)
        chosen, seconds = _resources(resources, ValueError), limit(request_timeout)

        def request(names: list[client_configs.ConfigResource]) -> Results[Any, Any]:
            configs = {name: resource.set_config_dict for name, resource in zip(names, chosen, strict=True)}
            return self._admin.alter_configs(configs, validate_only=validate_only, timeout=seconds)

        return self._of_resources(chosen, request)

    def incremental_alter_configs(
        self,
        resources: list[ConfigResource],
        *,
        validate_only: bool = False,
        request_timeout: float | None = None,
        broker: int = -1,
    ) -> dict[ConfigResource, "Future[None]"]:
        """Change some configs of resources. Raises TypeError, ValueError.

        broker  without effect: Ottla's client chooses the broker
        """
        del broker
        chosen, seconds = _resources(resources, TypeError), limit(request_timeout)
        for resource in chosen:
            reason = "expected non-empty list of ConfigEntry to alter incrementally in incremental_configs field"
            require(resource.incremental_configs, ValueError, reason)
            for index, entry in enumerate(resource.incremental_configs):
                _check_change(index, entry)

        def request(names: list[client_configs.ConfigResource]) -> Results[Any, Any]:
            changes = {name: _changes(resource) for name, resource in zip(names, chosen, strict=True)}
            return self._admin.incremental_alter_configs(changes, validate_only=validate_only, timeout=seconds)

        return self._of_resources(chosen, request)

    def _of_resources(
        self,
        resources: list[ConfigResource],
        request: Callable[[list[client_configs.ConfigResource]], Results[Any, Any]],
        *convert: Callable[[Any], Any],
    ) -> dict[ConfigResource, "Future[Any]"]:
        """Call a request with the client's names of resources; return futures."""

        def run() -> Results[Any, Any]:
            _check_brokers(resources)
            return request([_name(resource) for resource in resources])

        return self._futures(resources, run, *convert, name=_name)
