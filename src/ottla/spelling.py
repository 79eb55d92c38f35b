"""Suggestions for misspelt names: the nearest of the known ones by edit distance.

An insertion, a deletion, a substitution and a swap of neighbours cost 1. Characters of the known name before and behind what
was written cost less, because people shorten names: "NOT_LEADR" means NOT_LEADER_OR_FOLLOWER, "retention.ms" log.retention.ms.
"""

from collections.abc import Iterable
from typing import Final

_LEFT_OUT: Final = 0.1
"""Cost of a character of the known name that lies before or behind the written one."""

LIMIT: Final = 0.35
"""Highest cost per written character at which a name is suggested."""

_SEPARATORS: Final = str.maketrans("_-", "..")


def nearest(name: str, known: Iterable[str], limit: float = LIMIT) -> str | None:
    """Return the nearest known name, the first of several; None if all cost more than `limit` per character."""
    written = name.lower().translate(_SEPARATORS)
    best, lowest = None, limit * len(written)
    for candidate in known:
        cost = distance(written, candidate.lower().translate(_SEPARATORS))
        if cost < lowest or (best is None and cost == lowest):
            best, lowest = candidate, cost
    return best


def did_you_mean(name: str, known: Iterable[str], limit: float = LIMIT) -> str:
    """ "; did you mean NAME?", or nothing when no known name is near."""
    near = nearest(name, known, limit)
    return f"; did you mean {near}?" if near is not None else ""


def distance(written: str, known: str) -> float:
    """Cost of turning `written` into `known`."""
    width = len(known) + 1
    above: list[float] = []
    row = [_LEFT_OUT * column for column in range(width)]
    for index, character in enumerate(written):
        before, above = above, row
        row = [index + 1.0]
        for column in range(1, width):
            same = character == known[column - 1]
            cost = min(above[column] + 1, row[column - 1] + 1, above[column - 1] + (not same))
            if index and column > 1 and character == known[column - 2] and written[index - 1] == known[column - 1]:
                cost = min(cost, before[column - 2] + 1)
            row.append(cost)
    return min(cost + _LEFT_OUT * (width - 1 - column) for column, cost in enumerate(row))
