"""Checks of the calls that a test makes: types of arguments, a running event loop, and tracebacks that end in the test.

`checks_calls` wraps the public methods of a class. A wrong argument raises WrongArgument, which names method and argument.
Errors that a method raises on purpose carry no traceback of this package: pytest shows the line of the test. Any other error is
a bug of Ottla, and keeps its traceback.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import cache, wraps
from types import UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin

from ottla.broker.lifecycle import CannotStart
from ottla.client.errors import KafkaError
from ottla.metadata.configs import InvalidConfig

T = TypeVar("T")


class WrongArgument(TypeError):
    """An argument has the wrong type; the message names it."""


_POSSIBLE: Final = (KafkaError, WrongArgument, ValueError, LookupError, RuntimeError, TimeoutError, CannotStart)
_DELIBERATE: Final = {
    *(WrongArgument, ValueError, UnicodeEncodeError, LookupError, RuntimeError, TimeoutError),
    *(InvalidConfig, CannotStart),
}
"""Not their subclasses: a KeyError is a bug."""


def checks_calls(cls: type[T]) -> type[T]:
    """Wrap the constructor and the public methods that a class defines; see the module."""
    for name, value in list(vars(cls).items()):
        if inspect.isfunction(value) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, checked(value))
    return cls


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap one function or method; see the module."""
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            _check_arguments(function, args, kwargs)
            try:
                return await function(*args, **kwargs)
            except _POSSIBLE as error:
                raise _shortened(error) from error.__cause__

        return awaited

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        _check_arguments(function, args, kwargs)
        try:
            return function(*args, **kwargs)
        except _POSSIBLE as error:
            raise _shortened(error) from error.__cause__

    return call


def _shortened(error: Exception) -> Exception:
    """Return the error, without its traceback if it was raised on purpose."""
    is_deliberate = isinstance(error, KafkaError) or type(error) in _DELIBERATE
    return error.with_traceback(None) if is_deliberate else error


@cache
def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    return inspect.signature(function), function.__annotations__


def _check_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise WrongArgument for an argument that is missing, unknown, or not of its annotated type."""
    __tracebackhide__ = True
    signature, hints = _signature(function)
    name = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    try:
        arguments = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise WrongArgument(f"{name}: {error}") from None
    for argument, value in arguments.items():
        hint = hints.get(argument)
        if (
            hint is None
            or isinstance(hint, str)
            or signature.parameters[argument].kind is inspect.Parameter.VAR_KEYWORD
        ):
            continue
        if not _fits(value, hint):
            raise WrongArgument(f"{name}: {argument} must be {_text(hint)}, not {type(value).__name__} {value!r}")


def _fits(value: object, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in get_args(hint))
    if hint in (Any, object):
        return True
    if hint in (int, float):
        numbers = (int, float) if hint is float else int
        return isinstance(value, numbers) and not isinstance(value, bool)
    kind = origin or hint
    if not isinstance(kind, type):
        return callable(value)
    if kind is not str and isinstance(value, str) and issubclass(str, kind):
        return False  # a str is no list of names
    return isinstance(value, kind)


def _text(hint: Any) -> str:
    """Return the types of an annotation in words: "int or timedelta"."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(dict.fromkeys(_text(option) for option in get_args(hint)))
    if hint is type(None):
        return "None"
    return str(getattr(get_origin(hint) or hint, "__name__", hint))


def milliseconds(duration: int | timedelta, what: str) -> int:
    """Convert a duration, in ms or as a timedelta, to ms. Raises ValueError if it is negative, which begins with `what`."""
    ms = duration // timedelta(milliseconds=1) if isinstance(duration, timedelta) else duration
    if ms < 0:
        raise ValueError(f"{what}: {duration} is negative")
    return ms


def refuse_running_loop(call: str, twin: str) -> None:
    """Raise RuntimeError on a running event loop: `call` would wait for clients that could not run meanwhile."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{call} waits, and would block the running event loop: use `await {twin}`")


def existing(names: Iterable[str]) -> str:
    """Return names as a text for a message: sorted, "none" without one."""
    return ", ".join(sorted(names)) or "none"
