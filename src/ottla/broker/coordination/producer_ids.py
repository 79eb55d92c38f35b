"""Producer ids, reserved in blocks ahead of their use: a coordinator never waits for the metadata store inside a decision.

The first request for an id reserves a block; the next block is reserved when the one in use runs low.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ottla.coordinators.readiness import NotReady
from ottla.metadata.metadata import PRODUCER_ID_BLOCK
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.scheduler import Scheduler

_RUNS_LOW: Final = PRODUCER_ID_BLOCK // 2


class ProducerIds:
    """The producer ids of this broker, each assigned once.

    reserve_block  reserves PRODUCER_ID_BLOCK ids in the metadata and returns the first one, -1 when that failed
    """

    def __init__(self, reserve_block: Callable[[], Coroutine[Deferred[Any], Any, int]], tasks: Scheduler) -> None:
        self._reserve_block = reserve_block
        self._tasks = tasks
        self._current = range(0)
        self._following = range(0)
        self._is_reserving = False
        self._waiting: deque[Deferred[bool]] = deque()

    def take(self) -> int:
        """Return an unused producer id. Raises NotReady while the reserved ids are used up."""
        if not self._current:
            self._current, self._following = self._following, range(0)
        if not self._current:
            self._reserve_more()
            raise NotReady
        producer_id = self._current[0]
        self._current = self._current[1:]
        if len(self._current) <= _RUNS_LOW and not self._following:
            self._reserve_more()
        return producer_id

    def reserve(self) -> Answer[bool]:
        """Answer True once an id is available; False when the metadata store cannot be written."""
        if not self._current and not self._following:
            self._reserve_more()
        if self._current or self._following:
            return True
        if not self._is_reserving:
            return False
        answer: Deferred[bool] = Deferred(self._tasks)
        self._waiting.append(answer)
        return answer

    def _reserve_more(self) -> None:
        if self._is_reserving:
            return
        self._is_reserving = True
        self._tasks.background(self._reserve(), "the reservation of producer ids")

    async def _reserve(self) -> None:
        first = -1
        try:
            first = await self._reserve_block()
        finally:
            self._is_reserving = False
            self._on_reserved(first)

    def _on_reserved(self, first: int) -> None:
        if first >= 0:
            self._following = range(first, first + PRODUCER_ID_BLOCK)
        # Each waiting request takes an id when it is served, and there may be more of them than ids in a block.
        served = len(self._waiting) if first < 0 else len(self._current) + len(self._following)
        for _ in range(min(served, len(self._waiting))):
            self._waiting.popleft().complete(first >= 0)
        if self._waiting:
            self._reserve_more()
