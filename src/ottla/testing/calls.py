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
from typing import Any, Final, TypeVar

from ottla.arguments import WrongArgument, check_arguments, name_of
from ottla.broker.lifecycle import CannotStart
from ottla.client.errors import KafkaError
from ottla.metadata.configs import InvalidConfig

T = TypeVar("T")


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
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            _check_call(function, args, kwargs)
            try:
                return await function(*args, **kwargs)
            except _POSSIBLE as error:
                raise _shorten(error) from error.__cause__

        return call_async

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        _check_call(function, args, kwargs)
        try:
            return function(*args, **kwargs)
        except _POSSIBLE as error:
            raise _shorten(error) from error.__cause__

    return call


def _shorten(error: Exception) -> Exception:
    """Return the error, without its traceback if it was raised on purpose."""
    is_deliberate = isinstance(error, KafkaError) or type(error) in _DELIBERATE
    return error.with_traceback(None) if is_deliberate else error


_signature = cache(inspect.signature)


def _check_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise WrongArgument for an argument that is missing, unknown, or not of its annotated type."""
    __tracebackhide__ = True
    try:
        _signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise WrongArgument(f"{name_of(function)}: {error}") from None
    try:
        check_arguments(function, args, kwargs)
    except WrongArgument as error:
        raise error.with_traceback(None) from None


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
