"""A recurring event for which tasks wait."""

from ottla.tasks.deferred import Deferred
from ottla.tasks.queue import CallbackQueue


class Signal:
    """Recurring event; a waiter waits for the next occurrence."""

    __slots__ = ("_next", "_tasks")

    def __init__(self, tasks: CallbackQueue) -> None:
        self._tasks = tasks
        self._next: Deferred[None] = Deferred(tasks)

    def wait(self) -> Deferred[None]:
        """Return a deferred that is completed at the next occurrence."""
        return self._next

    @property
    def is_awaited(self) -> bool:
        """Return whether a waiter waits for the next occurrence."""
        return self._next.is_awaited

    def happen(self) -> None:
        """Complete the deferreds of all waiters."""
        happened, self._next = self._next, Deferred(self._tasks)
        happened.complete(None)
