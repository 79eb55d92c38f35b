"""Deferred sends: responses to requests that arrived together leave together.

A send wakes the client, and that takes the broker as long as most of the rest of a request: another processor has to leave its
idle state. A client with many connections is asleep again before the next response, as reading one takes it less time than the
broker needs for a request. So while many connections have requests at the same time, the loop serves them before it sends:

    a pass of the loop:  request 1, send | request 2, hold | request 3, hold | ... | send 2, 3, ... | look for events

The client is woken by the first response, and awake for the others. No response waits for more than MOST_HELD others, or for
the next pass. Whether responses are held depends on the pass before: with few connections each response leaves at once.
"""

from collections.abc import Callable
from typing import Final, Protocol

MANY: Final = 8
"""Responses of a pass from which on the next pass holds some."""
MOST_HELD: Final = 16


class Sender(Protocol):
    """A socket that holds a response."""

    def send_held(self) -> None:
        """Send the response, if it is still held."""


class DeferredSends:
    """Deferred sends of one event loop, on whose thread all methods are called.

    call_soon  schedules a call for the end of the current pass, before the loop looks for events again
    """

    __slots__ = ("_call_soon", "_count", "_held", "_holds")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._count = 0
        """Responses of this pass."""
        self._holds = False
        self._held: list[Sender] = []

    def should_hold(self) -> bool:
        """Return True if the next response is to be held, see `hold`."""
        return self._holds and self._count > 0

    def on_sent(self) -> None:
        """Count a response that was sent at once: after it was, as the client waits for it."""
        self._count += 1
        if self._count == 1:
            self._call_soon(self._end)

    def hold(self, sender: Sender) -> None:
        """Note that a socket holds a response; it sends it at the end of the pass, or when MOST_HELD do so."""
        self._count += 1
        self._held.append(sender)
        if len(self._held) == MOST_HELD:
            self._send()

    def _end(self) -> None:
        self._holds = self._count >= MANY
        self._count = 0
        self._send()

    def _send(self) -> None:
        senders, self._held = self._held, []
        for sender in senders:
            sender.send_held()
