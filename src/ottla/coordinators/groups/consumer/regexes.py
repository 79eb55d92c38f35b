"""Regular expressions that the broker resolves for consumers (KIP-848): RE2 syntax, matched against whole topic names.

Expressions of any client can be accepted (`ottla/regexes.py`). Kafka's library is a port of RE2 to Java; Ottla uses RE2 itself.
"""

from collections.abc import Iterable

from ottla.regexes import InvalidRegex, compiled


def check_regex(regex: str) -> None:
    """Raise InvalidRegex unless `regex` is a valid RE2 expression."""
    compiled(regex)


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """Return the `names` that the expression matches as a whole; empty for an invalid expression."""
    try:
        pattern = compiled(regex)
    except InvalidRegex:
        return frozenset()
    return frozenset(name for name in names if pattern.fullmatch(name))
