"""Requests with many rows, served in parts, between which other clients are served.

    frame ---> checked ---> part 1 decoded ---> handler ---> rows 1 encoded --+
                            part 2 decoded ---> handler ---> rows 2 encoded --+--> response
                            ...                                              --+
A handler declares its rows (`@handles(..., rows="topics.partitions")`); it serves a part as it would serve a request of its
own, so a request with many rows is answered as several smaller ones that a client sends one after another would be. One that
needs all rows at once says so (`is_whole`): it gets a request that is decoded in parts, and paces itself.

All of a request is decoded before its first part is handled: a malformed one has no effect. Its objects live as long as their
part, not as long as the request: neither memory nor the garbage collector has much to do.
"""

import logging
from collections import deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.broker.requests.context_fields import log_fields
from ottla.broker.requests.dispatch import PositionalRequest, Route
from ottla.protocol import api
from ottla.protocol.errors import NONE, UNKNOWN_SERVER_ERROR
from ottla.protocol.rows import (
    ROWS_OF_PART,
    EncodedMessage,
    JoinedResponse,
    count_rows,
    encode_in_parts,
    path_in,
    response_path,
)
from ottla.protocol.schema import Response
from ottla.protocol.wire import PeerError
from ottla.tasks.deferred import Answer, Deferred, Failed

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.protocol.connection import Envelope
    from ottla.protocol.context import RequestContext
    from ottla.tasks.scheduler import Scheduler

T = TypeVar("T")
_logger = logging.getLogger("ottla.broker")
_MOST_OPEN: Final = 8
"""Most parts that wait for their answers at the same time."""
_READING: Final = frozenset(
    {
        api.CONSUMER_GROUP_DESCRIBE,
        api.DESCRIBE_CONFIGS,
        api.DESCRIBE_GROUPS,
        api.DESCRIBE_PRODUCERS,
        api.DESCRIBE_QUORUM,
        api.DESCRIBE_SHARE_GROUP_OFFSETS,
        api.DESCRIBE_TRANSACTIONS,
        api.FIND_COORDINATOR,
        api.LIST_OFFSETS,
        api.METADATA,
        api.OFFSET_FETCH,
        api.OFFSET_FOR_LEADER_EPOCH,
        api.READ_SHARE_GROUP_STATE,
        api.READ_SHARE_GROUP_STATE_SUMMARY,
        api.SHARE_GROUP_DESCRIBE,
        api.STREAMS_GROUP_DESCRIBE,
    }
)
"""Requests that change nothing, whose further parts do not begin when their connection is closed."""
_WAITING: Final = frozenset({api.FETCH, api.SHARE_FETCH})
"""Requests that may wait for records for long."""
LARGE_FRAME: Final = 1 << 14
"""Bytes of a request from which on it is decoded in parts."""


