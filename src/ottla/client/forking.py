"""Clients in a forked process: every call raises IllegalState, with a hint to create the client after the fork.

A forked process has the memory of its parent but none of its threads: the thread of the blocking clients' event loop is
missing, and sockets and epoll descriptors are shared with the parent. A call would wait for ever; a record would be
buffered and never sent.

The original objects are kept alive: their finalizers would close descriptors that the parent still uses (an epoll descriptor
and its registrations are shared).
"""

import os
import weakref
from typing import Any, Final

from ottla.client.ended import end

_clients: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_originals: Final[list[Any]] = []


def register(client: Any) -> None:
    """Make calls of a client raise in child processes forked later. The child sets its `_released` to True."""
    _clients[id(client)] = client


def _in_child() -> None:
    for client in list(_clients.values()):
        message = (
            f"this {type(client).__name__} belongs to process {os.getppid()}, from which process {os.getpid()} was forked: "
            "create one in each process, after the fork"
        )
        _originals.extend(end(client, message))
        client._released = True  # `close` has nothing to do: connections and thread are the parent's
    _clients.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
