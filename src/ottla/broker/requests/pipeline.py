"""The path of a request through the broker, in this order:

    version   is the API served in this version? (`dispatch.py`)
    session   principal, listener and permissions of the connection, in the request's context (`security/session.py`)
    body      as objects, or as positions for a handler on the hot path
    handler   one at a time for requests that change metadata
    quota     usage is recorded when the request is answered; the response carries the throttle time (KIP-219)
    metrics   time and sizes, if anything reads them

Time is measured only while there are quotas or readers of metrics: otherwise a request costs two checks of an attribute.
"""

import logging
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from ottla.broker.broker import Broker
from ottla.broker.requests.context_fields import log_fields
from ottla.broker.requests.dispatch import PositionalRequest, Route, refusal, route
from ottla.broker.requests.parts import LARGE_FRAME, answer_in_parts, encoded_message, serve_in_parts
from ottla.environment import Clock
from ottla.protocol import codec
from ottla.protocol.connection import Envelope
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import UNKNOWN_SERVER_ERROR
from ottla.protocol.rows import ROWS_OF_PART, EncodedRows
from ottla.protocol.schema import Response
from ottla.protocol.wire import PeerError
from ottla.tasks.deferred import Answer, Deferred, Failed

if TYPE_CHECKING:
    from ottla.broker.metrics.meter import RequestMeter

_logger = logging.getLogger("ottla.broker")


class _Throttled(Protocol):
    """A response with a throttle time."""

    throttle_time_ms: int


class Pipeline:
    """Serves the requests of all connections of a broker.

    tasks    scheduler of the broker
    now_ns   time of a monotonic clock, in ns
    answer   answers one request: `serve`, unless a test wraps it
    meter    measures requests; None while nothing reads the metrics
    """

    def __init__(self, broker: Broker, now_ns: Callable[[], int]) -> None:
        self._broker = broker
        self.tasks = broker.tasks
        self.now_ns = now_ns
        self._routes: dict[tuple[int, int], Route] = {}
        self.answer: Callable[[Envelope, RequestContext], Answer[Response] | None] = self.serve
        self.meter: RequestMeter | None = None

    @property
    def clock(self) -> Clock:
        """Clock of the broker."""
        return self._broker.clock

    @property
    def has_quotas(self) -> bool:
        """True while there are quotas."""
        return self._broker.throttling is not None

    def serve(self, envelope: Envelope, context: RequestContext) -> Answer[Response] | None:
        """Serve one request. Raises PeerError for a version that is not served and for a malformed body.

        A bug in a handler is logged with the request's header and answered with UNKNOWN_SERVER_ERROR in every row of the
        response; the connection stays open.
        """
        version = envelope.version
        target = self._routes.get((envelope.api.key, version)) or self._route(envelope)
        if target.rows and self._has_many_rows(target, envelope):
            return self._start(serve_in_parts(target, envelope, context, self._broker), envelope, context)
        if target.positions:
            fields, _ = codec.decode_positions(target.request_class, version, envelope.frame, envelope.body)
            request: Any = PositionalRequest(context, envelope.frame, fields)
        elif envelope.asked != version:
            request = target.request_class()  # ApiVersions in an unknown version, whose body cannot be read
            request.context = context
        else:
            request, _ = codec.decode(target.request_class, version, envelope.frame, envelope.body)
            request.context = context
        if target.response_rows:
            return self._start(answer_in_parts(target, envelope, request, self._broker), envelope, context)
        if target.is_coroutine:
            return self._start(target.handler(request, self._broker), envelope, context)
        return self._handle(target, request, envelope)

    def _has_many_rows(self, target: Route, envelope: Envelope) -> bool:
        """Return whether a request is served in parts. Raises PeerError.

        A row takes a byte at least; what is large because of its records (Produce) has few rows, as a rule.
        """
        size = len(envelope.frame) - envelope.body
        if size <= ROWS_OF_PART or (target.positions and size < LARGE_FRAME):
            return False
        return (size >= LARGE_FRAME and not target.positions) or encoded_message(target, envelope).has_many_rows

    def _route(self, envelope: Envelope) -> Route:
        """Return the route of a request and keep it for later requests. Raises PeerError."""
        target = route(envelope, allows_unstable=lambda: self._broker.config.flag("unstable.api.versions.enable"))
        self._routes[envelope.api.key, envelope.version] = target
        return target

    def _handle(self, target: Route, request: Any, envelope: Envelope) -> Answer[Any]:
        """Call the handler; an exception in it must not close the connection, or stop the broker. Raises PeerError."""
        try:
            return target.handler(request, self._broker)
        except PeerError:
            raise
        except Exception:
            _logger.exception("cannot serve %r", envelope, extra=log_fields(request.context))
            return refusal(envelope, UNKNOWN_SERVER_ERROR)
        finally:
            context: RequestContext = request.context
            if context.authorizer is not None:
                context.authorizer.end_request(context)

    def _start(self, coroutine: Any, envelope: Envelope, context: RequestContext) -> Answer[Any]:
        """Run a handler that may wait; return its response if it did not have to. Raises PeerError."""
        task: Deferred[Any] = self.tasks.start_measured(coroutine, envelope.api.name)
        if not task.done:
            task.listen(partial(self._end, context, envelope))
            return task
        self._end(context, envelope, task)
        if task.error is None:
            return task.result()
        if isinstance(task.error, PeerError):
            raise task.error
        return refusal(envelope, UNKNOWN_SERVER_ERROR)

    def _end(self, context: RequestContext, envelope: Envelope, task: Deferred[Any]) -> None:
        """Log an exception of a handler, once; who serves the connection answers for it."""
        if isinstance(task.error, Exception) and not isinstance(task.error, (PeerError, Failed)):
            _logger.error("cannot serve %r", envelope, exc_info=task.error, extra=log_fields(context))
        if context.authorizer is not None:
            context.authorizer.end_request(context)

    def finish(self, envelope: Envelope, context: RequestContext, response: Response | None, spent_ns: int) -> int:
        """Record the usage of a request that was answered; returns the throttle time of its connection in ms, which is also in
        the response.

        spent_ns  time that the broker has spent on the request
        """
        throttling = self._broker.throttling
        if throttling is None:
            return 0
        throttle_ms = throttling.record_request(envelope.api.key, context, len(envelope.frame), spent_ns)
        if type(response) is EncodedRows:
            response = response.message
        if response is None or not _has_throttle_time(type(response)):
            return throttle_ms
        throttled = cast(_Throttled, response)
        throttled.throttle_time_ms = max(throttled.throttle_time_ms, throttle_ms)
        return throttled.throttle_time_ms


@cache
def _has_throttle_time(response_class: type[Response]) -> bool:
    return any(field.name == "throttle_time_ms" for field in response_class.FIELDS)
