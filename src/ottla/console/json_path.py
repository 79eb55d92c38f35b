"""Conditions on JSON documents: `$.a.b[0]`, `$.a[*].b >= 3`, `$.name =~ REGEX`.

A small subset of JSONPath with one comparison, in time linear in the document. Nothing of it is evaluated as code.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from ottla.console.regexes import compiled

_PATH: Final = re.compile(r"\$(?:\.[^\s.\[\]=<>!~]+|\[\d+\]|\[\*\]|\['[^']*'\])*")
_OPERATOR: Final = re.compile(r"==|!=|<=|>=|=~|<|>")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[(\*)\]|\['([^']*)'\]")
_MOST_STEPS: Final = 20
_LONGEST: Final = 2000
"""Number of characters of the longest condition."""
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


class InvalidCondition(ValueError):
    """Condition that cannot be parsed; the message has the reason."""


class JsonCondition:
    """Condition on one document: a value at the path exists, or compares as required."""

    def __init__(self, text: str) -> None:
        """Parse a condition. Raises InvalidCondition, InvalidRegex."""
        path, operator, operand = _parts(text)
        self._steps: list[str | int | None] = []
        for key, index, every, quoted in _STEP.findall(path):
            self._steps.append(None if every else int(index) if index else key or quoted)
        if len(self._steps) > _MOST_STEPS:
            raise InvalidCondition(f"a JSON path has at most {_MOST_STEPS} steps")
        self._operator = operator
        self._pattern = compiled(operand) if operator == "=~" else None
        self._operand = None if operator in (None, "=~") else _literal(operand)

    def __call__(self, document: Any) -> bool:
        """Return whether a document meets the condition."""
        return any(map(self._accepts, self._values(document)))

    def _values(self, document: Any) -> list[Any]:
        values = [document]
        for step in self._steps:
            values = [below for value in values for below in _below(value, step)]
        return values

    def _accepts(self, value: Any) -> bool:
        if self._operator is None:
            return True
        if self._pattern is not None:
            return isinstance(value, str) and self._pattern.search(value) is not None
        if self._operator in ("==", "!="):
            is_equal = value == self._operand and isinstance(value, bool) == isinstance(self._operand, bool)
            return is_equal == (self._operator == "==")
        kinds = (int, float) if isinstance(self._operand, int | float) else str
        return (
            isinstance(value, kinds) and not isinstance(value, bool) and _ORDERS[self._operator](value, self._operand)
        )


def _parts(text: str) -> tuple[str, str | None, str]:
    """Return path, operator and operand; without a comparison None and "". Raises InvalidCondition.

    The parts are taken one after the other: one expression for all of them took time in the cube of the number of blanks.
    """
    if len(text) > _LONGEST:
        raise InvalidCondition(f"a JSON condition has at most {_LONGEST} characters")
    text = text.strip()
    path = _PATH.match(text)
    if path is not None:
        rest = text[path.end() :].lstrip()
        if not rest:
            return path[0], None, ""
        operator = _OPERATOR.match(rest)
        operand = "" if operator is None else rest[operator.end() :].lstrip()
        if operator is not None and operand:
            return path[0], operator[0], operand
    raise InvalidCondition('a JSON condition is like $.order.total >= 100, $.items[*].id == "a" or $.name =~ REGEX')


def _below(value: Any, step: str | int | None) -> list[Any]:
    if step is None:
        return list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    if isinstance(step, int):
        return [value[step]] if isinstance(value, list) and step < len(value) else []
    return [value[step]] if isinstance(value, dict) and step in value else []


def _literal(text: str) -> Any:
    """Return a JSON literal; other text stands for a string without quotes."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
