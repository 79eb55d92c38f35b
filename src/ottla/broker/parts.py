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
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.broker.context_fields import log_fields
from ottla.broker.dispatch import PositionalRequest, Route
from ottla.protocol.errors import NONE, UNKNOWN_SERVER_ERROR
from ottla.protocol.rows import (
    ROWS_OF_PART,
    count_rows,
    decode_in_parts,
    divide,
    encode_in_parts,
    join,
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

    request  the decoded request, without its context if the handler gets positions; None while it is not decoded
    """
    tasks, version = broker.tasks, envelope.version
    if request is None:
        steps = decode_in_parts(target.request_class, version, envelope.frame, envelope.body, target.rows)
        request = await paced(steps, tasks)
        request.context = context
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
    return await paced(encode_in_parts(response, version, path), tasks)


class _Parts:
    """A request that is served in parts."""

    def __init__(self, target: Route, envelope: "Envelope", context: "RequestContext", broker: "Broker") -> None:
        self._target = target
        self._envelope = envelope
        self._context = context
        self._broker = broker
        self._is_logged = False

    async def serve(self, request: Any) -> Response | None:
        """Serve the parts one after another, without waiting for their answers, and join these."""
        answers: list[tuple[Any, int, Answer[Response] | None]] = []
        for part, depth in divide(request, self._target.rows):
            await self._broker.tasks.pace()
            answers.append((part, depth, self._handle(part)))
        whole: Response | None = None
        for part, depth, answer in answers:
            await self._broker.tasks.pace()
            response = await self._outcome(part, answer)
            if response is None or getattr(response, "error_code", NONE) != NONE:
                return response
            if whole is None:
                whole = response
            else:
                rows = response_path(type(whole), self._envelope.version, len(self._target.rows))
                join(whole, response, rows, depth)
        return whole

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
