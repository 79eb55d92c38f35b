"""Registration of handlers, and the route from an API and version to its handler.

A handler is a plain function `(request, broker) -> answer`, registered with `@handles(TheRequest)`. The answer is a response,
a `Pending` that is completed later, or None where Kafka sends no response (Produce with acks=0). A handler on the
hot path asks for `positions=True` and receives a `PositionalRequest`: records are (start, end) in the frame.
"""

import importlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from ottla.broker.broker import Broker
from ottla.broker.handlers import SERVED
from ottla.protocol.answer import Answer
from ottla.protocol.api import APIS
from ottla.protocol.connection import Envelope
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import UNKNOWN_SERVER_ERROR
from ottla.protocol.schema import Request, Response
from ottla.protocol.wire import PeerError

R = TypeVar("R", bound=Request)
Handler = Callable[[Any, Broker], Answer[Any] | None]


class PositionalRequest(NamedTuple):
    """Request whose records are positions in its frame: `fields` is the request, see `codec.decode_positions`."""

    context: RequestContext
    frame: bytes
    fields: Any


class Route(NamedTuple):
    """A registered handler.

    positions  the handler receives a `PositionalRequest`
    in_turn    the handler changes metadata, and runs after all earlier changes have taken effect
    """

    request_class: type[Request]
    handler: Handler
    positions: bool
    in_turn: bool


_ROUTES: Final[dict[int, Route]] = {}


def handles(
    request_class: type[R], *, positions: bool = False, in_turn: bool = False
) -> Callable[[Callable[[Any, Broker], Any]], Callable[[Any, Broker], Any]]:
    """Register a function as the handler of `request_class`, see `Route`; its versions are in handlers/__init__.py."""

    def register(handler: Callable[[Any, Broker], Any]) -> Callable[[Any, Broker], Any]:
        _ROUTES[request_class.API] = Route(request_class, handler, positions, in_turn)
        return handler

    return register


def registered(key: int) -> Route:
    """Return the handler of a served API, which is imported on first use."""
    target = _ROUTES.get(key)
    if target is None:
        importlib.import_module(f"ottla.broker.handlers.{SERVED[key].module}")
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
    return registered(key)


def failure(key: int) -> Response:
    """Return an UNKNOWN_SERVER_ERROR response. Raises PeerError if the API's response has no error code of its own."""
    response_class: Any = APIS[key].response_class()
    if not _has_error_code(response_class):
        raise PeerError(f"{APIS[key].name} failed, and its response has no error code")
    response: Response = response_class(error_code=UNKNOWN_SERVER_ERROR)
    return response


def refusal(key: int, code: int) -> Response:
    """Return a response with an error code; an empty one if the API's response has no error code of its own."""
    response_class: Any = APIS[key].response_class()
    response: Response = response_class(error_code=code) if _has_error_code(response_class) else response_class()
    return response


def _has_error_code(response_class: Any) -> bool:
    return any(field.name == "error_code" for field in response_class.FIELDS)
