"""Regular expressions of users: RE2, which takes time linear in the text for every expression."""

from typing import Any, Final

_MOST: Final = 1000


class InvalidRegex(ValueError):
    """Invalid RE2 expression; the message has the reason."""


def compiled(regex: str) -> Any:
    """Return a compiled expression, whose `search` takes text. Raises InvalidRegex."""
    import re2

    if len(regex) > _MOST:
        raise InvalidRegex(f"longer than {_MOST} characters")
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = 1 << 20
    try:
        return re2.compile(regex, options)
    except re2.error as cause:
        reason = cause.args[0] if cause.args else "unknown"
        raise InvalidRegex(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
