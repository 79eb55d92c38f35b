"""HTTP server for metrics and health, in threads of its own: GET requests only, one answer for each path.

Each connection has a thread, of which there are few. When all are taken, a new connection takes the place of the oldest one of
the address that has most, so that a scrape and a probe get their answer beside clients that never send a whole request.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6, SHUT_RDWR
from typing import Any, Final, NamedTuple


class Page(NamedTuple):
    """Answer to a request."""

    body: bytes
    status: int = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


Pages = Mapping[str, Callable[[str], Page]]
"""Functions that compute the answers, by path; each is called in a thread with the header Accept of the request."""


MOST_THREADS: Final = 16
_TIMEOUT_S: Final = 30.0
"""Time for which a thread waits for bytes of its client, or for room to send."""
_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *arguments: Any) -> None:
        self._connections: dict[Any, str] = {}
        """Sockets and the addresses of their clients, in the order in which they came."""
        self._running = 0
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own; close another one, or this one, when there are too many."""
        with self._lock:
            if len(self._connections) >= MOST_THREADS:
                most, _ = Counter(self._connections.values()).most_common(1)[0]
                oldest = next(connection for connection, address in self._connections.items() if address == most)
                del self._connections[oldest]
                with suppress(OSError):
                    oldest.shutdown(SHUT_RDWR)  # its thread closes it
            is_full = self._running >= 2 * MOST_THREADS  # those whose connection was shut down are still ending
            if not is_full:
                self._running += 1
                self._connections[request] = client_address[0]
        if is_full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._running -= 1

    def close_request(self, request: Any) -> None:
        """Close a connection that has ended."""
        with self._lock:
            self._connections.pop(request, None)
        super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client may break its connection at any time."""


class _Server6(_Server):
    address_family = AF_INET6


def serve_pages(host: str, port: int, pages: Pages) -> tuple[int, Callable[[], None]]:
    """Serve pages; returns the port (a free one for 0) and a function that stops the server. Raises OSError.

    A page that raises is answered with 503 and the message of the exception; other paths with 404. A server on the loopback
    interface answers requests to its own names only, with 421 to others: a page of another site, whose name resolves to
    127.0.0.1, must not read them (DNS rebinding).
    """
    is_local = host in _LOOPBACK

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _TIMEOUT_S

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            if is_local and _host_name(self.headers.get("Host", "localhost")) not in _LOOPBACK:
                answer = Page(b"this host is not served\n", HTTPStatus.MISDIRECTED_REQUEST)
            elif page is None:
                answer = Page(b"not found\n", HTTPStatus.NOT_FOUND)
            else:
                answer = _computed(page, self.headers.get("Accept", ""))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Log nothing: probes and scrapes come every few seconds."""

    server = (_Server6 if ":" in host else _Server)((host, port), Handler)
    thread = threading.Thread(target=server.serve_forever, name="ottla-http", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop


def _host_name(text: str) -> str:
    """Return the name or address of a header Host, without port and brackets."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].lower()


def _computed(page: Callable[[str], Page], accept: str) -> Page:
    try:
        return page(accept)
    except Exception as error:  # noqa: BLE001  (any failure of a page is the answer to its request)
        return Page(f"{type(error).__name__}: {error}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
