"""JSON text with line breaks and indentation, and nothing else changed: digits, escapes and duplicate names stay."""

import json
import re
from typing import Final

_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_INDENT: Final = "  "


def indent_json(text: str) -> str | None:
    """Return a JSON text with a line for each member; None if it is not JSON."""
    try:
        json.loads(text, parse_int=str, parse_float=str)  # as text: numbers of any length
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    depth = 0
    before = ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in ("}", "]"):
            depth -= 1
            if before not in ("{", "["):
                parts.append("\n" + _INDENT * depth)
        elif before in ("{", "[", ","):
            parts.append("\n" + _INDENT * depth)
        parts.append(": " if token == ":" else token)
        depth += token in ("{", "[")
        before = token
    return "".join(parts)
