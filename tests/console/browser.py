"""A console of a test, and a browser of it that finds the CSRF token of its forms. Skips without the extra `console`."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest

from ottla.schemas.registry import SchemaRegistry
from tests.console import Broker

for library in ("starlette", "jinja2", "uvicorn"):
    pytest.importorskip(library, reason="the console needs its extra: pip install 'ottla[console]'")

from starlette.testclient import TestClient  # noqa: E402  (after the check for the extra)

from ottla.cli.own.console import _internal_record  # noqa: E402
from ottla.console.application import console_application  # noqa: E402
from ottla.console.settings import ClusterAccess, Settings  # noqa: E402

__all__ = ["Browse", "Browser", "browsing", "console_application", "settings_for"]

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class Browser:
    """Client of a console: keeps cookies, and sends forms with the token of the last page."""

    def __init__(self, client: TestClient, base: str = "/c/test") -> None:
        self.client = client
        self.base = base
        self.csrf = ""

    def get(self, path: str, status: int = 200, /, **query: Any) -> str:
        """Return the text of a page of the cluster."""
        response = self.client.get(self.base + path, params=query or None)
        assert response.status_code == status, response.text
        token = re.search(r'name="csrf-token" content="(\w+)"', response.text)
        if token:
            self.csrf = token[1]
        return unescape(response.text)

    def post(self, path: str, status: int = 200, /, **fields: Any) -> str:
        """Send a form, follow the redirect, and return the text of the page after it."""
        response = self.client.post(self.base + path, data={"csrf": self.csrf, **fields})
        assert response.status_code == status, response.text
        return unescape(response.text)


def settings_for(
    *brokers: Broker, registry: SchemaRegistry | None = None, metrics: tuple[str, ...] = (), **options: Any
) -> Settings:
    """Settings of a console with the clusters "test", "test2" and so on."""
    clusters = tuple(
        ClusterAccess(
            f"test{number or ''}",
            broker.client,
            ("--bootstrap-server", broker.bootstrap_servers),
            registry,
            metrics,
        )
        for number, broker in enumerate(brokers)
    )
    return Settings(clusters, internal_record=_internal_record, **options)


@contextmanager
def browsing(
    app: "ASGIApp", base: str = "/c/test", host: str = "127.0.0.1", address: str = "127.0.0.1"
) -> Iterator[Browser]:
    """A browser at a running console, which it connects to from an address."""
    with TestClient(app, base_url=f"http://{host}", client=(address, 50_000)) as client:
        yield Browser(client, base)


Browse = Callable[..., Browser]
