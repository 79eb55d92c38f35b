"""Stand-in for the core of a client that can no longer be used: each use raises IllegalState.

The attributes by which a client reaches its core are replaced, so that calls of an open client need no check.
"""

from typing import Any, Final

from ottla.client.errors import IllegalState

_ATTRIBUTES: Final = ("_admin", "_append", "_consumer", "_core", "_loop", "_producer", "_share", "_thread")
"""Attributes by which the clients of `blocking.py`, `aio.py` and `waiting.py` reach their core or its thread."""


class EndedCore:
    """Stands in for the core of a client: each use raises IllegalState with this message."""

    def __init__(self, message: str) -> None:
        vars(self)["message"] = message

    def __getattr__(self, name: str) -> Any:
        raise IllegalState(vars(self)["message"])

    def __setattr__(self, name: str, value: object) -> None:
        raise IllegalState(vars(self)["message"])

    def __call__(self, *_arguments: Any, **_options: Any) -> Any:
        """Raise IllegalState."""
        raise IllegalState(vars(self)["message"])


def end(client: Any, message: str) -> list[Any]:
    """Make every later call of a client raise IllegalState with a message. Return what its attributes referred to."""
    attributes = vars(client)
    ended = EndedCore(message)
    originals = []
    for name in _ATTRIBUTES:
        if attributes.get(name) is not None:
            originals.append(attributes[name])
            attributes[name] = ended
    return originals
