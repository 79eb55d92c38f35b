"""Requests with many rows, served in parts, between which other clients are served.

    frame ---- decoded in parts ---> request ---- divided ---> part 1 ---> handler ---> response 1 --+
                                                              part 2 ---> handler ---> response 2 --+- joined,
                                                              ...                                   |  encoded in parts
A handler declares its rows (`@handles(..., rows="topics.partitions")`); it serves a part as it would serve a request of its
own, so a request with many rows is answered as several smaller ones that a client sends one after another would be. A
coroutine handler gets the whole request, and paces itself.

A request is decoded as a whole before its first part is handled: a malformed one has no effect.
"""

import logging
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.broker.context_fields import log_fields
from ottla.broker.dispatch import PositionalRequest, Route
from ottla.protocol.errors import NONE, UNKNOWN_SERVER_ERROR
from ottla.protocol.rows import (
    ROWS_OF_PART,
    JoinedResponse,
    count_rows,
    decode_in_parts,
    divide,
    response_path,
)
from ottla.protocol.schema import Response
from ottla.protocol.wire import PeerError
from ottla.tasks.deferred import Answer, Deferred

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.protocol.connection import Envelope
    from ottla.protocol.context import RequestContext
    from ottla.tasks.scheduler import Scheduler

T = TypeVar("T")
_logger = logging.getLogger("ottla.broker")
_MOST_OPEN: Final = 8
"""Most parts that wait for their answers at the same time."""
LARGE_FRAME: Final = 1 << 14
"""Bytes of a request from which on it is decoded in parts."""


async def paced(steps: Generator[None, None, T], tasks: "Scheduler") -> T:
    """Run the steps of a generator, with pauses; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await tasks.pace()


async def serve_in_parts(
    target: Route, envelope: "Envelope", context: "RequestContext", broker: "Broker", request: Any = None
) -> Response | None:
    """Serve a request with many rows, or a large frame. Raises PeerError.

    request  the decoded request, or the fields of a positional one; None while it is not decoded
    """
    tasks, version = broker.tasks, envelope.version
    if request is None:
        steps = decode_in_parts(target.request_class, version, envelope.frame, envelope.body, target.rows)
        request = await paced(steps, tasks)
    request.context = context  # of what is decoded for a handler that gets positions too: `divide` copies it
    response: Response | None
    if target.is_coroutine:
        response = await target.handler(request, broker)  # type: ignore[misc]
    elif count_rows(request, target.rows) <= ROWS_OF_PART:
        answer = target.handler(request, broker)
        response = await answer if isinstance(answer, Deferred) else answer
    else:
        response = await _Parts(target, envelope, context, broker).serve(request)
    if response is None or type(response) is not envelope.api.response_class():
        return response
    path = response_path(type(response), version, len(target.rows))
    if not path or getattr(response, path[0]) is None or count_rows(response, path) <= ROWS_OF_PART:
        return response
    return await paced(JoinedResponse(response, version, path, keeps_rows=target.positions).end(), tasks)


class _Parts:
    """A request that is served in parts."""

    def __init__(self, target: Route, envelope: "Envelope", context: "RequestContext", broker: "Broker") -> None:
        self._target = target
        self._envelope = envelope
        self._context = context
        self._broker = broker
        self._is_logged = False

    async def serve(self, request: Any) -> Response | None:
        """Serve the parts one after another, some of them at the same time, and join their responses."""
        tasks, target = self._broker.tasks, self._target
        joined: JoinedResponse | None = None
        open_parts: deque[tuple[Any, int, Answer[Response] | None]] = deque()
        parts = divide(request, target.rows)
        has_more = True
        while has_more or open_parts:
            await tasks.pace()
            following = next(parts, None) if has_more else None
            if following is None:
                has_more = False
            else:
                open_parts.append((*following, self._handle(following[0])))
            if open_parts and (not has_more or len(open_parts) >= _MOST_OPEN):
                part, depth, answer = open_parts.popleft()
                response = await self._outcome(part, answer)
                if response is None:
                    continue  # Produce without acknowledgement
                if getattr(response, "error_code", NONE) != NONE:
                    return response
                if joined is None:
                    rows = response_path(type(response), self._envelope.version, len(target.rows))
                    joined = JoinedResponse(response, self._envelope.version, rows, keeps_rows=target.positions)
                else:
                    await paced(joined.add(response, depth), tasks)
        return None if joined is None else await paced(joined.end(), tasks)

    def _handle(self, part: Any) -> Answer[Response] | None:
        try:
            request = PositionalRequest(self._context, self._envelope.frame, part) if self._target.positions else part
            return self._target.handler(request, self._broker)
        except PeerError:
            raise
        except Exception:
            if not self._is_logged:
                self._is_logged = True
                _logger.exception("cannot serve %r", self._envelope, extra=log_fields(self._context))
            return self._refusal(part)

    async def _outcome(self, part: Any, answer: Answer[Response] | None) -> Response | None:
        if not isinstance(answer, Deferred):
            return answer
        try:
            return await answer
        except PeerError:
            raise
        except Exception:  # noqa: BLE001 - who has failed has logged it
            return self._refusal(part)

    def _refusal(self, part: Any) -> Response:
        from ottla.protocol.error_responses import error_response

        return error_response(part, self._envelope.version, UNKNOWN_SERVER_ERROR)
