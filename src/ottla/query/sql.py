"""`ottla.sql`: importable without the packages of the extra `sql`, which a call needs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.schemas.registry import SchemaRegistry


def sql(
    query: str,
    /,
    config: Mapping[str, Any] | None = None,
    *,
    schema_registry: "SchemaRegistry | str | None" = None,
    memory_limit: str = "1GB",
    **options: Any,
) -> Any:
    """Query topics with SQL: `ottla.sql("SELECT key, count(*) FROM orders GROUP BY key", bootstrap_servers="...")`.

    config           configs of the client by Kafka's names, or as keyword arguments
    schema_registry  address of a Schema Registry, a directory of schemas, or a SchemaRegistry, for keys and values
    memory_limit     most memory of DuckDB, which writes temporary files beyond it

    Returns a relation of DuckDB (`df`, `arrow`, `fetchall`, `filter`, ...), None for a statement without a result. It reads
    the topics whenever it is evaluated, always the committed records up to the ends at the time of this call.

    Raises InvalidQuery, KafkaError, RegistryError, InvalidClientConfig, ImportError without the extra `sql`; what fails while
    a relation is evaluated is an error of DuckDB.
    """
    from ottla.query.session import Session
    from ottla.schemas.registry import SchemaRegistry

    registry = SchemaRegistry(location=schema_registry) if isinstance(schema_registry, str) else schema_registry
    dotted = {name.replace("_", "."): value for name, value in options.items() if value is not None}
    return Session({**(config or {}), **dotted}, registry, memory_limit).relation(query)
