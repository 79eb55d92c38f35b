"""Regular expressions whose pattern or subject comes from a client: RE2, which takes time linear in the subject for every one.

RE2 lacks what cannot be matched in linear time: look-ahead and look-behind, back-references. It is imported at the first
expression.
"""

from typing import Any, Final

_MOST_MEMORY: Final = 8 << 20


class InvalidRegex(ValueError):
    """Invalid RE2 expression; the message has the reason."""


def compiled(regex: str, *, captures: bool = False, max_memory: int = _MOST_MEMORY) -> Any:
    """Return a compiled expression, which has the methods of Python's. Raises InvalidRegex.

    captures  whether matches have groups
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = not captures
    options.max_mem = max_memory
    try:
        return re2.compile(regex, options)
    except re2.error as cause:
        reason = cause.args[0] if cause.args else "unknown"
        raise InvalidRegex(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
