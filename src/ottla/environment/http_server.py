"""HTTP/1.1 server on asyncio: h11 parses requests, a handler returns the responses.

A connection serves one request at a time; while a handler works, or the client does not read, nothing is read from it.

limit          default   what is beyond it
body           1 MiB     413, and the connection is closed
headers        64 KiB    431
connections    1,000     a new one takes the place of the oldest of the address that has most
idle           60 s      closed: time for the whole of a request, and between requests

A server on the loopback interface answers requests to its own names only, with 421 to others: a page of another site, whose
name resolves to 127.0.0.1, must not read them (DNS rebinding). A page of another site must not change anything either: requests
with the header Origin of another host are answered with 403.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Final, NamedTuple, cast

import h11

from ottla.environment.thread import LoopThread

_LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
_BACKLOG: Final = 256
_HANDSHAKE_S: Final = 10.0
_SWEEP_S: Final = 1.0
_ACCEPTED_PASSES: Final = 3
"""Passes of the loop after which a connection that was just accepted is announced, and has a transport that can be aborted."""
_LINGER_S: Final = 1.0
"""Time for which what a refused client still sends is read and dropped: closing at once would destroy the response."""
_PAGE_THREADS: Final = 16


class HttpRequest(NamedTuple):
    """A request. Names of headers are in lower case; `target` is path and query, as it was sent.

    peer  IP address of the client
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    peer: str = ""


class HttpResponse(NamedTuple):
    """Answer to a request."""

    body: bytes
    status: int = HTTPStatus.OK
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


class HttpLimits(NamedTuple):
    """Limits of a server, see the top of this file."""

    body: int = 1 << 20
    headers: int = 64 << 10
    connections: int = 1000
    idle_s: float = 60.0


Handler = Callable[[HttpRequest], HttpResponse | Coroutine[Any, Any, HttpResponse]]
"""Function or coroutine function that answers a request. What it raises becomes the answer, 503 with the message."""
Pages = Mapping[str, Callable[[str], HttpResponse]]
"""Functions that compute the answers, by path; each is called in a thread with the header Accept of the request."""


def plain_error(status: int, reason: str) -> HttpResponse:
    """Return an error as a line of text."""
    return HttpResponse(f"{reason}\n".encode(), status)


class HttpServer:
    """Server on the running event loop.

    error  makes the answers to what the handler does not see, or fails with, of status and reason
    """

    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits | None = None,
        error: Callable[[int, str], HttpResponse] = plain_error,
    ) -> None:
        self.handler = handler
        self.limits = limits or HttpLimits()
        self.error = error
        self.is_local = False
        self._connections: dict[_Connection, str] = {}
        self._server: asyncio.Server | None = None
        self._is_stopped = False
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, and return the port, a free one for 0. Raises OSError."""
        loop = asyncio.get_running_loop()
        self.is_local = host in _LOOPBACK
        listening = _bound(host, port)
        shaking = None if tls is None else _HANDSHAKE_S
        self._server = await loop.create_server(
            lambda: _Connection(self), sock=listening, ssl=tls, backlog=_BACKLOG, ssl_handshake_timeout=shaking
        )
        self._sweep = loop.call_later(_SWEEP_S, self._close_idle)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the listener and all connections, and cancel handlers that still work."""
        self._is_stopped = True
        if self._server is not None:
            loop = asyncio.get_running_loop()
            for listening in self._server.sockets:
                loop.remove_reader(listening.fileno())  # asyncio loses what it has accepted when its server is closed
            await _let_pass(_ACCEPTED_PASSES)
            self._server.close()
        if self._sweep is not None:
            self._sweep.cancel()
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for connection in list(self._connections):
            connection.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _let_pass(1)  # the transports close their sockets

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def admit(self, connection: "_Connection", address: str) -> None:
        """Add a connection; close another one when there are too many, and this one after the stop."""
        if self._is_stopped:
            connection.abort()
            return
        if len(self._connections) >= self.limits.connections:
            most, _ = Counter(self._connections.values()).most_common(1)[0]
            oldest = next(other for other, of in self._connections.items() if of == most)
            del self._connections[oldest]
            oldest.abort()
        self._connections[connection] = address

    def remove(self, connection: "_Connection") -> None:
        """Remove a connection that has ended."""
        self._connections.pop(connection, None)

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for connection in [other for other in self._connections if other.deadline < now]:
            connection.abort()
        self._sweep = loop.call_later(_SWEEP_S, self._close_idle)


