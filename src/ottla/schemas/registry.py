"""Schema stores: a Schema Registry over HTTP, or a directory.

A directory has one file for each schema, named by its id, and an index with the ids of each subject's versions, oldest first,
and the references of schemas:

    1.avsc  2.json  3.proto           Avro, JSON Schema, Protobuf
    subjects.json                     {"subjects": {"orders-value": [1, 3]},
                                       "references": {"3": [{"name": "money.proto", "subject": "money", "version": 1}]}}

Both support the same requests, those of Confluent's REST API. Schemas never change once they have an id, so results of `by_id`
are cached while the process lives; the latest version of a subject is requested each time.
"""

import base64
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
SUFFIXES: Final = {AVRO: ".avsc", JSON: ".json", PROTOBUF: ".proto"}
INDEX: Final = "subjects.json"
MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_HEADERS: Final = {
    "Accept": f"{MEDIA_TYPE}, application/json",
    "Content-Type": MEDIA_TYPE,
    "Confluent-Accept-Unknown-Properties": "true",  # or GUIDs are left out
}
_WORTH_RETRYING: Final = frozenset({408, 429, 500, 502, 503, 504})


class ErrorResponse(NamedTuple):
    """Response of a registry with an error: HTTP status, code of the registry (-1 without one), and message."""

    status: int
    code: int
    message: str


class SchemaNotFound(LookupError):
    """The schema, subject or version does not exist in the registry.

    response  response of the registry, None without one
    """

    response: ErrorResponse | None = None


class UnsupportedSchema(ValueError):
    """A schema is malformed, or has no equivalent type in the reader."""


class RegistryError(RuntimeError):
    """The registry did not answer, or answered with an error.

    response  response of the registry, the last one after retries; None without one
    """

    response: ErrorResponse | None = None


class RegistryRefusal(RegistryError):
    """The registry refused a request, such as a malformed schema."""


E = TypeVar("E", SchemaNotFound, RegistryError, RegistryRefusal)


class Reference(NamedTuple):
    """Reference of a schema to another one, by its `name` in the referring schema."""

    name: str
    subject: str
    version: int