async def run_paced(steps: Generator[None, None, T], tasks: "Scheduler") -> T:
    """Run the steps of a generator, with pauses; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await tasks.pace()


async def serve_in_parts(
    target: Route, envelope: "Envelope", context: "RequestContext", broker: "Broker"
) -> Response | None:
    """Serve a request with many rows, or a large frame. Raises PeerError."""
    encoded = encoded_message(target, envelope)
    with broker.large_work():
        request: Any = await run_paced(encoded.decode(keeps_rows=target.is_whole), broker.tasks)
        request.context = context
        if envelope.api.key not in _WAITING:
            return await _answer(target, envelope, encoded, request, broker)
    return await _answer(target, envelope, encoded, request, broker)


async def answer_in_parts(target: Route, envelope: "Envelope", request: Any, broker: "Broker") -> Response | None:
    """Serve a request whose response may have many rows, of which it names none. The handler is a coroutine."""
    if envelope.api.key == api.METADATA:  # of a few topics, as a rule
        response: Response = await target.handler(request, broker)  # type: ignore[misc]
    else:
        with broker.large_work():
            response = await target.handler(request, broker)  # type: ignore[misc]
    return await _encode_rows(response, target, envelope, broker)


async def _encode_rows(
    response: Response | None, target: Route, envelope: "Envelope", broker: "Broker"
) -> Response | None:
    """Return a response with many rows encoded, others as they are."""
    if type(response) is not envelope.api.response_class():
        return response
    if target.response_rows:
        path = path_in(type(response), target.response_rows, envelope.version)
    else:
        path = response_path(type(response), envelope.version, target.rows)
    if not path or count_rows(response, path) <= ROWS_OF_PART:
        return response
    with broker.large_work():
        return await run_paced(encode_in_parts(response, envelope.version, path), broker.tasks)


async def _answer(
    target: Route, envelope: "Envelope", encoded: EncodedMessage[Any], request: Any, broker: "Broker"
) -> Response | None:
    """Return the response to a request that is decoded."""
    context = request.context
    if target.is_whole:
        whole = PositionalRequest(context, envelope.frame, request) if target.positions else request
        answer: Any = target.handler(whole, broker)
        response: Response | None = await answer if target.is_coroutine or isinstance(answer, Deferred) else answer
    else:
        response = await _Parts(target, envelope, context, broker).serve(encoded.parts(request), request)
    return await _encode_rows(response, target, envelope, broker)


def encoded_message(target: Route, envelope: "Envelope") -> EncodedMessage[Any]:
    """Return the request of an envelope, to be decoded in parts."""
    return EncodedMessage(
        target.request_class,
        envelope.version,
        envelope.frame,
        envelope.body,
        target.rows,
        positions=target.positions,
    )


class _Parts:
    """A request that is served in parts."""

    def __init__(self, target: Route, envelope: "Envelope", context: "RequestContext", broker: "Broker") -> None:
        self._target = target
        self._envelope = envelope
        self._context = context
        self._broker = broker
        self._is_logged = False
        self._peer_error: PeerError | None = None

    async def serve(self, parts: Iterator[tuple[Any, int]], empty: Any) -> Response | None:
        """Serve the parts one after another, some of them at the same time, and join their responses.

        empty  the request without rows, which is served if there is no part

        Raises PeerError after all parts: Produce without acknowledgement appends what it can before the connection is closed.
        """
        tasks, target = self._broker.tasks, self._target
        joined: JoinedResponse | None = None
        refused: Response | None = None
        open_parts: deque[tuple[Any, int, Answer[Response] | None]] = deque()
        has_more, is_first = True, True
        while has_more or open_parts:
            await tasks.pace()
            if self._context.peer.is_closed and self._envelope.api.key in _READING:
                return None  # no client waits for it; what changes something is never cut off by its client
            part, depth = next(parts, (None, 0)) if has_more else (None, 0)
            has_more = part is not None
            if part is None and is_first:
                part = empty
            if part is not None:
                if not is_first and target.in_later_parts is not None:
                    target.in_later_parts(part)
                is_first = False
                open_parts.append((part, depth, self._handle(part)))
            if not has_more or len(open_parts) >= _MOST_OPEN:
                part, depth, answer = open_parts.popleft()
                response = await self._outcome(part, answer)
                if response is None:
                    continue  # Produce without acknowledgement
                if getattr(response, "error_code", NONE) != NONE:
                    refused, has_more = refused or response, False  # those that are begun end before it is sent
                    continue
                if joined is None:
                    path = response_path(type(response), self._envelope.version, target.rows)
                    if getattr(response, path[0]) is None:
                        return response
                    joined = JoinedResponse(response, self._envelope.version, path, keeps_rows=target.positions)
                else:
                    joined.add(response, depth)
        if self._peer_error is not None:
            raise self._peer_error
        return refused or (None if joined is None else joined.end())

    def _handle(self, part: Any) -> Answer[Response] | None:
        target, broker = self._target, self._broker
        try:
            if target.is_coroutine:
                return broker.tasks.start(self._handle_paced(part), self._envelope.api.name)
            request = PositionalRequest(self._context, self._envelope.frame, part) if target.positions else part
            return target.handler(request, broker)
        except PeerError as error:
            self._close_with(error)
            return None
        except Exception as error:  # noqa: BLE001
            return self._refuse(part, error)

    async def _handle_paced(self, part: Any) -> Response:
        """Handle a part in its turn: of coroutines several would begin in one pass otherwise."""
        await self._broker.tasks.pace()
        handled: Response = await self._target.handler(part, self._broker)  # type: ignore[misc]
        return handled

    async def _outcome(self, part: Any, answer: Answer[Response] | None) -> Response | None:
        if not isinstance(answer, Deferred):
            return answer
        try:
            return await answer
        except PeerError as error:
            self._close_with(error)
            return None
        except Failed:  # whoever has failed has logged it
            self._is_logged = True
            return self._refuse(part, None)
        except Exception as error:  # noqa: BLE001
            return self._refuse(part, error)

    def _close_with(self, error: PeerError) -> None:
        """Note the first error because of which the connection is closed after all parts."""
        self._peer_error = self._peer_error or error

    def _refuse(self, part: Any, error: Exception | None) -> Response | None:
        """Return the response to a part whose handler failed, which is logged once for all parts."""
        from ottla.protocol.error_responses import error_response

        if not self._is_logged:
            self._is_logged = True
            extra = log_fields(self._context)
            _logger.error("cannot serve %r", self._envelope, exc_info=error, extra=extra)
        if self._envelope.api.key == api.PRODUCE and part.acks == 0:
            self._close_with(PeerError(f"{self._envelope.api.name} without acknowledgement failed"))
            return None
        return error_response(part, self._envelope.version, UNKNOWN_SERVER_ERROR)
