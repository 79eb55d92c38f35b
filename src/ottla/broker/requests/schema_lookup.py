"""One look-up in a schema registry, on a thread; imported when the first one is needed."""

from typing import Any

from ottla.broker.requests.schema_source import Query, Source, Unchecked
from ottla.metadata.configs import BrokerValues
from ottla.metadata.configs.schema_rules import REGISTRY_URL
from ottla.schemas.id_lookup import FoundSchema, find_schema
from ottla.schemas.registry import RegistryError, RegistryRefusal, SchemaNotFound, SchemaRegistry, UnsupportedSchema


class _Remote:
    """Registry of another process, which does not report changes."""

    changes = 0

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def get(self, path: str) -> Any:
        return self._registry.get(path)


def source_from(config: BrokerValues) -> Source | None:
    """Return the registry that the configs of a broker name."""
    url = config.text(REGISTRY_URL)
    if not url:
        return None
    registry = SchemaRegistry(
        location=url,
        user_info=config.text("confluent.basic.auth.user.info"),
        timeout_ms=config.integer("schema.validation.timeout.ms"),
        retries=0,
    )
    return _Remote(registry)


def look_up(source: Source, query: Query) -> FoundSchema | Unchecked | None:
    """Return what a registry says of a schema; None if it does not have it."""
    schema, with_names = query
    try:
        return find_schema(source.get, schema, with_names=with_names)
    except SchemaNotFound:
        return None
    except (UnsupportedSchema, RegistryRefusal) as wrong:
        return Unchecked(str(wrong), is_retriable=False)
    except RegistryError as failed:
        return Unchecked(str(failed), is_retriable=True)
    except (AttributeError, KeyError, TypeError, ValueError):
        return Unchecked("the schema registry answers with what is not a schema", is_retriable=False)