class Schema(NamedTuple):
    """Text and kind of a schema: AVRO, JSON or PROTOBUF. A Protobuf text is a .proto file, or its descriptor in base64."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class Registered(NamedTuple):
    """A schema and its id."""

    id: int
    schema: Schema


@dataclass(frozen=True, kw_only=True)
class SchemaRegistry:
    """Location of schemas: one or more comma-separated addresses of a Schema Registry, or a directory.

    `user_info` is USER:PASSWORD for basic authentication; it may be part of the address as well. Each request times out after
    `timeout_ms`. It is retried up to `retries` times if no address answers, or only with HTTP 408, 429, 500, 502 to 504, after
    `pause_ms`, which doubles each time up to `max_pause_ms`.

    opener     sends the requests, for example with certificates or through a proxy
    headers    returns headers to add to a request, such as a token
    normalize  whether the registry normalizes schemas that are registered and looked up; a directory compares them as JSON
    """

    location: str
    user_info: str | None = field(default=None, repr=False)
    timeout_ms: int = 10_000
    retries: int = 3
    pause_ms: int = 100
    max_pause_ms: int = 20_000
    opener: urllib.request.OpenerDirector | None = field(default=None, repr=False)
    headers: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)
    normalize: bool = False

    def by_id(self, number: int) -> Schema:
        """Return the schema of an id. Raises SchemaNotFound, RegistryError."""
        return _by_id(self, number)

    def by_guid(self, guid: str) -> Schema:
        """Return the schema of a GUID. Raises SchemaNotFound, RegistryError."""
        return self._store().by_guid(guid)

    def guid_of(self, number: int) -> str:
        """Return the GUID of the schema with an id. Raises SchemaNotFound, RegistryError."""
        return self._store().guid_of(number)

    def latest(self, subject: str) -> Registered:
        """Return the latest version of a subject. Raises SchemaNotFound, RegistryError."""
        return self._store().version(subject, "latest")

    def version(self, subject: str, number: int) -> Registered:
        """Return a version of a subject, counted from 1. Raises SchemaNotFound, RegistryError."""
        return self._store().version(subject, str(number))

    def look_up(self, subject: str, schema: Schema) -> int:
        """Return the id of a schema in a subject. Raises SchemaNotFound, RegistryError."""
        return self._store().find(subject, schema)[0]

    def version_of(self, subject: str, schema: Schema) -> int:
        """Return the version number of a schema in a subject, counted from 1. Raises SchemaNotFound, RegistryError."""
        return self._store().find(subject, schema)[1]

    def register(self, subject: str, schema: Schema) -> int:
        """Register a schema as the latest version of a subject, unless it is a version already; return its id."""
        return self._store().register(subject, schema)

    def subjects(self, *, deleted: bool = False) -> list[str]:
        """Return the names of all subjects, sorted; with `deleted` also of those that are hidden. Raises RegistryError."""
        return sorted(self._store().subjects(deleted=deleted))

    def versions(self, subject: str) -> list[int]:
        """Return the version numbers of a subject, oldest first. Raises SchemaNotFound, RegistryError."""
        return sorted(self._store().versions(subject))

    def referrers(self, subject: str, number: int) -> list[int]:
        """Return the ids of the schemas that refer to a version; empty where that is not known. Raises RegistryError."""
        return sorted(self._store().referrers(subject, number))

    def compatibility(self, subject: str | None) -> str | None:
        """Return the compatibility level of a subject, its own or the default one; None for a directory without.

        Without a subject it is the default one. Raises RegistryError.
        """
        config = self._store().setting("config", subject)
        level: str | None = config.get("compatibilityLevel") or config.get("compatibility")
        return level

    def policy(self, subject: str) -> str | None:
        """Return the compatibility policy of a subject, its own or the default one, such as LENIENT; None without.

        Raises RegistryError.
        """
        policy: str | None = self._store().setting("config", subject).get("compatibilityPolicy")
        return policy

    def set_compatibility(self, subject: str | None, level: str | None) -> None:
        """Set the compatibility level of a subject, or the default one without a subject; None removes it.

        Raises SchemaNotFound, RegistryError.
        """
        self._store().set("config", "compatibility", subject, level)

    def mode(self, subject: str | None) -> str:
        """Return the mode of a subject, its own or the default one, such as READWRITE. Raises RegistryError."""
        return str(self._store().setting("mode", subject).get("mode"))

    def set_mode(self, subject: str | None, mode: str | None) -> None:
        """Set the mode of a subject, or the default one without a subject; None removes it.

        Raises SchemaNotFound, RegistryError.
        """
        self._store().set("mode", "mode", subject, mode)

    def entity(self, subject: str, number: int) -> dict[str, Any]:
        """Return all that a registry says of a version, as JSON. Raises SchemaNotFound, RegistryError."""
        return self._store().entity(subject, number)

    def config(self, subject: str | None) -> dict[str, Any]:
        """Return the config that a subject has itself, or the default one; empty without. Raises RegistryError."""
        return self._store().config(subject)

    def set_config(self, subject: str | None, config: dict[str, Any]) -> None:
        """Set fields of a config. Raises RegistryError."""
        self._store().set_config(subject, config)

    def import_version(
        self, subject: str, number: int, schema_id: int, schema: Schema, contract: dict[str, Any]
    ) -> None:
        """Register a schema with its id, as this version of a subject in mode IMPORT. Raises RegistryError.

        contract  metadata and ruleSet, as in requests
        """
        body = {**request_body(schema), **contract, "id": schema_id, "version": number}
        self._store().post_version(subject, body)

    def incompatibilities(self, subject: str, schema: Schema) -> list[str]:
        """Return why a schema cannot follow the latest version of a subject; empty if it can, and for a directory.

        Raises RegistryError.
        """
        return self._store().incompatibilities(subject, schema)

    def delete(self, subject: str, version: int | None = None, *, permanent: bool = False) -> None:
        """Delete a version of a subject, or all. Raises SchemaNotFound, RegistryError.

        permanent  whether ids become unreadable, too
        """
        store = self._store()
        if permanent:
            with suppress(SchemaNotFound):  # it may have been deleted already
                store.delete(subject, version)
        store.delete(subject, version, permanent=permanent)

    def get(self, path: str) -> Any:
        """Return the response to a GET request, as JSON. Raises SchemaNotFound, RegistryError; a directory serves none."""
        return self.request(path)

    def request(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        """Return the response to a request, as JSON: GET by default, POST with a body; None for an empty response.

        Raises SchemaNotFound, RegistryError; a directory serves none.
        """
        return self._store().request(path, body, method)

    @property
    def is_directory(self) -> bool:
        """True for a directory of schemas, false for addresses."""
        return not self.location.startswith(("http://", "https://"))

    @property
    def address(self) -> str:
        """First address without credentials, or the path of the directory."""
        first = self.location.split(",")[0].strip().rstrip("/")
        return self.location if self.is_directory else _without_credentials(first)[0]

    @property
    def user(self) -> str | None:
        """User of the basic authentication, None without."""
        user_info = self.user_info or (
            None if self.is_directory else _without_credentials(self.location.split(",")[0])[1]
        )
        return None if user_info is None else user_info.partition(":")[0]

    def referred(self, schema: Schema) -> dict[str, Schema]:
        """Return the schemas that a schema references, also indirectly, by name, each after its own references."""
        schemas: dict[str, Schema] = {}
        for reference in schema.references:
            other = self.version(reference.subject, reference.version).schema
            schemas |= {**self.referred(other), reference.name: other}
        return schemas

    def _store(self) -> "_Http | _Directory":
        return _Directory(Path(self.location.removeprefix("file://"))) if self.is_directory else _Http(self)


@lru_cache(maxsize=10_000)
def _by_id(registry: SchemaRegistry, number: int) -> Schema:
    return registry._store().by_id(number)


class _Http:
    """Schema Registry with Confluent's REST API."""

    def __init__(self, config: SchemaRegistry) -> None:
        self._config = config
        self._addresses = [address.strip().rstrip("/") for address in config.location.split(",")]
        self._query = "?normalize=true" if config.normalize else ""

    def request(self, path: str, body: dict[str, Any] | None, method: str | None) -> Any:
        return self._answer(path, body, method)

    def by_id(self, number: int) -> Schema:
        return _schema(self._answer(f"/schemas/ids/{number}"))

    def by_guid(self, guid: str) -> Schema:
        return _schema(self._answer(f"/schemas/guids/{guid}"))

    def guid_of(self, number: int) -> str:
        guid = self._answer(f"/schemas/ids/{number}").get("guid")
        if not guid:
            raise RegistryError(f"{self._addresses[0]}: the registry has no GUIDs of schemas")
        return str(guid)

    def version(self, subject: str, version: str) -> Registered:
        answer = self._answer(f"{_subject_path(subject)}/versions/{version}")
        return Registered(int(answer["id"]), _schema(answer))

    def find(self, subject: str, schema: Schema) -> tuple[int, int]:
        """Return id and version of a schema in a subject."""
        answer = self._answer(f"{_subject_path(subject)}{self._query}", request_body(schema))
        return int(answer["id"]), int(answer["version"])

    def register(self, subject: str, schema: Schema) -> int:
        return int(self._answer(f"{_subject_path(subject)}/versions{self._query}", request_body(schema))["id"])

    def subjects(self, *, deleted: bool) -> list[str]:
        return list(self._answer(f"/subjects{'?deleted=true' if deleted else ''}"))

    def referrers(self, subject: str, number: int) -> list[int]:
        try:
            return list(self._answer(f"{_subject_path(subject)}/versions/{number}/referencedby"))
        except SchemaNotFound:
            return []

    def versions(self, subject: str) -> list[int]:
        return list(self._answer(f"{_subject_path(subject)}/versions"))

    def setting(self, kind: str, subject: str | None) -> dict[str, Any]:
        """Return the config or mode of a subject, or the default one; some registries do not know defaultToGlobal."""
        if subject is not None:
            with suppress(SchemaNotFound):
                return dict(self._answer(f"{_setting_path(kind, subject)}?defaultToGlobal=true"))
        return dict(self._answer(f"/{kind}"))

    def set(self, kind: str, field: str, subject: str | None, value: str | None) -> None:
        """Set a field of the config or mode, or remove it all for None."""
        path = _setting_path(kind, subject)
        if value is None:
            self._answer(path, method="DELETE")
        else:
            self._answer(path, {field: value}, method="PUT")

    def entity(self, subject: str, number: int) -> dict[str, Any]:
        return dict(self._answer(f"{_subject_path(subject)}/versions/{number}"))

    def config(self, subject: str | None) -> dict[str, Any]:
        try:
            return dict(self._answer(_setting_path("config", subject)))
        except SchemaNotFound:
            return {}

    def set_config(self, subject: str | None, config: dict[str, Any]) -> None:
        fields = {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}
        self._answer(_setting_path("config", subject), fields, method="PUT")

    def post_version(self, subject: str, body: dict[str, Any]) -> None:
        self._answer(f"{_subject_path(subject)}/versions", body)

    def incompatibilities(self, subject: str, schema: Schema) -> list[str]:
        path = f"/compatibility{_subject_path(subject)}/versions/latest?verbose=true"
        try:
            answer = self._answer(path, request_body(schema))
        except SchemaNotFound:  # the first version
            return []
        if answer.get("is_compatible", True):
            return []
        return [str(message) for message in answer.get("messages") or ["The registry gives no reason"]]

    def delete(self, subject: str, version: int | None, *, permanent: bool = False) -> None:
        path = _subject_path(subject)
        query = "?permanent=true" if permanent else ""
        self._answer(f"{path}{query}" if version is None else f"{path}/versions/{version}{query}", method="DELETE")

    def _answer(self, path: str, body: dict[str, Any] | None = None, method: str | None = None) -> Any:
        """Return the response of the first address that answers; the pause between rounds doubles each time."""
        reason, response = "", None
        for attempt in range(self._config.retries + 1):
            if attempt:
                time.sleep(min(self._config.pause_ms * 2 ** (attempt - 1), self._config.max_pause_ms) / 1000)
            for address in self._addresses:
                url, credentials = _without_credentials(address)
                request = self._request(url + path, self._config.user_info or credentials, body, method)
                try:
                    return self._send(request)
                except urllib.error.HTTPError as error:
                    response = _error_response(error)
                    reason = f"{url}{path}: {response.status} {response.message}"
                    if error.code == 404:
                        raise _with_response(SchemaNotFound(reason), response) from None
                    if error.code not in _WORTH_RETRYING:
                        raise _with_response(RegistryRefusal(reason), response) from None
                except (OSError, ValueError) as failed:
                    reason = f"{url}{path}: {getattr(failed, 'reason', None) or failed}"
        raise _with_response(RegistryError(f"no schema registry answers: {reason}"), response)

    def _request(
        self, url: str, credentials: str | None, body: dict[str, Any] | None, method: str | None
    ) -> urllib.request.Request:
        content = None if body is None else json.dumps(body).encode()
        headers = {**_HEADERS, **(self._config.headers() if self._config.headers else {})}
        request = urllib.request.Request(url, content, headers, method=method)
        if credentials:
            request.add_header("Authorization", f"Basic {base64.b64encode(credentials.encode()).decode()}")
        return request

    def _send(self, request: urllib.request.Request) -> Any:
        """Return the response to a request, as JSON. Raises HTTPError, OSError, ValueError."""
        send = urllib.request.urlopen if self._config.opener is None else self._config.opener.open
        with send(request, timeout=self._config.timeout_ms / 1000) as response:
            content = response.read()
        return json.loads(content) if content else None


