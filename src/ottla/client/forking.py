"""Clients in a forked process: every call raises IllegalState, with what to do instead.

A forked process has the memory of its parent but none of its threads: the loop of the blocking clients runs in one that is
gone, and sockets and epoll descriptors are those of the parent. A call would wait for ever, a record would be taken and never
sent.

What a client reaches its core by is replaced in the child, so that a call in the parent pays nothing for the check. The
originals are kept: what their finalizers would close belongs to the parent (an epoll descriptor is shared, and so is what is
registered there).
"""

import os
import weakref
from typing import Any, Final

from ottla.client.errors import IllegalState

_ATTRIBUTES: Final = ("_admin", "_append", "_consumer", "_core", "_producer", "_reports", "_share", "_thread")
"""By which the clients of `blocking.py`, `aio.py` and `waiting.py` reach what a forked process does not have."""

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
    """Make the calls of a client raise in processes that are forked from now on. Its `_released` becomes True there."""
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
