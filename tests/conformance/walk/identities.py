"""Identifiers that each broker generates: of topics, members, producers and sessions.

A request has a value for each broker in their place, an `Alias`. In the responses, a value of one broker corresponds to the
same value of the other broker throughout a walk.
"""

from typing import Any, Final, NamedTuple

CATEGORIES: Final = {
    # field of a message: what it identifies
    "topic_id": "topic",
    "topic_ids": "topic",
    "member_id": "member",
    "leader": "member",
    "producer_id": "producer",
    "current_producer_id": "producer",
    "session_id": "session",
}
_NOBODY: Final = (None, "", 0, -1, bytes(16))
STRANGERS: Final = (bytes([1]) * 16, "stranger", 77_777)
"""Ids that no broker generated: of a topic, a member and a producer."""


class Alias(NamedTuple):
    """Value that differs between the brokers: the `number`-th of its category."""

    category: str
    number: int


class Identities:
    """Pairs of corresponding values of two brokers."""

    def __init__(self) -> None:
        self._pairs: dict[str, list[tuple[Any, Any]]] = {}

    def count(self, category: str) -> int:
        """Return how many values of a category are known."""
        return len(self._pairs.get(category, ()))

    def value(self, alias: Alias, side: int) -> Any:
        """Return the value that an alias has at a broker."""
        return self._pairs[alias.category][alias.number][side]

    def alias(self, field: str, value: Any, side: int) -> object:
        """Return the alias of the value of a field; the value itself if it is not one of a broker."""
        category = CATEGORIES[field]
        for number, pair in enumerate(self._pairs.get(category, ())):
            if pair[side] == value:
                return Alias(category, number)
        return value

    def difference(self, field: str, one: Any, other: Any) -> str | None:
        """Return how two values of a field contradict what is known of them; new ones are learned."""
        if one in STRANGERS or other in STRANGERS or one in _NOBODY or other in _NOBODY:
            known = (self.alias(field, one, 0), self.alias(field, other, 1))
            return None if one == other or known[0] == known[1] else f"{one!r} and {other!r}"
        aliases = (self.alias(field, one, 0), self.alias(field, other, 1))
        if aliases == (one, other):
            self._pairs.setdefault(CATEGORIES[field], []).append((one, other))
            return None
        return None if aliases[0] == aliases[1] else f"{one!r} and {other!r}: {aliases[0]} and {aliases[1]}"
