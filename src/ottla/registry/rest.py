"""Requests over HTTP: media types, errors, and a cache of answers.

Answers to GET, and to identical registrations and look-ups, are kept as bytes until a record changes the state: serializers of
all processes ask the same few questions.
"""

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

from ottla.environment.http_server import HttpRequest, HttpResponse
from ottla.registry import routes
from ottla.registry.calls import Call, segments_of
from ottla.registry.operations import Operations
from ottla.registry.refusals import NOT_LEADING, Refusal

_logger = logging.getLogger("ottla.registry")
_JSON: Final = "application/json"
MEDIA_TYPES: Final = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", _JSON)
_BODY_TYPES: Final = frozenset({*MEDIA_TYPES, "application/octet-stream"})
_EXPANDED: Final = "confluent-accept-unknown-properties"
_MOST_KEPT: Final = 32 << 20
"""Bytes of requests and answers that are kept."""
_LARGEST_KEPT: Final = 100_000
_KEPT_BESIDES: Final = 1000
"""About the bytes that an answer takes besides its body."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
_FAILED: Final = "Internal Server Error: the log says why"
_CHANGING: Final = frozenset({"DELETE", "PUT"})
Kept = tuple[str, str, str, bool, bytes]


class Rest:
    """REST API of a registry.

    operations  what requests do; None while the registry is not ready
    waiting_for  why it is not
    on_answer   called with method, path of the table and status of each answer
    forward     sends a request that changes something to the registry that writes; None if there is no other one
    """

    def __init__(
        self,
        on_answer: Callable[[str, str, int], object],
        forward: Callable[[HttpRequest], Awaitable[HttpResponse | None]],
    ) -> None:
        self.operations: Operations | None = None
        self.waiting_for = "it has not read its topic yet"
        self._on_answer = on_answer
        self._forward = forward
        self._kept: dict[Kept, HttpResponse] = {}
        self._kept_bytes = 0

    def forget(self) -> None:
        """Drop the answers that are kept: the state has changed."""
        self._kept.clear()
        self._kept_bytes = 0

    def handle(self, request: HttpRequest) -> HttpResponse | Coroutine[Any, Any, HttpResponse]:
        """Answer a request."""
        headers = request.headers
        accept = _answer_type(headers.get("accept", "*/*"))
        if accept is None:
            return _plain(HTTPStatus.NOT_ACCEPTABLE, "HTTP 406 Not Acceptable", _JSON)
        is_expanded = headers.get(_EXPANDED, "").lower() == "true"
        kept = (request.method, request.target, accept, is_expanded, request.body)
        answer = self._kept.get(kept)
        if answer is not None:
            return answer._replace(headers=_request_id_headers(request)) if "x-request-id" in headers else answer
        segments, query = segments_of(request.target)
        match = routes.find(request.method, segments)
        if match is None:
            return self._respond("", HTTPStatus.NOT_FOUND, _error(404, "HTTP 404 Not Found"), accept, request)
        if match.route is None:
            error = _error(405, "HTTP 405 Method Not Allowed")
            return self._respond("", HTTPStatus.METHOD_NOT_ALLOWED, error, accept, request)
        path = match.route.path
        sent = _media_type(headers.get("content-type", _JSON))
        if request.body and sent not in _BODY_TYPES:
            # What curl sends without a header, and a newcomer does not see.
            message = f"HTTP 415 Unsupported Media Type: Content-Type must be {_JSON}, not {sent}"
            return _plain(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message, accept)
        if self.operations is None and path:
            error = _error(503, f"The registry cannot serve requests yet: {self.waiting_for}")
            return self._respond(path, HTTPStatus.SERVICE_UNAVAILABLE, error, accept, request)
        call = Call(match.parts, query, request.body, is_expanded)
        return self._call(match.route, call, kept, accept, request)

    def _call(
        self, route: routes.Route, call: Call, kept: Kept, accept: str, request: HttpRequest
    ) -> HttpResponse | Coroutine[Any, Any, HttpResponse]:
        try:
            result = route.endpoint(self.operations, call) if self.operations is not None else {}
        except Refusal as refusal:
            return self._refusal_response(route, refusal, accept, request)
        except Exception:
            _logger.exception("%s /%s failed", route.method, route.path)
            return self._refusal_response(route, Refusal(500, _FAILED), accept, request)
        if inspect.isawaitable(result):
            return self._wait(route, result, kept, accept, request)
        return self._keep(kept, self._respond(route.path, HTTPStatus.OK, _encode(result), accept, request))

    async def _wait(
        self, route: routes.Route, result: Awaitable[Any], kept: Kept, accept: str, request: HttpRequest
    ) -> HttpResponse:
        operations = self.operations
        end = operations.state.end if operations is not None else -1
        try:
            value = await result
        except Refusal as refusal:
            if refusal.code == NOT_LEADING:
                try:
                    forwarded = await self._forward(request)
                except Refusal as failed:
                    return self._refusal_response(route, failed, accept, request)
                if forwarded is not None:
                    self._on_answer(request.method, route.path, forwarded.status)
                    return forwarded
            return self._refusal_response(route, refusal, accept, request)
        except asyncio.CancelledError:
            if operations is self.operations:
                raise
            return self._refusal_response(route, Refusal(503, "The registry has lost its topic"), accept, request)
        except Exception:
            _logger.exception("%s /%s failed", route.method, route.path)
            return self._refusal_response(route, Refusal(500, _FAILED), accept, request)
        if value is None:
            return self._respond(route.path, HTTPStatus.NO_CONTENT, b"", accept, request)
        answer = self._respond(route.path, HTTPStatus.OK, _encode(value), accept, request)
        is_current = operations is not None and operations is self.operations and operations.state.end == end
        return self._keep(kept, answer) if is_current else answer

    def _keep(self, kept: Kept, answer: HttpResponse) -> HttpResponse:
        """Keep an answer that only a change of the state will change."""
        size = len(kept[1]) + len(kept[4]) + len(answer.body) + _KEPT_BESIDES
        if kept[0] not in _CHANGING and size <= _LARGEST_KEPT:
            if self._kept_bytes + size > _MOST_KEPT:
                self.forget()
            self._kept[kept] = answer._replace(headers=())
            self._kept_bytes += size
        return answer

    def _refusal_response(
        self, route: routes.Route, refusal: Refusal, accept: str, request: HttpRequest
    ) -> HttpResponse:
        body = _error(refusal.code, refusal.message)
        return self._respond(route.path, refusal.status, body, accept, request)

    def _respond(self, path: str, status: int, body: bytes, accept: str, request: HttpRequest) -> HttpResponse:
        self._on_answer(request.method if request.method in _METHODS else "other", path, status)
        return HttpResponse(body, status, accept, _request_id_headers(request))


def _request_id_headers(request: HttpRequest) -> tuple[tuple[str, str], ...]:
    identifier = request.headers.get("x-request-id")
    return () if identifier is None else (("x-request-id", identifier),)


def error_answer(status: int, reason: str) -> HttpResponse:
    """Return an error of the HTTP server in the form of a registry: clients expect JSON."""
    return HttpResponse(_error(int(status), reason), status, MEDIA_TYPES[0])


def _error(code: int, message: str) -> bytes:
    return _encode({"error_code": code, "message": message})


def _plain(status: int, message: str, content_type: str) -> HttpResponse:
    """Return an answer to a request that is refused by its media types."""
    return HttpResponse(_encode({"message": message}), status, content_type)


def _encode(value: Any) -> bytes:
    """Return an answer as bytes; a text is sent as it is."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _media_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()


@lru_cache(maxsize=1000)
def _answer_type(accept: str) -> str | None:
    """Return the type of the answer for a header Accept, None if it allows none of them."""
    for part in accept.split(","):
        media_type = _media_type(part)
        if media_type in MEDIA_TYPES:
            return media_type
        if media_type in ("*/*", "application/*", ""):
            return MEDIA_TYPES[0]
    return None
