"""Checks of the calls of a client: types of arguments, and first whether the client can be used at all."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from ottla.arguments import WrongArgument, check_arguments

P = ParamSpec("P")
T = TypeVar("T")


def checked(method: Callable[P, T]) -> Callable[P, T]:
    """Decorate a method: its arguments are checked when it is called, those of a coroutine when it is awaited."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        check_call(method, args, kwargs)
        return method(*args, **kwargs)

    @wraps(method)
    async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
        check_call(method, args, kwargs)
        return await method(*args, **kwargs)  # type: ignore[misc]

    return cast("Callable[P, T]", call_async) if inspect.iscoroutinefunction(method) else call


def check_call(method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Check the arguments of a call. Raises WrongArgument, and IllegalState first where the client cannot be used at all."""
    try:
        check_arguments(method, args, kwargs)
    except WrongArgument:
        client = args[0]
        client._check()
        client._core.scheduler  # noqa: B018  (what has taken the place of a closed core raises)
        raise
