"""Serial execution of asynchronous work, in the order of submission."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.protocol.answer import Answer, Pending

R = TypeVar("R")
_logger = logging.getLogger("ottla.metadata")


class Turns:
    """Queue that starts a task after the previous one is answered, so that each task sees the effects of all earlier ones.

    A task that raises, or whose answer is abandoned, ends its turn. If it had to wait for its turn, its caller has returned
    and cannot catch the exception: it is logged, and the answer is abandoned.
    """

    def __init__(self) -> None:
        self._busy = False
        self._draining = False
        self._queue: deque[tuple[Callable[[], Answer[Any]], Pending[Any]]] = deque()

    def take(self, work: Callable[[], Answer[R]]) -> Answer[R]:
        """Run `work` in its turn and return its answer; at once if no other work is running and it does not wait itself."""
        if self._busy:
            answer: Pending[R] = Pending()
            self._queue.append((work, answer))
            return answer
        self._busy = True
        try:
            answered = work()
        except BaseException:
            self._next()
            raise
        if not isinstance(answered, Pending):
            self._next()
            return answered
        whole: Pending[R] = Pending()
        answered.listen(lambda response: self._ended(whole, response), lambda: self._abandoned(whole))
        return whole

    def _ended(self, answer: Pending[Any], response: Any) -> None:
        try:
            answer.complete(response)
        finally:
            self._next()

    def _abandoned(self, answer: Pending[Any]) -> None:
        try:
            answer.abandon()
        finally:
            self._next()

    def _next(self) -> None:
        self._busy = False
        if self._draining:
            return  # the loop below goes on
        self._draining = True
        try:
            while self._queue and not self._busy:
                work, answer = self._queue.popleft()
                try:
                    answered = self.take(work)
                except Exception:
                    _logger.exception("a change of the metadata failed")
                    answer.abandon()
                else:
                    answer.follow(answered)
        finally:
            self._draining = False
