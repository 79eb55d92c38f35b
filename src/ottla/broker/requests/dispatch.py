"""Registration of handlers, and the route from an API and version to its handler.

A handler is a plain function `(request, broker) -> answer`, registered with `@handles(TheRequest)`. The answer is a response,
a `Deferred` that is completed later, or None where Kafka sends no response (Produce with acks=0). A handler on the
hot path asks for `positions=True` and receives a `PositionalRequest`: records are (start, end) in the frame.
"""

import importlib
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, Final, NamedTuple, TypeVar

from ottla.broker.broker import Broker
from ottla.broker.requests.handlers import SERVED
from ottla.protocol.api import PRODUCE
from ottla.protocol.codec import decode
from ottla.protocol.connection import Envelope
from ottla.protocol.context import RequestContext
from ottla.protocol.rows import RowPath, path_in
from ottla.protocol.schema import Request, Response
from ottla.protocol.wire import PeerError
from ottla.tasks.deferred import Answer

R = TypeVar("R", bound=Request)
Handler = Callable[[Any, Broker], Answer[Any] | None]


class PositionalRequest(NamedTuple):
    """Request whose records are positions in its frame: `fields` is the request, see `codec.decode_positions`."""

    context: RequestContext
    frame: bytes
    fields: Any


class Route(NamedTuple):
    """A registered handler.

    positions     the handler receives a `PositionalRequest`
    is_coroutine  the handler is a coroutine function: it may wait in the middle
    paths         paths of the rows of a request, by which it is served in parts (`parts.py`): that of a version is the first
                  which it has
    rows          the one of the version of a request; empty without one
    is_whole      the handler needs all rows of a request at once
    in_later_parts  called with each part of a request but the first one
    response_rows   paths of the rows of a response that may be much longer than its request: it is encoded in parts
    """

    request_class: type[Request]
    handler: Handler
    positions: bool
    is_coroutine: bool
    paths: tuple[str, ...] = ()
    rows: RowPath = ()
    is_whole: bool = False
    in_later_parts: Callable[[Any], object] | None = None
    response_rows: tuple[str, ...] = ()


_ROUTES: Final[dict[int, Route]] = {}


def handles(
    request_class: type[R],
    *,
    positions: bool = False,
    rows: str | tuple[str, ...] = (),
    is_whole: bool = False,
    in_later_parts: Callable[[R], object] | None = None,
    response_rows: str | tuple[str, ...] = (),
) -> Callable[[Callable[[Any, Broker], Any]], Callable[[Any, Broker], Any]]:
    """Register a function as the handler of `request_class`, see `Route`; its versions are in handlers/__init__.py."""

    paths = (rows,) if isinstance(rows, str) else rows

    def register(handler: Callable[[Any, Broker], Any]) -> Callable[[Any, Broker], Any]:
        _ROUTES[request_class.API] = Route(
            request_class,
            handler,
            positions,
            iscoroutinefunction(handler),
            paths,
            is_whole=is_whole,
            in_later_parts=in_later_parts,
            response_rows=(response_rows,) if isinstance(response_rows, str) else response_rows,
        )
        return handler

    return register


def route_of(key: int) -> Route:
    """Return the handler of a served API, which is imported on first use."""
    target = _ROUTES.get(key)
    if target is None:
        importlib.import_module(f"ottla.broker.requests.handlers.{SERVED[key].module}")
        target = _ROUTES[key]
    return target


def route(envelope: Envelope, *, allows_unstable: Callable[[], bool]) -> Route:
    """Return the handler for the API and version of a request. Raises PeerError when they are not served.

    allows_unstable  returns unstable.api.versions.enable
    """
    key, version = envelope.api.key, envelope.version
    served = SERVED.get(key)
    if served is None:
        raise PeerError(f"{envelope.api.name} is not served")
    if version not in served.versions and not (version in served.unstable and allows_unstable()):
        raise PeerError(f"{envelope.api.name} version {version} is not served, only {served.versions}")
    target = route_of(key)
    return target._replace(rows=path_in(target.request_class, target.paths, version)) if target.paths else target


def refusal(envelope: Envelope, code: int) -> Response:
    """Return the response with an error code to a request that is not served, or whose handler failed, in the version of the
    request and in all of its rows, as Kafka's `getErrorResponse` does. Raises PeerError for a request that cannot be read, and
    for one without a response (Produce with acks=0): the connection is closed.
    """
    api = envelope.api
    request_class = api.request_class()
    if envelope.version not in request_class.VERSIONS:
        raise PeerError(f"{api.name} version {envelope.version} is not served")
    request: Any
    if envelope.asked == envelope.version:
        request, _ = decode(request_class, envelope.version, envelope.frame, envelope.body)
    else:
        request = request_class()  # ApiVersions in an unknown version, whose body cannot be read
    if api.key == PRODUCE and request.acks == 0:
        raise PeerError(f"{api.name} without acknowledgement failed")
    # Imported where something has failed: no broker needs it at its start.
    from ottla.protocol.error_responses import error_response

    return error_response(request, envelope.version, code)
