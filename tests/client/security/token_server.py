"""Token endpoint of an OAuth server in a thread, which grants unsecured tokens."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

Answer = tuple[int, dict[str, str], bytes]


def unsecured(subject: str = "olga", lifetime_s: float = 3600, **claims: Any) -> str:
    """An unsecured token."""
    now = time.time()
    parts = [{"alg": "none"}, {"sub": subject, "iat": now - 1, "exp": now + lifetime_s} | claims]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def granted(token: str, **fields: Any) -> Answer:
    """The answer with a token."""
    document = {"access_token": token, "token_type": "Bearer"} | fields
    return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()


class TokenServer:
    """Requests and answers of a token endpoint.

    requests  headers and form fields of each request
    answer    called for each request
    """

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, str]]] = []
        self.answer: Callable[[], Answer] = lambda: granted(unsecured())
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                fields = {name: values[0] for name, values in parse_qs(body).items()}
                server.requests.append((dict(self.headers), fields))
                status, headers, document = server.answer()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(document)))
                self.end_headers()
                self.wfile.write(document)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        scheme = "https" if hasattr(self.http.socket, "context") else "http"
        return f"{scheme}://127.0.0.1:{self.http.server_address[1]}/token"


@contextmanager
def token_server(tls: Any = None) -> Iterator[TokenServer]:
    """A token endpoint; `tls` is its SSLContext."""
    server = TokenServer()
    if tls is not None:
        server.http.socket = tls.wrap_socket(server.http.socket, server_side=True)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()
