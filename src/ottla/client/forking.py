"""Clients in a forked process: every call raises IllegalState, with a hint to create the client after the fork.

A forked process has the memory of its parent but none of its threads: the thread of the blocking clients' event loop is
missing, and sockets and epoll descriptors are shared with the parent. A call would wait for ever; a record would be
buffered and never sent.

The attributes by which a client reaches its core are replaced in the child, so that calls in the parent need no check. The
original objects are kept alive: their finalizers would close descriptors that the parent still uses (an epoll descriptor
and its registrations are shared).
"""

import os
import weakref
from typing import Any, Final

from ottla.client.errors import IllegalState

_ATTRIBUTES: Final = ("_admin", "_append", "_consumer", "_core", "_loop", "_producer", "_reports", "_share", "_thread")
"""Attributes by which the clients of `blocking.py`, `aio.py` and `waiting.py` reach their core or its thread."""

_clients: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_originals: Final[list[Any]] = []


class ParentsClient:
    """Stands in for the core of a client of the parent process: each use raises IllegalState.

    kind     class of the client
    process  process id of the parent
    """

    def __init__(self, kind: str, process: int) -> None:
        vars(self)["message"] = (
            f"this {kind} belongs to process {process}, from which process {os.getpid()} was forked: "
            "create one in each process, after the fork"
        )

    def __getattr__(self, name: str) -> Any:
        raise IllegalState(vars(self)["message"])

    def __setattr__(self, name: str, value: object) -> None:
        raise IllegalState(vars(self)["message"])

    def __call__(self, *_arguments: Any, **_options: Any) -> Any:
        """Raise IllegalState."""
        raise IllegalState(vars(self)["message"])


def register(client: Any) -> None:
    """Make calls of a client raise in child processes forked later. The child sets its `_released` to True."""
    _clients[id(client)] = client


def _in_child() -> None:
    for client in list(_clients.values()):
        replacement = ParentsClient(type(client).__name__, os.getppid())
        attributes = vars(client)
        for name in _ATTRIBUTES:
            if attributes.get(name) is not None:
                _originals.append(attributes[name])
                attributes[name] = replacement
        client._released = True  # `close` has nothing to do: connections and thread are the parent's
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