async def _let_pass(passes: int) -> None:
    for _ in range(passes):
        await asyncio.sleep(0)


class _Connection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, server: HttpServer) -> None:
        self.task: asyncio.Task[None] | None = None
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=server.limits.headers)
        self._request: h11.Request | None = None
        self._peer = ""
        self._body: list[bytes] = []
        self._size = 0
        self._is_busy = False
        self._is_ending = False
        self._can_write = True
        self.deadline = self._loop.time() + server.limits.idle_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read."""
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._peer = peer[0] if peer else ""
        self._server.admit(self, self._peer)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a handler that works for a client that is gone."""
        del exc
        self._server.remove(self)
        self._is_ending = True
        if self.task is not None:
            self.task.cancel()

    def abort(self) -> None:
        """Close the connection at once."""
        self._is_ending = True
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived."""
        if self._is_ending:
            return
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        """Return whether the connection stays open: for the answer to a request that was sent whole."""
        if self._is_ending:
            return False
        self._http.receive_data(b"")
        self._advance()
        return self._is_busy

    def pause_writing(self) -> None:
        """Stop serving a client that does not read."""
        self._can_write = False
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Serve the next request."""
        self._can_write = True
        if not self._is_busy and not self._is_ending:
            self._transport.resume_reading()
            self._advance()

    def _advance(self) -> None:
        """Serve requests that have arrived, until one has to wait."""
        while not self._is_busy and not self._is_ending and self._can_write:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as wrong:
                self._refuse(wrong.error_status_hint, str(wrong))
                return
            if event is h11.NEED_DATA or event is h11.PAUSED:
                if self._http.they_are_waiting_for_100_continue:
                    self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
                return
            if isinstance(event, h11.Request):
                self._request, self._body, self._size = event, [], 0
                lengths = [value for name, value in event.headers if name == b"content-length"]
                if lengths and int(lengths[0]) > self._server.limits.body:
                    self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_large())
            elif isinstance(event, h11.Data):
                self._size += len(event.data)
                self._body.append(bytes(event.data))
                if self._size > self._server.limits.body:
                    self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._too_large())
            elif isinstance(event, h11.EndOfMessage):
                self._serve()
            else:
                self._is_ending = True
                self._transport.close()

    def _too_large(self) -> str:
        return f"the body is larger than {self._server.limits.body} bytes"

    def _serve(self) -> None:
        """Call the handler for a request that has arrived whole."""
        assert self._request is not None
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._request.headers}
        request = HttpRequest(
            self._request.method.decode("ascii"),
            self._request.target.decode("latin-1"),
            headers,
            b"".join(self._body),
            self._peer,
        )
        self._body = []
        refusal = self._refusal(request)
        if refusal is not None:
            self._respond(refusal)
            return
        try:
            response = self._server.handler(request)
        except Exception as error:  # noqa: BLE001  (any failure of a handler is the answer to its request)
            response = self._failure(error)
        if isinstance(response, HttpResponse):
            self._respond(response)
            return
        self._is_busy = True
        self.deadline = float("inf")
        self._transport.pause_reading()
        self.task = self._loop.create_task(self._await(response))

    def _refusal(self, request: HttpRequest) -> HttpResponse | None:
        """Return the answer to a request that a page of another site may have made, see the top of this file."""
        host = request.headers.get("host", "localhost")
        if self._server.is_local and _host_name(host) not in _LOOPBACK:
            return self._server.error(HTTPStatus.MISDIRECTED_REQUEST, "this host is not served")
        origin = request.headers.get("origin")
        if origin is not None and origin.rpartition("//")[2].lower() != host.lower():
            return self._server.error(HTTPStatus.FORBIDDEN, "pages of other sites are not served")
        return None

    async def _await(self, response: Coroutine[Any, Any, HttpResponse]) -> None:
        try:
            answer = await response
        except Exception as error:  # noqa: BLE001  (see `_serve`)
            answer = self._failure(error)
        self.task = None
        self._is_busy = False
        if self._is_ending:
            return
        if self._can_write:
            self._transport.resume_reading()
        self._respond(answer)
        self._advance()

    def _respond(self, response: HttpResponse) -> None:
        headers = [("content-type", response.content_type), ("content-length", str(len(response.body)))]
        if response.status == HTTPStatus.NO_CONTENT:
            headers = []
        answer = h11.Response(
            status_code=response.status,
            headers=[*headers, *response.headers],
            reason=_REASONS.get(response.status, b""),
        )
        parts = [self._http.send(answer)]
        if self._request is None or self._request.method != b"HEAD":
            parts.append(self._http.send(h11.Data(data=response.body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        self._write(b"".join(part for part in parts if part))
        self.deadline = self._loop.time() + self._server.limits.idle_s
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._request = None
        else:
            self._end()

    def _refuse(self, status: int, reason: str) -> None:
        """Answer what is no request, and close the connection."""
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._respond(self._server.error(status, reason)._replace(headers=(("connection", "close"),)))
        else:
            self.abort()

    def _failure(self, error: Exception) -> HttpResponse:
        return self._server.error(HTTPStatus.SERVICE_UNAVAILABLE, f"{type(error).__name__}: {error}")

    def _end(self) -> None:
        """Close the connection after what was written; what the client still sends is dropped for a second."""
        self._is_ending = True
        if self._http.their_state is h11.CLOSED or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()
            self.deadline = self._loop.time() + _LINGER_S

    def _write(self, data: bytes | None) -> None:
        if data and not self._transport.is_closing():
            self._transport.write(data)


_REASONS: Final = {status.value: status.phrase.encode() for status in HTTPStatus}


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address. Raises OSError, with the reason of the system only."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def _host_name(text: str) -> str:
    """Return the name or address of a header Host, without port and brackets."""
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].lower()


def serve_pages(host: str, port: int, pages: Pages) -> tuple[int, Callable[[], None]]:
    """Serve pages on an event loop in a thread of its own; return the port (a free one for 0) and a function that stops it.

    Requests are GET or HEAD; the functions run in up to 16 threads. Raises OSError.
    """
    executor = ThreadPoolExecutor(_PAGE_THREADS, "ottla-http")

    async def respond(page: Callable[[str], HttpResponse], accept: str) -> HttpResponse:
        return await asyncio.get_running_loop().run_in_executor(executor, page, accept)

    def handle(request: HttpRequest) -> HttpResponse | Coroutine[Any, Any, HttpResponse]:
        page = pages.get(request.target.partition("?")[0])
        if page is None:
            return HttpResponse(b"not found\n", HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(
                b"only GET is served\n", HTTPStatus.METHOD_NOT_ALLOWED, headers=(("allow", "GET, HEAD"),)
            )
        return respond(page, request.headers.get("accept", ""))

    thread = LoopThread.own("ottla-http")
    server = HttpServer(handle)

    def stop() -> None:
        asyncio.run_coroutine_threadsafe(server.stop(), thread.loop).result()
        executor.shutdown(wait=False, cancel_futures=True)
        thread.release()

    try:
        bound = asyncio.run_coroutine_threadsafe(server.start(host, port), thread.loop).result()
    except OSError:
        stop()
        raise
    return bound, stop
