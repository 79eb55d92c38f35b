"""From a request to the handler that answers it.

A handler is a plain function `(request, broker) -> answer`, registered with `@handles(TheRequest)`. The answer is a response,
a `Pending` one that something completes later, or None where Kafka answers nothing (Produce with acks=0). A handler on the
hot path asks for `positions=True` and receives a `Positions` instead of objects: nested tuples in declaration order, records
as (start, end) in the frame.
"""

import importlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ottla.broker.handlers import SERVED
from ottla.protocol import codec
from ottla.protocol.answer import Answer
from ottla.protocol.api import APIS
from ottla.protocol.connection import Envelope
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import UNKNOWN_SERVER_ERROR
from ottla.protocol.schema import Request, Response
from ottla.protocol.wire import PeerError

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker

_logger = logging.getLogger("ottla.broker")
R = TypeVar("R", bound=Request)
Handler = Callable[[Any, "Broker"], Answer[Any] | None]


class Positions(NamedTuple):
    """Field positions of a request that was parsed without creating objects."""

    context: RequestContext
    frame: bytes
    fields: tuple[Any, ...]


class _Registered(NamedTuple):
    request_class: type[Request]
    handler: Handler
    positions: bool
    in_turn: bool


_HANDLERS: Final[dict[int, _Registered]] = {}


def handles(
    request_class: type[R], *, positions: bool = False, in_turn: bool = False
) -> Callable[[Callable[[Any, "Broker"], Any]], Callable[[Any, "Broker"], Any]]:
    """Register a function as the handler of `request_class`; its versions are in handlers/__init__.py.

    positions  hand it `Positions` in place of the request's objects
    in_turn    it changes metadata: run it once every change before it has taken effect
    """

    def register(handler: Callable[[Any, "Broker"], Any]) -> Callable[[Any, "Broker"], Any]:
        _HANDLERS[request_class.API] = _Registered(request_class, handler, positions, in_turn)
        return handler

    return register


def registered(key: int) -> _Registered:
    """The handler of an API that is served, imported on first use."""
    found = _HANDLERS.get(key)
    if found is None:
        importlib.import_module(f"ottla.broker.handlers.{SERVED[key].module}")
        found = _HANDLERS[key]
    return found


_ROUTES: Final[dict[tuple[int, int], _Registered]] = {}


def _route(envelope: Envelope, broker: "Broker") -> _Registered:
    """The handler for the API and version of a request. Raises PeerError when they are not served."""
    key, version = envelope.api.key, envelope.version
    served = SERVED.get(key)
    if served is None:
        raise PeerError(f"{envelope.api.name} is not served")
    if version in served.unstable and broker.config.flag("unstable.api.versions.enable"):
        return registered(key)  # another broker of this process may not serve it: nothing to remember
    if version not in served.versions:
        raise PeerError(f"{envelope.api.name} version {version} is not served, only {served.versions}")
    route = _ROUTES[key, version] = registered(key)
    return route


def answer(envelope: Envelope, context: RequestContext, broker: "Broker") -> Answer[Response] | None:
    """Serve one request. Raises PeerError for a version that is not served and for a malformed body.

    A bug in a handler is logged with the request's header and answered with UNKNOWN_SERVER_ERROR where the response has an
    error code; the connection stays open.
    """
    version = envelope.version
    request_class, handler, positions, in_turn = _ROUTES.get((envelope.api.key, version)) or _route(envelope, broker)
    if positions:
        fields, _ = codec.decode_positions(request_class, version, envelope.frame, envelope.body)
        request: Any = Positions(context, envelope.frame, fields)
    elif envelope.asked != version:
        request = request_class()  # ApiVersions of a version that is not known here: its body cannot be read
        request.context = context
    else:
        request, _ = codec.decode(request_class, version, envelope.frame, envelope.body)
        request.context = context
    if not in_turn:
        return _serve(handler, request, envelope, broker)
    answered = broker.controller.in_turn(partial(_serve_in_turn, handler, request, envelope, broker))
    if isinstance(answered, PeerError):
        raise answered
    return answered


def _serve(handler: Handler, request: Any, envelope: Envelope, broker: "Broker") -> Answer[Any]:
    """Call the handler of a request; an exception in it must not close the connection, or stop the broker. Raises PeerError."""
    try:
        return handler(request, broker)
    except PeerError:
        raise
    except Exception:
        _logger.exception("cannot serve %r", envelope)
        return failure(envelope.api.key)


def _serve_in_turn(handler: Handler, request: Any, envelope: Envelope, broker: "Broker") -> Answer[Any]:
    """Serve a request that may have waited: a PeerError is returned then, for the connection to close itself."""
    try:
        return _serve(handler, request, envelope, broker)
    except PeerError as error:
        return error


def failure(key: int) -> Response:
    """UNKNOWN_SERVER_ERROR as a response. Raises PeerError where only the parts of a response have error codes."""
    response_class = APIS[key].response_class()
    if not any(field.name == "error_code" for field in response_class.FIELDS):
        raise PeerError(f"{APIS[key].name} failed, and its response has no place to say so")
    response = response_class()
    setattr(response, "error_code", UNKNOWN_SERVER_ERROR)  # noqa: B010  no class that all responses share declares it
    return response
