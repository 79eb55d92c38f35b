"""Regular expressions that the broker resolves for consumers (KIP-848): RE2 syntax, matched against whole topic names.

RE2 takes time linear in the text for every expression, so that expressions of any client can be accepted. Kafka's library is a
port of RE2 to Java; Ottla uses RE2 itself, imported at the first expression.
"""

from collections.abc import Iterable
from typing import Any


class InvalidRegex(ValueError):
    """Invalid RE2 expression; the message has the reason."""


def _compiled(regex: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(regex, options)
    except re2.error as cause:
        reason = cause.args[0] if cause.args else "unknown"
        raise InvalidRegex(reason.decode() if isinstance(reason, bytes) else str(reason)) from None


def check_regex(regex: str) -> None:
    """Raise InvalidRegex unless `regex` is a valid RE2 expression."""
    _compiled(regex)


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """Return the `names` that the expression matches as a whole; empty for an invalid expression."""
    try:
        pattern = _compiled(regex)
    except InvalidRegex:
        return frozenset()
    return frozenset(name for name in names if pattern.fullmatch(name))