def _subject_path(subject: str) -> str:
    return f"/subjects/{urllib.parse.quote(subject, safe='')}"


def _setting_path(kind: str, subject: str | None) -> str:
    return f"/{kind}" if subject is None else f"/{kind}/{urllib.parse.quote(subject, safe='')}"


def _without_credentials(address: str) -> tuple[str, str | None]:
    parts = urllib.parse.urlsplit(address)
    credentials, _, host = parts.netloc.rpartition("@")
    return urllib.parse.urlunsplit(parts._replace(netloc=host)), urllib.parse.unquote(credentials) or None


def _error_response(error: urllib.error.HTTPError) -> ErrorResponse:
    try:
        with error:
            body = json.load(error)
        return ErrorResponse(error.code, int(body.get("error_code") or -1), str(body.get("message") or error.reason))
    except (OSError, TypeError, ValueError, AttributeError):
        return ErrorResponse(error.code, -1, str(error.reason))


def _with_response(error: E, response: ErrorResponse | None) -> E:
    error.response = response
    return error


def _schema(answer: dict[str, Any]) -> Schema:
    references = tuple(
        Reference(reference["name"], reference["subject"], int(reference["version"]))
        for reference in answer.get("references") or ()
    )
    return Schema(answer.get("schemaType") or AVRO, answer["schema"], references)


