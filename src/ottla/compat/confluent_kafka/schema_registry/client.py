"""Client of a schema registry with confluent-kafka's methods, on Ottla's SchemaRegistry."""

import time
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import quote, urlencode

from ottla.compat.confluent_kafka.schema_registry.connection import connection
from ottla.compat.confluent_kafka.schema_registry.documents import (
    RegisteredSchema,
    Schema,
    SchemaReference,
    SchemaVersion,
    ServerConfig,
)
from ottla.compat.confluent_kafka.schema_registry.error import SchemaRegistryError
from ottla.compat.missing import ASSOCIATIONS
from ottla.schemas.registry import RegistryError, SchemaNotFound

T = TypeVar("T")
Version = int | str
"""Number of a version, or "latest"."""


class SchemaRegistryClient:
    """Client of a schema registry; `url` is the one config that is needed.

        client = SchemaRegistryClient({"url": "http://localhost:8081"})
        client.register_schema("orders-value", Schema('"string"'))

    Every method raises SchemaRegistryError. Schemas are kept while the client lives: they never change once they have an id.
    """

    def __init__(self, conf: dict[str, Any]) -> None:
        self._conf = conf
        self._registry, self._capacity, self._ttl = connection(conf)
        self._schemas: dict[Hashable, Any] = {}
        self._latest: dict[Hashable, tuple[RegisteredSchema | None, float]] = {}

    @staticmethod
    def new_client(conf: dict[str, Any]) -> "SchemaRegistryClient":
        """Return a client."""
        return SchemaRegistryClient(conf)

    def config(self) -> dict[str, Any]:
        """Return the configs of the client."""
        return self._conf

    def close(self) -> None:
        """Do nothing: no connection is kept."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, method: str, *path: Any, body: dict[str, Any] | None = None, **query: Any) -> Any:
        """Send a request; return the response as JSON. Parts of the path are quoted, None is left out of the query."""
        fields = {name: _query_text(value) for name, value in query.items() if value is not None}
        text = urlencode(fields, doseq=True)
        place = "/" + "/".join(quote(str(part), safe="") for part in path if part is not None)
        try:
            return self._registry.request(f"{place}?{text}" if text else place, body, method)
        except (SchemaNotFound, RegistryError) as error:
            if error.response is None:
                raise SchemaRegistryError(-1, SchemaRegistryError.UNKNOWN, str(error)) from error
            raise SchemaRegistryError(*error.response) from error

    # What is kept.

    def _get_or_fetch(self, key: Hashable, fetch: Callable[[], T]) -> T:
        if key not in self._schemas:
            self._schemas[key] = fetch()
        value: T = self._schemas[key]
        return value

    def _get_or_fetch_latest(self, key: Hashable, fetch: Callable[[], RegisteredSchema]) -> RegisteredSchema:
        value, end = self._latest.get(key, (None, 0.0))
        if value is None or time.monotonic() >= end:
            self._latest.pop(key, None)
            value = fetch()
            while len(self._latest) >= max(self._capacity, 1):
                self._latest.pop(next(iter(self._latest)))
            self._latest[key] = value, float("inf") if self._ttl is None else time.monotonic() + self._ttl
        return value

    def _forget(self, subject_name: str) -> None:
        """Forget what is kept of a subject."""
        for kept in (self._schemas, self._latest):
            for key in [key for key in kept if isinstance(key, tuple) and subject_name in key]:
                del kept[key]

    def clear_latest_caches(self) -> None:
        """Forget the latest versions of subjects."""
        self._latest.clear()

    def clear_caches(self) -> None:
        """Forget all that is kept."""
        self._latest.clear()
        self._schemas.clear()

    # Schemas.

    def register_schema(self, subject_name: str, schema: Schema, normalize_schemas: bool = False) -> int:
        """Register a schema as the newest version of a subject, unless it is a version already; return its id."""
        registered = self.register_schema_full_response(subject_name, schema, normalize_schemas)
        assert registered.schema_id is not None
        return registered.schema_id

    def register_schema_full_response(
        self, subject_name: str, schema: Schema, normalize_schemas: bool = False
    ) -> RegisteredSchema:
        """Register a schema as `register_schema`; return all that the registry says of it."""

        def fetch() -> RegisteredSchema:
            body = schema.to_dict()
            response = self._ask("POST", "subjects", subject_name, "versions", body=body, normalize=normalize_schemas)
            for key in [key for key in self._latest if isinstance(key, tuple) and subject_name in key]:
                del self._latest[key]
            return RegisteredSchema.from_dict({"subject": subject_name, **response})

        return self._get_or_fetch(("registered", subject_name, schema, _references(schema)), fetch)

    def get_schema(
        self,
        schema_id: int,
        subject_name: str | None = None,
        fmt: str | None = None,
        reference_format: str | None = None,
    ) -> Schema:
        """Return the schema of an id."""
        return self._by_id(schema_id, subject_name, fmt, reference_format).schema

    def _by_id(
        self, schema_id: int, subject: str | None = None, fmt: str | None = None, references: str | None = None
    ) -> RegisteredSchema:
        def fetch() -> RegisteredSchema:
            place = "schemas", "ids", schema_id
            response = self._ask("GET", *place, subject=subject, format=fmt, reference_format=references)
            return RegisteredSchema.from_dict({"id": schema_id, **response})

        return self._get_or_fetch(("id", schema_id, subject, fmt, references), fetch)

    def get_schema_by_guid(self, guid: str, fmt: str | None = None) -> Schema:
        """Return the schema of a GUID."""
        return self._get_or_fetch(
            ("guid", guid, fmt), lambda: Schema.from_dict(self._ask("GET", "schemas", "guids", guid, format=fmt))
        )

    def get_schema_types(self) -> list[str]:
        """Return the types of schemas that the registry has."""
        return list(self._ask("GET", "schemas", "types"))

    def get_subjects_by_schema_id(
        self, schema_id: int, subject_name: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[str]:
        """Return the subjects with a schema."""
        place = "schemas", "ids", schema_id, "subjects"
        query: dict[str, Any] = {"subject": subject_name, "deleted": deleted or None}
        return list(self._ask("GET", *place, offset=offset, limit=limit, **query))

    def get_schema_versions(
        self, schema_id: int, subject_name: str | None = None, deleted: bool = False, offset: int = 0, limit: int = -1
    ) -> list[SchemaVersion]:
        """Return the versions that are a schema."""
        place = "schemas", "ids", schema_id, "versions"
        query: dict[str, Any] = {"subject": subject_name, "deleted": deleted or None}
        rows = self._ask("GET", *place, offset=offset, limit=limit, **query)
        return [SchemaVersion.from_dict(row) for row in rows]

    def lookup_schema(
        self,
        subject_name: str,
        schema: Schema,
        normalize_schemas: bool = False,
        fmt: str | None = None,
        deleted: bool = False,
    ) -> RegisteredSchema:
        """Return the version of a subject that is a schema."""

        def fetch() -> RegisteredSchema:
            query: dict[str, Any] = {"normalize": normalize_schemas, "deleted": deleted, "format": fmt}
            row = self._ask("POST", "subjects", subject_name, body=schema.to_dict(), **query)
            return RegisteredSchema(row.get("subject"), row.get("version"), row.get("id"), row.get("guid"), schema)

        return self._get_or_fetch(("lookup", subject_name, schema, _references(schema)), fetch)

    # Subjects and versions.

    def get_subjects(
        self,
        subject_prefix: str | None = None,
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[str]:
        """Return the names of subjects."""
        query: dict[str, Any] = {"deleted": deleted, "deleted_only": deleted_only, "offset": offset, "limit": limit}
        return list(self._ask("GET", "subjects", subjectPrefix=subject_prefix, **query))

    def delete_subject(self, subject_name: str, permanent: bool = False) -> list[int]:
        """Delete a subject; return its versions."""
        versions = self._ask("DELETE", "subjects", subject_name, permanent=permanent or None)
        self._forget(subject_name)
        return list(versions)

    def get_latest_version(self, subject_name: str, fmt: str | None = None) -> RegisteredSchema:
        """Return the newest version of a subject."""
        return self._get_or_fetch_latest(
            ("latest", subject_name), lambda: self._version(subject_name, "latest", None, fmt)
        )

    def get_latest_with_metadata(
        self, subject_name: str, metadata: dict[str, str], deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        """Return the newest version of a subject with these properties."""

        def fetch() -> RegisteredSchema:
            query: dict[str, Any] = {
                "deleted": deleted,
                "format": fmt,
                "key": list(metadata),
                "value": list(metadata.values()),
            }
            return RegisteredSchema.from_dict(self._ask("GET", "subjects", subject_name, "metadata", **query))

        return self._get_or_fetch_latest(("metadata", subject_name, frozenset(metadata.items()), deleted), fetch)

    def get_version(
        self, subject_name: str, version: Version = "latest", deleted: bool = False, fmt: str | None = None
    ) -> RegisteredSchema:
        """Return a version of a subject."""
        if version == "latest":
            return self._version(subject_name, version, deleted, fmt)
        key = "version", subject_name, version
        return self._get_or_fetch(key, lambda: self._version(subject_name, version, deleted, fmt))

    def _version(self, subject_name: str, version: Version, deleted: bool | None, fmt: str | None) -> RegisteredSchema:
        place = "subjects", subject_name, "versions", version
        return RegisteredSchema.from_dict(self._ask("GET", *place, deleted=deleted, format=fmt))

    def get_referenced_by(
        self, subject_name: str, version: Version = "latest", offset: int = 0, limit: int = -1
    ) -> list[int]:
        """Return the ids of the schemas that refer to a version."""
        place = "subjects", subject_name, "versions", version, "referencedby"
        return list(self._ask("GET", *place, offset=offset, limit=limit))

    def get_versions(
        self,
        subject_name: str,
        deleted: bool = False,
        deleted_only: bool = False,
        offset: int = 0,
        limit: int = -1,
    ) -> list[int]:
        """Return the version numbers of a subject."""
        query: dict[str, Any] = {"deleted": deleted, "deleted_only": deleted_only, "offset": offset, "limit": limit}
        return list(self._ask("GET", "subjects", subject_name, "versions", **query))

    def delete_version(self, subject_name: str, version: int, permanent: bool = False) -> int:
        """Delete a version of a subject; return its number."""
        number = self._ask("DELETE", "subjects", subject_name, "versions", version, permanent=permanent or None)
        self._forget(subject_name)
        return int(number)

    # Compatibility, configs and modes.

    def set_compatibility(self, subject_name: str | None = None, level: str | None = None) -> Any:
        """Set the compatibility level of a subject, or of all; return the response. Raises ValueError without a level."""
        if level is None:
            raise ValueError("level must be set")
        return self._ask("PUT", "config", subject_name, body={"compatibility": level.upper()})

    def get_compatibility(self, subject_name: str | None = None) -> str:
        """Return the compatibility level of a subject, or of all."""
        return str(self._ask("GET", "config", subject_name)["compatibilityLevel"])

    def test_compatibility(
        self,
        subject_name: str,
        schema: Schema,
        version: Version = "latest",
        normalize: bool = False,
        verbose: bool = False,
    ) -> bool:
        """Return whether a schema may follow a version of a subject."""
        place = "compatibility", "subjects", subject_name, "versions", version
        row = self._ask("POST", *place, body=schema.to_dict(), normalize=normalize, verbose=verbose)
        return bool(row["is_compatible"])

    def test_compatibility_all_versions(
        self, subject_name: str, schema: Schema, normalize: bool = False, verbose: bool = False
    ) -> bool:
        """Return whether a schema may follow all versions of a subject that its level names."""
        place = "compatibility", "subjects", subject_name, "versions"
        row = self._ask("POST", *place, body=schema.to_dict(), normalize=normalize, verbose=verbose)
        return bool(row["is_compatible"])

    def set_config(self, subject_name: str | None = None, config: ServerConfig | None = None) -> Any:
        """Set the config of a subject, or of all; return the response. Raises ValueError without a config."""
        if config is None:
            raise ValueError("config must be set")
        return self._ask("PUT", "config", subject_name, body=config.to_dict())

    def delete_config(self, subject_name: str | None = None) -> ServerConfig:
        """Delete the config of a subject, or of all; return it."""
        return ServerConfig.from_dict(self._ask("DELETE", "config", subject_name))

    def get_config(self, subject_name: str | None = None) -> ServerConfig:
        """Return the config of a subject, or of all."""
        return ServerConfig.from_dict(self._ask("GET", "config", subject_name))

    def get_mode(self, subject_name: str) -> str:
        """Return the mode of a subject, such as READWRITE."""
        return str(self._ask("GET", "mode", subject_name)["mode"])

    def update_mode(self, subject_name: str, mode: str, force: bool = False) -> str:
        """Set the mode of a subject; return it."""
        return str(self._ask("PUT", "mode", subject_name, body={"mode": mode}, force=force)["mode"])

    def delete_mode(self, subject_name: str) -> str:
        """Delete the mode of a subject; return it."""
        return str(self._ask("DELETE", "mode", subject_name)["mode"])

    def get_global_mode(self) -> str:
        """Return the mode of all subjects."""
        return str(self._ask("GET", "mode")["mode"])

    def update_global_mode(self, mode: str, force: bool = False) -> str:
        """Set the mode of all subjects; return it."""
        return str(self._ask("PUT", "mode", body={"mode": mode}, force=force)["mode"])

    def get_contexts(self, offset: int = 0, limit: int = -1) -> list[str]:
        """Return the names of contexts."""
        return list(self._ask("GET", "contexts", offset=offset, limit=limit))

    def _no_associations(self, *_: Any, **__: Any) -> NoReturn:
        """Raise NotImplementedError."""
        raise NotImplementedError(ASSOCIATIONS)

    get_associations_by_resource_name = create_association = delete_associations = _no_associations


def _query_text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _references(schema: Schema) -> tuple[SchemaReference, ...]:
    return tuple(schema.references or ())
