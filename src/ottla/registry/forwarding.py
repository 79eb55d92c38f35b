"""Requests that another registry has to carry out: sent to it as they came, and answered with its answer."""

import http.client
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from ottla.environment.http_server import HttpRequest, HttpResponse

_TIMEOUT_S: Final = 10.0
_PASSED_ON: Final = (
    "authorization",
    "content-type",
    "accept",
    "x-request-id",
    "confluent-accept-unknown-properties",
)
FORWARDED: Final = "x-forward"
"""Header of a request that was forwarded: it is not forwarded again."""


class CannotForward(Exception):
    """The other registry does not answer."""


def forward(request: HttpRequest, url: str) -> HttpResponse:
    """Send a request to the registry at a URL, and return its answer. Blocks. Raises CannotForward."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT_S)
    headers: Mapping[str, str] = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
    try:
        connection.request(request.method, request.target, request.body or None, {**headers, FORWARDED: "true"})
        answer = connection.getresponse()
        identifier = answer.headers.get("x-request-id")
        echoed = () if identifier is None else (("x-request-id", identifier),)
        return HttpResponse(answer.read(), answer.status, answer.headers.get("content-type", ""), echoed)
    except (OSError, http.client.HTTPException) as failed:
        raise CannotForward(f"{url}: {failed}") from None
    finally:
        connection.close()
