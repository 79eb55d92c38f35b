"""One HTTP/1.1 connection of the JSON gateway's client: bytes by h11, sockets by the transport of the environment.

One request at a time; a connection is used again after its response has ended. The body of a streamed response is passed on as
it arrives.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import h11

from ottla.environment import Address, Stream, Transport
from ottla.metadata.store.etcd.url import endpoint_text
from ottla.tasks.deferred import Deferred
from ottla.tasks.queue import CallbackQueue

_RECEIVE: Final = 1 << 16


class HttpError(Exception):
    """Failed request; `was_sent` is False if no byte of it has reached the server."""

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.was_sent = was_sent


class HttpResponse(NamedTuple):
    """Response; the body is empty if it was streamed."""

    status: int
    body: bytes


class _Exchange:
    """Request, and what has arrived of its response."""

    def __init__(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, tasks: CallbackQueue
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body
        self.receive: Callable[[bytes], None] | None = None
        self.status = 0
        self.pieces: list[bytes] = []
        self.promise: Deferred[HttpResponse] = Deferred(tasks)


class HttpConnection:
    """Connection to one endpoint, which is opened at once; the first request may be made before that has succeeded.

    lost_because  reason why the connection cannot be used any more, None while it can
    opened        promise that is kept at the end of the connection attempt, whether it succeeded or not
    is_closed     True if the connection ended because it was closed here
    """

    def __init__(self, transport: Transport, address: Address, tasks: CallbackQueue) -> None:
        self._tasks = tasks
        self.address = address
        self.lost_because: str | None = None
        self.opened: Deferred[None] = Deferred(tasks)
        self.is_closed = False
        self._parser = h11.Connection(h11.CLIENT)
        self._stream: Stream | None = None
        self._exchange: _Exchange | None = None
        self._room = bytearray(_RECEIVE)
        self._give_up: Callable[[], None] | None = transport.open(address, self)

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
        receive: Callable[[bytes], None] | None = None,
    ) -> Deferred[HttpResponse]:
        """Send a request; the promise fails with HttpError.

        receive  called with each piece of the body of a response with status 200
        """
        exchange = _Exchange(method, target, headers, body, self._tasks)
        exchange.receive = receive
        if self.lost_because is not None:
            exchange.promise.fail(HttpError(self.lost_because, was_sent=False))
            return exchange.promise
        if self._exchange is not None:
            raise RuntimeError("the connection is in use")
        self._exchange = exchange
        if self._stream is not None:
            self._send(self._stream, exchange)
        return exchange.promise

    def close(self) -> None:
        """Close the connection; an unanswered request fails."""
        self.is_closed = self.lost_because is None
        self._end("the connection was closed")

    # -- callbacks of the transport --

    def resolved(self) -> None:
        """Handle the resolution of the host name; nothing depends on it."""

    def connected(self, stream: Stream) -> None:
        """Send the request that waits for the connection."""
        self._stream = stream
        self._give_up = None
        if self._exchange is not None:
            self._send(stream, self._exchange)
        self.opened.complete(None)

    def readable(self, receive_into: Callable[[Any], int]) -> None:
        """Receive bytes and handle what is complete."""
        try:
            count = receive_into(self._room)
        except BlockingIOError:
            return
        except OSError as error:
            self.lost(error.strerror or str(error))
            return
        try:
            self._parser.receive_data(bytes(memoryview(self._room)[:count]))
            self._handle_events()
        except h11.RemoteProtocolError as error:
            closed = count == 0
            self._end("etcd closed the connection" if closed else f"malformed HTTP response: {error}")
        else:
            if count == 0:
                self._end("etcd closed the connection")

    def lost(self, reason: str) -> None:
        """Handle a connection that broke or could not be opened."""
        self._end(reason)

    def rejected(self, reason: str) -> None:
        """Handle a connection that one side does not accept."""
        self._end(reason)

    # -- bytes --

    def _send(self, stream: Stream, exchange: _Exchange) -> None:
        headers = [
            ("Host", endpoint_text(self.address)),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(exchange.body))),
            *exchange.headers,
        ]
        request = h11.Request(method=exchange.method, target=exchange.target, headers=headers)
        pieces = [self._parser.send(request)]
        if exchange.body:
            pieces.append(self._parser.send(h11.Data(data=exchange.body)))
        pieces.append(self._parser.send(h11.EndOfMessage()))
        stream.write([piece for piece in pieces if piece])

    def _handle_events(self) -> None:
        while self.lost_because is None:
            event = self._parser.next_event()
            exchange = self._exchange
            if event is h11.NEED_DATA or event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return
            if exchange is None:
                self._end("etcd sent a response without a request")
            elif isinstance(event, h11.Response):
                exchange.status = event.status_code
            elif isinstance(event, h11.Data):
                if exchange.receive is not None and exchange.status == 200:
                    exchange.receive(bytes(event.data))
                else:
                    exchange.pieces.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._complete(exchange)

    def _complete(self, exchange: _Exchange) -> None:
        """Make the connection ready for the next request before the listeners of this response make one."""
        self._exchange = None
        if self._parser.our_state is h11.DONE and self._parser.their_state is h11.DONE:
            self._parser.start_next_cycle()
        else:
            self._end("etcd closed the connection")
        exchange.promise.complete(HttpResponse(exchange.status, b"".join(exchange.pieces)))

    def _end(self, reason: str) -> None:
        if self.lost_because is not None:
            return
        self.lost_because = reason
        if self._give_up is not None:
            self._give_up()
        if self._stream is not None:
            self._stream.close()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.promise.fail(HttpError(reason, was_sent=self._stream is not None))
        self.opened.complete(None)
