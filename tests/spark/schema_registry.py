"""A Schema Registry in the process of a test: what clients need of Confluent's REST API, schemas in memory."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit


class Registry:
    """A registry in memory with the requests that it received; `failures` are statuses of the first responses; `user_info`, if
    set, is required.

    settings  configs and modes, by kind ("config" or "mode") and subject, "" for the default one
    policy    compatibility policy of all subjects
    """

    def __init__(self) -> None:
        self.address = ""
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.failures: list[int] = []
        self.user_info: str | None = None
        self.policy: str | None = None
        self.settings = {("config", ""): "BACKWARD", ("mode", ""): "READWRITE"}

    def add(self, subject: str, text: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """The id that a schema has or gets under a subject."""
        schema = {"schema": text, "schemaType": kind, "references": references or []}
        if schema not in self.schemas:
            self.schemas.append(schema)
        number = self.schemas.index(schema) + 1
        numbers = self.subjects.setdefault(subject, [])
        if number not in numbers:
            numbers.append(number)
        return number

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        if (compatible := self._compatibility(path, body)) is not None:
            return compatible
        match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")], body:
            case ["schemas", "ids", number], None:
                if int(number) > len(self.schemas):
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                return 200, self.schemas[int(number) - 1]
            case ["subjects"], None:
                return 200, list(self.subjects)
            case ["subjects", subject, "versions"], None if subject in self.subjects:
                return 200, [at for at, number in enumerate(self.subjects[subject], 1) if number]
            case ["subjects", subject, "versions", version], None if subject in self.subjects:
                numbers = self.subjects[subject]
                at = len(numbers) if version == "latest" else int(version)
                if not 0 < at <= len(numbers) or not numbers[at - 1]:
                    return 404, {"error_code": 40402, "message": f"Version {at} not found."}
                return 200, self._registered(subject, numbers[at - 1], at)
            case ["subjects", subject, "versions"], dict():
                added = self.add(subject, body["schema"], body.get("schemaType", "AVRO"), body.get("references"))
                return 200, {"id": added}
            case ["subjects", subject], dict() if subject in self.subjects:
                for place, known in enumerate(self.subjects[subject], 1):
                    if self.schemas[known - 1]["schema"] == body["schema"]:
                        return 200, self._registered(subject, known, place)
                return 404, {"error_code": 40403, "message": "Schema not found"}
        return 404, {"error_code": 40401, "message": "Subject not found."}

    def _compatibility(self, path: str, body: Any) -> tuple[int, Any] | None:
        """Answer requests about compatibility: a new schema must have the type of the latest one."""
        match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")], body:
            case ["config" | "mode" as kind, *subjects], None:
                value = self.settings.get((kind, "".join(subjects)), self.settings[(kind, "")])
                if kind == "mode":
                    return 200, {"mode": value}
                return 200, {"compatibilityLevel": value, "compatibilityPolicy": self.policy}
            case ["compatibility", "subjects", subject, "versions", "latest"], dict() if subject in self.subjects:
                kind = self.schemas[self.subjects[subject][-1] - 1]["schemaType"]
                if kind == body["schemaType"]:
                    return 200, {"is_compatible": True}
                return 200, {"is_compatible": False, "messages": [f"the latest version is {kind}"]}
        return None

    def put(self, path: str, body: Any) -> tuple[int, Any]:
        """Set a config or mode."""
        kind, *subjects = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        (self.settings[(kind, "".join(subjects))],) = body.values()
        return 200, body

    def delete(self, path: str) -> tuple[int, Any]:
        """Delete a subject, or the newest version or one before it; version numbers stay. Or a config or mode."""
        if "permanent=true" in path:
            return 200, []
        match [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]:
            case ["config" | "mode" as kind, *subjects] if (kind, "".join(subjects)) in self.settings:
                return 200, {"mode": self.settings.pop((kind, "".join(subjects)))}
            case ["subjects", subject] if subject in self.subjects:
                return 200, list(range(1, len(self.subjects.pop(subject)) + 1))
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                self.subjects[subject][int(version) - 1] = 0
                return 200, int(version)
        return 404, {"error_code": 40401, "message": "Subject not found."}

    def _registered(self, subject: str, number: int, version: int) -> dict[str, Any]:
        return {"subject": subject, "id": number, "version": version, **self.schemas[number - 1]}


@contextmanager
def serving() -> Iterator[Registry]:
    """A registry that listens on a port of its own."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_PUT(self) -> None:
            self.do_POST()

        def do_DELETE(self) -> None:
            self._answer(None)

        def _answer(self, body: Any) -> None:
            registry.asked.append(f"{self.command} {self.path}")
            expected = registry.user_info and f"Basic {base64.b64encode(registry.user_info.encode()).decode()}"
            if registry.failures:
                status, answer = registry.failures.pop(0), {"message": "not now"}
            elif expected and self.headers["Authorization"] != expected:
                status, answer = 401, {"message": "Unauthorized"}
            else:
                if self.command == "PUT":
                    status, answer = registry.put(self.path, body)
                elif self.command == "DELETE":
                    status, answer = registry.delete(self.path)
                else:
                    status, answer = registry.answer(self.path, body)
            payload = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
