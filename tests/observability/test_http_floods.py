"""The HTTP server of metrics and health beside clients that are slow, many, or of another site."""

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ottla.environment.http_serving import MOST_THREADS, Page, serve_pages


@pytest.fixture
def port() -> Iterator[int]:
    port, stop = serve_pages("127.0.0.1", 0, {"/page": lambda _: Page(b"answer")})
    yield port
    stop()


def get(port: int, host: str | None = None, source: str = "127.0.0.2") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=(source, 0))
    connection.request("GET", "/page?x=1", headers={} if host is None else {"Host": host})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def test_a_flood_of_half_requests_has_few_threads_and_others_get_their_answer(port: int) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        for number in range(300):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(b"GET /page HTTP/1.1\r\nHost: localhost\r\n")
            if number % 50 == 0:
                assert get(port) == (200, b"answer")
            assert threading.active_count() - before <= 2 * MOST_THREADS
        time.sleep(0.2)
        assert threading.active_count() - before <= MOST_THREADS
        assert get(port) == (200, b"answer")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9464", "127.0.0.1:1", "[::1]:9464", None])
def test_a_server_on_loopback_answers_to_its_own_names(port: int, host: str | None) -> None:
    assert get(port, host) == (200, b"answer")


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example:9464", "127.0.0.1.evil.example", "[::2]", "10.0.0.1"]
)
def test_a_page_of_another_site_cannot_read_it(port: int, host: str) -> None:
    """Its name resolves to 127.0.0.1 when the browser asks again (DNS rebinding)."""
    assert get(port, host)[0] == 421
