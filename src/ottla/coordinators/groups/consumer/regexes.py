"""Regular expressions that the broker resolves for consumers (KIP-848): RE2 syntax, matched against whole topic names.

RE2 takes time linear in the text whatever the expression, which is why Kafka accepts them from any client. Kafka's library is a
port of RE2 to Java; here it is RE2 itself. It is imported when the first expression comes.
"""

from collections.abc import Iterable
from typing import Any


class InvalidRegex(ValueError):
    """Not an expression of RE2; the text says why."""


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
    """Raises InvalidRegex."""
    _compiled(regex)


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """Those of `names` that the expression matches as a whole; none when it is no expression."""
    try:
        pattern = _compiled(regex)
    except InvalidRegex:
        return frozenset()
    return frozenset(name for name in names if pattern.fullmatch(name))