def request_body(schema: Schema) -> dict[str, Any]:
    """Return a schema as the body of a request to a registry."""
    body: dict[str, Any] = {"schema": schema.text, "schemaType": schema.kind}
    if schema.references:
        body["references"] = [reference._asdict() for reference in schema.references]
    return body


class _Directory:
    """Directory of schema files with an index."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise RegistryError(
                f"{path}: no directory of schemas, and not an address that begins with http:// or https://"
            )
        self._path = path

    def request(self, path: str, body: dict[str, Any] | None, method: str | None) -> Any:
        del body, method
        raise RegistryError(f"{self._path}: a directory of schemas serves no {path}")

    def by_id(self, number: int) -> Schema:
        references = self._index()["references"].get(str(number), ())
        for kind, suffix in SUFFIXES.items():
            file = self._path / f"{number}{suffix}"
            if file.is_file():
                return Schema(
                    kind, file.read_text(encoding="utf-8"), tuple(Reference(**reference) for reference in references)
                )
        raise SchemaNotFound(f"{self._path}: no schema {number}")

    def by_guid(self, guid: str) -> Schema:
        raise SchemaNotFound(f"{self._path}: a directory of schemas has no GUIDs such as {guid}")

    def guid_of(self, number: int) -> str:
        raise RegistryError(f"{self._path}: a directory of schemas has no GUIDs, also not of id {number}")

    def version(self, subject: str, version: str) -> Registered:
        numbers = self._index()["subjects"].get(subject, [])
        at = len(numbers) if version == "latest" else int(version)
        if not 0 < at <= len(numbers):
            raise SchemaNotFound(f"{self._path / INDEX}: subject {subject} has no version {version}")
        return Registered(numbers[at - 1], self.by_id(numbers[at - 1]))

    def find(self, subject: str, schema: Schema) -> tuple[int, int]:
        """Return id and version of a schema in a subject."""
        for version, number in enumerate(self._index()["subjects"].get(subject, []), 1):
            if _same(self.by_id(number), schema):
                return int(number), version
        raise SchemaNotFound(f"{self._path / INDEX}: no version of subject {subject} is this schema")

    def register(self, subject: str, schema: Schema) -> int:
        index = self._index()
        numbers = index["subjects"].setdefault(subject, [])
        known = sorted(int(file.stem) for file in self._path.iterdir() if file.stem.isdecimal())
        number = next((schema_id for schema_id in known if _same(self.by_id(schema_id), schema)), None)
        if number is None:
            number = known[-1] + 1 if known else 1
            with (self._path / f"{number}{SUFFIXES[schema.kind]}").open("x", encoding="utf-8") as file:
                file.write(schema.text)
            if schema.references:
                index["references"][str(number)] = [reference._asdict() for reference in schema.references]
        if number not in numbers:
            numbers.append(number)
            beside = self._path / f"{INDEX}.{os.getpid()}"
            beside.write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
            beside.replace(self._path / INDEX)
        return number

    def subjects(self, *, deleted: bool) -> list[str]:
        del deleted
        return list(self._index()["subjects"])

    def referrers(self, subject: str, number: int) -> list[int]:
        place = [subject, number]
        references = self._index()["references"]
        return [
            int(key) for key, rows in references.items() if place in [[row["subject"], row["version"]] for row in rows]
        ]

    def versions(self, subject: str) -> list[int]:
        numbers = self._index()["subjects"].get(subject)
        if not numbers:
            raise SchemaNotFound(f"{self._path / INDEX}: no subject {subject}")
        return list(range(1, len(numbers) + 1))

    def setting(self, kind: str, subject: str | None) -> dict[str, Any]:
        """Return the config or mode of a subject, or the default one; only an export has configs."""
        return {"mode": "READWRITE"} if kind == "mode" else {**self.config(None), **self.config(subject)}

    def set(self, kind: str, field: str, subject: str | None, value: str | None) -> None:
        del field, subject, value
        raise RegistryError(f"{self._path}: a directory of schemas has no {kind}")

    def entity(self, subject: str, number: int) -> dict[str, Any]:
        registered = self.version(subject, str(number))
        return {"subject": subject, "version": number, "id": registered.id, **request_body(registered.schema)}

    def config(self, subject: str | None) -> dict[str, Any]:
        return dict(self._index().get("configs", {}).get(subject or "", {}))

    def set_config(self, subject: str | None, config: dict[str, Any]) -> None:
        del subject, config
        raise RegistryError(f"{self._path}: a directory of schemas has no config")

    def post_version(self, subject: str, body: dict[str, Any]) -> None:
        del body
        raise RegistryError(f"{self._path}: schemas of {subject} are imported into a registry, not into a directory")

    def incompatibilities(self, subject: str, schema: Schema) -> list[str]:
        del subject, schema
        return []

    def delete(self, subject: str, version: int | None, *, permanent: bool = False) -> None:
        del version, permanent
        raise RegistryError(f"{self._path}: schemas of a directory cannot be deleted; remove {subject} from {INDEX}")

    def _index(self) -> dict[str, Any]:
        try:
            content = json.loads((self._path / INDEX).read_text(encoding="utf-8"))
        except FileNotFoundError:
            content = {}
        except ValueError as wrong:
            raise RegistryError(f"{self._path / INDEX}: {wrong}") from None
        return {"subjects": {}, "references": {}, **content}


def _same(one: Schema, other: Schema) -> bool:
    """Return whether two texts are one schema: compared as JSON, or as words between whitespace for Protobuf."""
    if one.kind != other.kind or one.references != other.references:
        return False
    if one.kind == PROTOBUF:
        return one.text.split() == other.text.split()
    return bool(json.loads(one.text) == json.loads(other.text))
