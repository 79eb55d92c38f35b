"""Regular expressions of the console's users."""

from typing import Any, Final

from ottla import regexes
from ottla.regexes import InvalidRegex

_MOST: Final = 1000


def compiled(regex: str) -> Any:
    """Return a compiled expression, whose `search` takes text. Raises InvalidRegex."""
    if len(regex) > _MOST:
        raise InvalidRegex(f"longer than {_MOST} characters")
    return regexes.compiled(regex, max_memory=1 << 20)


__all__ = ["InvalidRegex", "compiled"]
