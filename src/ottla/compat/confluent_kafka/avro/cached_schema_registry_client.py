"""Old client of a schema registry, on the newer one."""

import logging
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ottla.compat.confluent_kafka.avro.error import ClientError
from ottla.compat.confluent_kafka.avro.load import loads
from ottla.compat.confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from ottla.compat.missing import stand_ins

log = logging.getLogger(__name__)
T = TypeVar("T")
VALID_LEVELS: Final = ["NONE", "FULL", "FORWARD", "BACKWARD"]
VALID_METHODS: Final = ["GET", "POST", "PUT", "DELETE"]
VALID_AUTH_PROVIDERS: Final = ["URL", "USER_INFO", "SASL_INHERIT"]
_PASSED_ON: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password")


class CachedSchemaRegistryClient:
    """Client of a schema registry, made of a dictionary with `url`; `auto.register.schemas` is one of its configs."""

    def __init__(
        self,
        url: dict[str, Any] | str,
        max_schemas_per_subject: int = 1000,
        ca_location: str | None = None,
        cert_location: str | None = None,
        key_location: str | None = None,
    ) -> None:
        del max_schemas_per_subject
        if isinstance(url, dict):
            conf = dict(url)
        else:
            reason = "CachedSchemaRegistryClient takes a dictionary of configs: the other parameters are deprecated"
            warnings.warn(reason, DeprecationWarning, stacklevel=2)
            conf = {"url": url, "ssl.ca.location": ca_location, "ssl.certificate.location": cert_location}
            conf["ssl.key.location"] = key_location
        address = conf.pop("url", "")
        if not isinstance(address, str):
            raise TypeError("URL must be of type str")
        if not address.startswith("http"):
            raise ValueError("Invalid URL provided for Schema Registry")
        self.url = address.rstrip("/")
        if bool(conf.get("ssl.certificate.location")) != bool(conf.get("ssl.key.location")):
            names = [f"schema.registry.{name}" for name in ("ssl.certificate.location", "ssl.key.location")]
            raise ValueError(f"Both {' and '.join(names)} must be set")
        self.auto_register_schemas = conf.pop("auto.register.schemas", True)
        passed: dict[str, Any] = {name: conf.pop(name) for name in _PASSED_ON if name in conf}
        user_info = _user_info(conf)
        if conf:
            raise ValueError(f"Unrecognized configuration properties: {conf.keys()}")
        own: dict[str, Any] = {"url": self.url, "max.retries": 0, **passed, **user_info}
        self._client = SchemaRegistryClient({name: value for name, value in own.items() if value is not None})

    def close(self) -> None:
        """Do nothing: no connection is kept."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def register(self, subject: str, avro_schema: Any) -> int:
        """Register a schema; return its id. Raises ClientError."""
        try:
            return self._client.register_schema(subject, Schema(str(avro_schema)))
        except SchemaRegistryError as error:
            code = error.http_status_code
            reasons = {
                401: "Unauthorized access. Error code",
                403: "Unauthorized access. Error code",
                409: "Incompatible Avro schema",
                422: "Invalid Avro schema",
            }
            reason = reasons.get(code, "Unable to register schema. Error code")
            raise ClientError(f"{reason}:{code} message:{_content(error)}") from None

    def check_registration(self, subject: str, avro_schema: Any) -> int:
        """Return the id of a registered schema. Raises ClientError."""
        try:
            return int(self._client.lookup_schema(subject, Schema(str(avro_schema))).schema_id or 0)
        except SchemaRegistryError as error:
            code = error.http_status_code
            reasons = {401: "Unauthorized access. Error code", 403: "Unauthorized access. Error code"}
            reasons[404] = "Schema or subject not found"
            reason = reasons.get(code, "Unable to check schema registration. Error code")
            raise ClientError(f"{reason}:{code}") from None

    def delete_subject(self, subject: str) -> list[int]:
        """Delete a subject; return its versions. Raises ClientError."""
        try:
            return self._client.delete_subject(subject)
        except SchemaRegistryError as error:
            raise ClientError(f"Unable to delete subject: {_content(error)}") from None

    def get_by_id(self, schema_id: int) -> Any:
        """Return the schema of an id, None without one. Raises ClientError for one that cannot be parsed."""
        schema = _or_none("get the schema of an id", lambda: self._client.get_schema(schema_id))
        if schema is None:
            return None
        try:
            return loads(str(schema.schema_str))
        except ClientError as error:
            raise ClientError(f"Received bad schema (id {schema_id}) from registry: {error}") from None

    def get_latest_schema(self, subject: str) -> tuple[Any, Any, Any]:
        """Return id, schema and number of the newest version of a subject; three times None without one."""
        return self.get_by_version(subject, "latest")

    def get_by_version(self, subject: str, version: int | str) -> tuple[Any, Any, Any]:
        """Return id, schema and number of a version of a subject; three times None without one."""
        row = _or_none("get a version", lambda: self._client.get_version(subject, version))
        if row is None:
            return None, None, None
        return row.schema_id, loads(str(row.schema.schema_str)), row.version

    def get_version(self, subject: str, avro_schema: Any) -> int | None:
        """Return the version of a subject that is a schema, None without one."""
        row = _or_none("look a schema up", lambda: self._client.lookup_schema(subject, Schema(str(avro_schema))))
        return None if row is None else row.version

    def test_compatibility(self, subject: str, avro_schema: Any, version: int | str = "latest") -> bool:
        """Return whether a schema may follow a version of a subject; False after an error."""
        schema = Schema(str(avro_schema))
        test = self._client.test_compatibility
        return bool(_or_none("check the compatibility", lambda: test(subject, schema, version)))

    def update_compatibility(self, level: str, subject: str | None = None) -> str:
        """Set the compatibility level of a subject, or of all; return it. Raises ClientError."""
        if level not in VALID_LEVELS:
            raise ClientError(f"Invalid level specified: {level}")
        try:
            return str(self._client.set_compatibility(subject, level)["compatibility"])
        except SchemaRegistryError as error:
            raise ClientError(f"Unable to update level: {level}. Error code: {error.http_status_code}") from None

    def get_compatibility(self, subject: str | None = None) -> str:
        """Return the compatibility level of a subject, or of all. Raises ClientError."""
        try:
            level = self._client.get_compatibility(subject)
        except SchemaRegistryError as error:
            raise ClientError(f"Unable to fetch compatibility level. Error code: {error.http_status_code}") from None
        if level not in VALID_LEVELS:
            raise ClientError(f"Invalid compatibility level received: {level}")
        return level


def _user_info(conf: dict[str, Any]) -> dict[str, str]:
    """Remove the configs of a login; return that of the newer client. Raises ValueError."""
    source = conf.pop("basic.auth.credentials.source", "URL").upper()
    if source not in VALID_AUTH_PROVIDERS:
        raise ValueError(f"schema.registry.basic.auth.credentials.source must be one of {VALID_AUTH_PROVIDERS}")
    if source == "SASL_INHERIT":
        if conf.pop("sasl.mechanism", "").upper() == "GSSAPI":
            raise ValueError("SASL_INHERIT does not support SASL mechanism GSSAPI")
        return {"basic.auth.user.info": f"{conf.pop('sasl.username', '')}:{conf.pop('sasl.password', '')}"}
    return {"basic.auth.user.info": conf.pop("basic.auth.user.info", "")} if source == "USER_INFO" else {}


def _content(error: SchemaRegistryError) -> dict[str, Any]:
    return {"error_code": error.error_code, "message": error.error_message}


def _or_none(about: str, call: Callable[[], T]) -> T | None:
    """Return the result of a call; log an error of the registry, and return None."""
    try:
        return call()
    except SchemaRegistryError as error:
        log.error("Unable to %s: %s", about, error)
        return None


globals().update(stand_ins(__name__))
