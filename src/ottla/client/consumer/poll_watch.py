"""Notices that the application does not poll: a member of a group that does not for max.poll.interval.ms leaves it (KIP-62)."""

from typing import Any, Final

from ottla.client.consumer.rebalance import MemberConsumer, PollTimeout
from ottla.client.core import Core
from ottla.tasks.deferred import Deferred

_LOOKS: Final = 10
"""Number of looks at the polls in max.poll.interval.ms: a poll is noticed a tenth late, its absence too."""
_PAUSE_MS: Final = 100


class PollWatch:
    """Watch over the polls of one consumer."""

    def __init__(self, core: Core, consumer: MemberConsumer) -> None:
        self._core = core
        self._consumer = consumer
        self._limit_ms: int = core.config["max.poll.interval.ms"]
        self._polls = 0
        self._last_poll = core.clock.now_ms()

    def restart(self) -> None:
        """Count the time without a poll from now on."""
        self._last_poll = self._core.clock.now_ms()

    def check(self) -> None:
        """Raise PollTimeout if the application has not polled for max.poll.interval.ms."""
        if self._core.clock.now_ms() - self._observe_poll() > self._limit_ms:
            raise PollTimeout

    async def wait(self, promise: Deferred[Any], delay_ms: int) -> bool:
        """Wait up to `delay_ms` for an outcome of a promise; return True if it has one. Raises PollTimeout."""
        left = delay_ms
        while left > 0 and not promise.done:
            pause = min(left, max(self._limit_ms // _LOOKS, 1))
            await self._core.scheduler.within(promise, pause)
            left -= pause
            self.check()
        return promise.done

    async def until_polled(self) -> None:
        """Wait until the application polls again."""
        before = self._last_poll
        while self._observe_poll() == before:
            await self._core.scheduler.sleep(_PAUSE_MS)

    def _observe_poll(self) -> int:
        """Return the time (clock ms) at which a poll of the application was last noticed."""
        if self._consumer.polls != self._polls:
            self._polls = self._consumer.polls
            self._last_poll = self._core.clock.now_ms()
        return self._last_poll
