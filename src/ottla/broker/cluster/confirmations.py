"""Confirmations that other brokers are alive, for responses that name them as leaders.

The operating system closes the connections of a killed broker one after the other, over some milliseconds. A client whose
connection is among the first asks another broker for the leaders, which does not know of the death yet. So that one sends an
empty request to each leader that it is about to name. A living broker answers within a millisecond; a dead one never does, but
its connections break:

    the client's connection breaks    it asks another broker    the other broker's connections break
    |-------------------------------->|== confirmation ========>| the broker is lost, the response does not name it

One request to a broker is in flight at a time. Confirmations asked for meanwhile share the next one, as what was sent before
proves nothing about the time after.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ottla.tasks.deferred import Answer, Deferred, awaitable
from ottla.tasks.scheduler import Scheduler

CONFIRM_MS: Final = 20
"""Time that a response waits for a confirmation: a broker that is only slow, or cut off, is named after it."""


class _Sender:
    """Confirmations of one broker; an answer has one listener, so each that was asked for is an answer of its own.

    sent  answers that wait for the request in flight; None without one
    next  answers that wait for the request after it
    """

    __slots__ = ("is_late", "next", "sent")

    def __init__(self) -> None:
        self.sent: list[Deferred[None]] | None = None
        self.next: list[Deferred[None]] = []
        self.is_late = False
        """True while the request in flight has been for CONFIRM_MS: no response waits for this broker then."""


class Confirmations:
    """Confirmations of all brokers.

    ask  sends a request to a broker; the answer comes when it is answered or has failed
    """

    def __init__(self, ask: Callable[[int], Answer[object]], tasks: Scheduler) -> None:
        self._ask = ask
        self._tasks = tasks
        self._senders: dict[int, _Sender] = {}

    def confirm(self, node_id: int) -> Answer[None]:
        """Answer when a request sent from now on is answered or has failed, after CONFIRM_MS at the latest."""
        sender = self._senders.setdefault(node_id, _Sender())
        if sender.is_late:
            return None
        confirmed: Deferred[None] = Deferred(self._tasks)
        sender.next.append(confirmed)
        if sender.sent is None:
            sender.sent = []
            self._tasks.background(self._send(node_id, sender), f"confirmations of broker {node_id}")
        return confirmed

    async def _send(self, node_id: int, sender: _Sender) -> None:
        """Send requests while confirmations wait for one."""
        while sender.next:
            sender.sent, sender.next = sender.next, []
            timer = self._tasks.call_later(CONFIRM_MS, partial(_be_late, sender))
            try:
                await awaitable(self._ask(node_id), self._tasks)
            finally:
                timer.cancel()
                confirmed, sender.sent, sender.is_late = sender.sent, None, False
                _complete(confirmed or ())


def _be_late(sender: _Sender) -> None:
    """Let the responses go that wait for a broker."""
    sender.is_late = True
    waiting = [*(sender.sent or ()), *sender.next]
    sender.sent, sender.next = [], []
    _complete(waiting)


def _complete(answers: Iterable[Deferred[None]]) -> None:
    for answer in answers:
        answer.complete(None)
