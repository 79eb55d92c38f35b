"""Serial execution of asynchronous work, in the order of submission."""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.queue import CallbackQueue

R = TypeVar("R")
_logger = logging.getLogger("ottla.metadata")


class Turns:
    """Queue that starts a task after the previous one is answered, so that each task sees the effects of all earlier ones.

    A task that raises, or whose answer is abandoned, ends its turn. If it had to wait for its turn, its caller has returned
    and cannot catch the exception: it is logged, and the answer is abandoned.
    """

    def __init__(self, tasks: CallbackQueue) -> None:
        self._tasks = tasks
        self._is_busy = False
        self._queue: deque[tuple[Callable[[], Answer[Any]], Deferred[Any]]] = deque()

    def take(self, work: Callable[[], Answer[R]]) -> Answer[R]:
        """Run `work` in its turn and return its answer; at once if no other work is running and it does not wait itself."""
        answer: Deferred[R] = Deferred(self._tasks)
        if self._is_busy:
            self._queue.append((work, answer))
            return answer
        self._is_busy = True
        try:
            answered = work()
        except BaseException:
            self._run_next()
            raise
        if isinstance(answered, Deferred):
            answered.listen(partial(self._ended, answer))
            return answer
        self._run_next()
        return answered

    def _ended(self, answer: Deferred[Any], answered: Deferred[Any]) -> None:
        answer.take_over(answered)
        self._run_next()

    def _run_next(self) -> None:
        """Run what waits, until something has to wait for its answer."""
        while self._queue:
            work, answer = self._queue.popleft()
            try:
                answered = work()
            except Exception as error:
                _logger.exception("a change of the metadata failed")
                answer.fail(error)
            else:
                if isinstance(answered, Deferred):
                    answered.listen(partial(self._ended, answer))
                    return
                answer.complete(answered)
        self._is_busy = False
