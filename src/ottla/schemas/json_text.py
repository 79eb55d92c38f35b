"""JSON texts of schemas: parsed with the digits of their numbers, and printed as Jackson prints them, without whitespace.

Clients compare the text of a registered schema byte for byte with their own, which Jackson has printed.
"""

import json
import re
from decimal import Decimal
from typing import Any, Final

from ottla.schemas.registry import UnsupportedSchema

# What has no end goes to the end of the text, so that no character is looked at twice.
_COMMENT_OR_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|/\*(?:.*?\*/|.*)|//[^\n]*', re.DOTALL)
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_PLAIN_BELOW: Final = 10_000_000
_PLAIN_FROM: Final = 0.001


def parse(text: str, language: str, *, exact: bool = False, comments: bool = False) -> Any:
    """Return the value of a JSON text. Raises UnsupportedSchema.

    language  for the error: "Avro schema", "JSON Schema"
    exact     floats as Decimal, otherwise as float
    comments  whether /* */ and // are skipped, as Java's Avro does
    """
    try:
        if comments and "/" in text:
            text = _COMMENT_OR_STRING.sub(lambda part: part[0] if part[0][0] == '"' else " ", text)
        return json.loads(text, parse_float=Decimal if exact else float, parse_constant=_refuse)
    except RecursionError:
        raise UnsupportedSchema(f"not an {language}: nested too deeply".replace("an J", "a J")) from None
    except ValueError as wrong:
        raise UnsupportedSchema(f"not an {language}: {wrong}".replace("an J", "a J")) from None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def compact(value: Any) -> str:
    """Return a JSON value as Jackson prints it, keys in their order."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def _write(value: Any, parts: list[str]) -> None:
    if isinstance(value, str):
        parts.append(quoted(value))
    elif value is None or isinstance(value, bool):
        parts.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, float):
        parts.append(java_double(value))
    elif isinstance(value, dict):
        parts.append("{")
        for index, (key, inner) in enumerate(value.items()):
            parts.append(f"{',' if index else ''}{quoted(key)}:")
            _write(inner, parts)
        parts.append("}")
    elif isinstance(value, list | tuple):
        parts.append("[")
        for index, inner in enumerate(value):
            parts.append("," if index else "")
            _write(inner, parts)
        parts.append("]")
    else:
        parts.append(str(value))  # an int, or a Decimal, which Python prints like Java's BigDecimal


def quoted(text: str) -> str:
    """Return a string in quotes; only what JSON demands is escaped."""
    return '"' + _ESCAPED.sub(lambda part: _ESCAPES.get(part[0]) or f"\\u{ord(part[0]):04X}", text) + '"'


def java_double(value: float) -> str:
    """Return a number as Java's Double.toString does: 1.0E10, 0.001, 1.0E-4."""
    if value != value or value in (float("inf"), float("-inf")):
        return f'"{"NaN" if value != value else "Infinity" if value > 0 else "-Infinity"}"'
    if value == 0 or _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        plain = format(Decimal(repr(value)), "f")
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{exponent + len(digits) - 1}"
