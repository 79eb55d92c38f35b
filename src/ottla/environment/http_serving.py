"""HTTP server for metrics and health, in threads of its own: GET requests only, one answer for each path."""

import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import AF_INET6
from typing import NamedTuple
from urllib.parse import urlsplit


class Page(NamedTuple):
    """Answer to a request."""

    body: bytes
    status: int = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"


Pages = Mapping[str, Callable[[str], Page]]
"""Functions that compute the answers, by path; each is called in a thread with the header Accept of the request."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class _Server6(_Server):
    address_family = AF_INET6


def serve_pages(host: str, port: int, pages: Pages) -> tuple[int, Callable[[], None]]:
    """Serve pages; returns the port (a free one for 0) and a function that stops the server. Raises OSError.

    A page that raises is answered with 503 and the message of the exception; other paths with 404.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            page = pages.get(urlsplit(self.path).path)
            answer = (
                Page(b"not found\n", HTTPStatus.NOT_FOUND)
                if page is None
                else _computed(page, self.headers.get("Accept", ""))
            )
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


def _computed(page: Callable[[str], Page], accept: str) -> Page:
    try:
        return page(accept)
    except Exception as error:  # noqa: BLE001  (any failure of a page is the answer to its request)
        return Page(f"{type(error).__name__}: {error}\n".encode(), HTTPStatus.SERVICE_UNAVAILABLE)
