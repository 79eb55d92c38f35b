"""Login to a registry: HTTP Basic, users with hashed passwords, some of whom may only read.

A hash takes some 50 ms of CPU on purpose. Passwords are checked in a thread of their own, one at a time, and one that was right
is remembered for a minute; logins beyond those that wait are refused, so that guesses cost little.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final

from ottla.environment.http_server import Handler, HttpRequest, HttpResponse
from ottla.registry.calls import segments_of
from ottla.registry.permissions import Permissions
from ottla.security.passwords import PasswordFile

_REMEMBERED_S: Final = 60.0
_MOST_REMEMBERED: Final = 1000
_MOST_WAITING: Final = 50
_CHALLENGE: Final = (("www-authenticate", 'Basic realm="schema registry", charset="UTF-8"'),)


class Login:
    """Login of a registry's clients.

    passwords    users
    read_only    users who may not change anything
    permissions  what users may do; None: everything
    """

    def __init__(
        self, passwords: PasswordFile, read_only: frozenset[str], permissions: Permissions | None = None
    ) -> None:
        self._passwords = passwords
        self._read_only = read_only
        self._permissions = permissions
        self._executor = ThreadPoolExecutor(1, "ottla-logins")
        self._remembered: dict[bytes, float] = {}
        self._waiting = 0

    def close(self) -> None:
        """End the thread."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def around(self, handler: Handler) -> Handler:
        """Return a handler that lets only users in."""

        def handle(request: HttpRequest) -> HttpResponse | Coroutine[Any, Any, HttpResponse]:
            pair = _credentials(request.headers.get("authorization", ""))
            if pair is None:
                return _error_response(HTTPStatus.UNAUTHORIZED, _CHALLENGE)
            user, password = pair
            digest = hashlib.sha256(f"{user}:{password}".encode()).digest()
            if self._remembered.get(digest, 0.0) > time.monotonic():
                return self._serve_if_permitted(request, user, handler)
            if self._waiting >= _MOST_WAITING:
                return _error_response(HTTPStatus.TOO_MANY_REQUESTS)
            return log_in(request, user, password, digest)

        async def log_in(request: HttpRequest, user: str, password: str, digest: bytes) -> HttpResponse:
            self._waiting += 1
            try:
                loop = asyncio.get_running_loop()
                is_right = await loop.run_in_executor(self._executor, self._passwords.accepts, user, password)
            finally:
                self._waiting -= 1
            if not is_right:
                return _error_response(HTTPStatus.UNAUTHORIZED, _CHALLENGE)
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[digest] = time.monotonic() + _REMEMBERED_S
            response = self._serve_if_permitted(request, user, handler)
            return response if isinstance(response, HttpResponse) else await response

        return handle

    def _serve_if_permitted(
        self, request: HttpRequest, user: str, handler: Handler
    ) -> HttpResponse | Coroutine[Any, Any, HttpResponse]:
        """Serve a request as far as the user may send it."""
        permissions = self._permissions
        if user in self._read_only and not is_reading(request):
            return _error_response(HTTPStatus.FORBIDDEN)
        if permissions is None:
            return handler(request)
        refusal = permissions.refusal(request, user)
        if refusal is not None:
            return refusal
        response = handler(request)
        if isinstance(response, HttpResponse):
            return permissions.hide_unreadable(request, user, response)

        async def later() -> HttpResponse:
            return permissions.hide_unreadable(request, user, await response)

        return later()


def is_reading(request: HttpRequest) -> bool:
    """Return whether a request changes nothing: a look-up of a schema and a check of compatibility are POST as well."""
    if request.method in ("GET", "HEAD"):
        return True
    segments = segments_of(request.target)[0]
    return request.method == "POST" and (
        segments[0] == "compatibility" or (segments[0] == "subjects" and len(segments) == 2)
    )


def _credentials(header: str) -> tuple[str, str] | None:
    """Return user and password of a header Authorization, None for another one."""
    kind, _, text = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None


def _error_response(status: HTTPStatus, headers: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
    error = {"error_code": status.value, "message": f"HTTP {status.value} {status.phrase}"}
    return HttpResponse(json.dumps(error).encode(), status, "application/json", headers)
