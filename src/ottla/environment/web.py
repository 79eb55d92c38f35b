"""Requests to web servers, for tokens and keys of OAuth servers. They block: a worker runs them."""

import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ALLOWED_URLS: Final = "OTTLA_OAUTH_URLS"
_MOST_BYTES: Final = 1 << 20
_MOST_REASON: Final = 200


class CannotFetch(Exception):
    """A document that could not be fetched: the address and the reason in one line.

    status      HTTP status, 0 if no server answered
    is_lasting  another attempt fails as well: there is no such file, or the server's certificate is not trusted
    """

    def __init__(self, message: str, status: int = 0, *, is_lasting: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.is_lasting = is_lasting


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """Follows no redirection, which would send credentials to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch(
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_ms: int = 10_000,
    context: ssl.SSLContext | None = None,
) -> bytes:
    """Return the document at an http:, https: or file: URL. Raises CannotFetch.

    The environment variable OTTLA_OAUTH_URLS lists the URLs that are allowed, separated by commas, as Apache Kafka's system
    property org.apache.kafka.sasl.oauthbearer.allowed.urls does: for programs whose configs come from others (CVE-2025-27817).

    A request with a body is a POST, and follows no redirection.

    context  TLS of an https: URL; None trusts the authorities of the system
    """
    allowed = os.environ.get(ALLOWED_URLS)
    if allowed is not None and url not in map(str.strip, allowed.split(",")):
        raise CannotFetch(f"{url} is not in the environment variable {ALLOWED_URLS}", is_lasting=True)
    parts = urllib.parse.urlsplit(url)
    try:
        if parts.scheme == "file":
            return Path(urllib.request.url2pathname(parts.path)).read_bytes()
        if parts.scheme not in ("http", "https"):
            raise CannotFetch(f"{url}: the URL must begin with https:, http: or file:")
        request = urllib.request.Request(url, body, dict(headers or {}))
        handlers = [urllib.request.HTTPSHandler(context=context), *([] if body is None else [_NoRedirection()])]
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_ms / 1000) as response:
            document: bytes = response.read(_MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        reason = error.read(_MOST_REASON).decode("utf-8", "replace").strip()
        raise CannotFetch(
            f"{url}: HTTP {error.code} {error.reason}{f': {reason}' if reason else ''}", error.code
        ) from None
    except (OSError, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        text = getattr(cause, "strerror", None) or cause
        is_lasting = parts.scheme == "file" or isinstance(cause, ssl.SSLCertVerificationError)
        raise CannotFetch(f"{url}: {text}", is_lasting=is_lasting) from None
    if len(document) > _MOST_BYTES:
        raise CannotFetch(f"{url}: the document is larger than {_MOST_BYTES} bytes")
    return document
