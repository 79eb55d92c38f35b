"""Check of the arguments of public calls by their annotations: a wrong type is a WrongArgument that names the parameter.

Without it the argument fails somewhere below, as a struct.error of an encoder, or silently: a text in place of a list of names
is a list of its letters. The client's calls for each record (`produce`, `poll`) are not checked by this, which costs some
microseconds. Messages do not have the value, which may be a password.
"""

import inspect
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import cache, wraps
from typing import Any, TypeVar, Union, get_args, get_origin

C = TypeVar("C", bound=type)


class WrongArgument(TypeError):
    """An argument has the wrong type; the message names it."""


def checked_tuple(cls: C) -> C:
    """Decorate a named tuple: its fields are checked when one is made by a call, not by `_replace`."""
    make = cls.__new__
    annotations = _fields(cls)

    def new(own: type, /, *args: Any, **kwargs: Any) -> Any:
        for name, value in (*zip(annotations, args, strict=False), *kwargs.items()):
            _check(cls, name, value, annotations.get(name, Any))
        return make(own, *args, **kwargs)

    def reduced(own: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return cls._make, (tuple(own),)  # type: ignore[attr-defined]

    cls.__new__ = wraps(make)(new)  # type: ignore[method-assign]
    cls.__reduce__ = reduced  # type: ignore[method-assign, assignment]  # a copy is not checked again
    return cls


def check_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Check the arguments of a function, or of a method with `self`. Raises WrongArgument."""
    annotations = annotations_of(function)
    for name, value in (*zip(annotations, args, strict=False), *kwargs.items()):
        _check(function, name, value, annotations.get(name, Any))


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function in messages: that of the class for its constructor."""
    return f"{function.__qualname__.removesuffix('.__init__').rpartition('.')[2]}()"


def _check(function: Callable[..., Any], name: str, value: object, kind: Any) -> None:
    wrong = _mismatch(value, kind)
    if wrong is not None:
        raise WrongArgument(f"{name_of(function)}: {name} must be {_text(kind)}, not {wrong}")


@cache
def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotation of each parameter; Any for one without, as `self`."""
    return {
        parameter.name: _evaluated(parameter.annotation, function.__globals__)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }


@cache
def _fields(cls: type) -> dict[str, Any]:
    """Return the annotation of each field of a named tuple."""
    return {name: _evaluated(kind, {}) for name, kind in inspect.get_annotations(cls).items()}


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except NameError:  # a name for the type checker only
        return Any


def _mismatch(value: object, kind: Any) -> str | None:
    """Return the type that does not fit an annotation, with its place in a collection; None if all fit."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        faults = {option: _mismatch(value, option) for option in get_args(kind)}
        if None in faults.values():
            return None
        # What is wrong inside says more than the type of the whole; a dict is meant as a mapping, not as a list of its keys.
        meant = [fault for option, fault in faults.items() if isinstance(value, Mapping) and _is_mapping(option)]
        return max((fault for fault in meant or faults.values() if fault is not None), key=len)
    if _is_mapping(kind):
        return _in_mapping(value, *get_args(kind))
    if origin is not None and issubclass(origin, Iterable) and origin is not type:
        return _in_collection(value, get_args(kind))
    return None if _fits(value, origin or kind) else type(value).__name__


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _in_mapping(value: object, key_kind: Any, value_kind: Any) -> str | None:
    if not isinstance(value, Mapping):
        return type(value).__name__
    for key, item in value.items():
        wrong = _mismatch(key, key_kind)
        if wrong is not None:
            return f"{type(value).__name__} with a key of type {wrong}"
        wrong = _mismatch(item, value_kind)
        if wrong is not None:
            return f"{type(value).__name__} with a value of type {wrong}"
    return None


def _in_collection(value: object, kinds: tuple[Any, ...]) -> str | None:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return type(value).__name__
    if not isinstance(value, Collection) or kinds[0] is Any:
        return None  # the elements of an iterator can be read only once
    if len(kinds) > 1 and kinds[1] is not Ellipsis:
        faults = [_mismatch(*pair) for pair in zip(value, kinds, strict=False)]
    else:
        faults = [_mismatch(element, kinds[0]) for element in value]
    wrong = next((fault for fault in faults if fault is not None), None)
    return None if wrong is None else f"{type(value).__name__} with an element of type {wrong}"


def _fits(value: object, kind: Any) -> bool:
    """Return whether a value fits a plain type; numbers of NumPy are numbers, not True or False."""
    if kind is None or kind is type(None):
        return value is None
    if kind in (int, float) and isinstance(value, bool):
        return False
    if kind is int:
        return hasattr(type(value), "__index__")
    if kind is float:
        return hasattr(type(value), "__float__") or hasattr(type(value), "__index__")
    if kind is bool:
        return hasattr(type(value), "__bool__")
    if kind is bytes:
        return isinstance(value, bytes | bytearray | memoryview)
    if kind is Any or not isinstance(kind, type) or kind is object:  # Any is a class since Python 3.11
        return True
    if issubclass(kind, Enum):
        return isinstance(value, kind) or (isinstance(value, int) and value in {member.value for member in kind})
    if not isinstance(value, kind):
        return False
    names = getattr(kind, "_fields", None)
    if names is None or not isinstance(value, tuple):
        return True
    named: Any = kind
    annotations: dict[str, Any] = _fields(named)
    return all(_mismatch(field, annotations.get(name, Any)) is None for name, field in zip(names, value, strict=True))


def _text(kind: Any) -> str:
    """Return an annotation as it is written in the documentation."""
    if isinstance(kind, type) and get_origin(kind) is None:
        return "None" if kind is type(None) else kind.__name__
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " | ".join(map(_text, args))
    if origin is not None and args:
        return f"{origin.__name__}[{', '.join('...' if arg is Ellipsis else _text(arg) for arg in args)}]"
    return "None" if kind is None else str(getattr(kind, "__name__", kind))
