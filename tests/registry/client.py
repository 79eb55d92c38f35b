"""Requests to a registry, as curl would send them."""

import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class Answer(NamedTuple):
    """Response of a registry; `value` is its JSON, or its text if it is not JSON."""

    status: int
    value: Any
    headers: Mapping[str, str]

    @property
    def error(self) -> tuple[int, int | None]:
        """Status and error code."""
        return self.status, self.value.get("error_code") if isinstance(self.value, dict) else None

    @property
    def message(self) -> str:
        """Text of an error."""
        return str(self.value["message"])


class Registry:
    """A registry by its address."""

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        self._host, self._prefix = parts.netloc, parts.path

    def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request; a body that is no bytes is sent as JSON."""
        connection = http.client.HTTPConnection(self._host, timeout=30)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        own = {} if data is None else {"Content-Type": MEDIA_TYPE}
        connection.request(method, self._prefix + path, data, {**own, **(headers or {})})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        return Answer(response.status, value, {name.lower(): held for name, held in response.getheaders()})

    def get(self, path: str, **headers: str) -> Answer:
        """Send GET."""
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: object) -> Answer:
        """Send POST."""
        return self.ask("POST", path, body)

    def put(self, path: str, body: object) -> Answer:
        """Send PUT."""
        return self.ask("PUT", path, body)

    def delete(self, path: str) -> Answer:
        """Send DELETE."""
        return self.ask("DELETE", path)

    def register(self, subject: str, text: str, kind: str | None = None, query: str = "", **fields: object) -> int:
        """Register a schema and return its id."""
        body = {"schema": text, **({} if kind is None else {"schemaType": kind}), **fields}
        answer = self.post(f"/subjects/{quote(subject, safe='')}/versions{query}", body)
        assert answer.status == 200, answer
        return int(answer.value["id"])
