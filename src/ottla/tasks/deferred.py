"""A future value: completed once, by a value or an error; its listeners run later, in the scheduler's queue.

A coroutine awaits it. Functions on the path of every request, which have no task, chain and combine answers with `after` and
`gather`: an answer fails if the code that should complete it raised an unexpected exception, which is logged there, once, and
all answers that follow it fail with the same error.
"""

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from ottla.environment import Worker
from ottla.tasks.queue import CallbackQueue

T = TypeVar("T")
U = TypeVar("U")
_logger = logging.getLogger("ottla.tasks")


class Failed(Exception):
    """Outcome of a deferred whose cause is logged elsewhere."""


class Deferred(Generic[T]):
    """Future value, or the error in its place. The first outcome counts.

    tasks      the queue that its listeners run in
    done       whether there is an outcome
    withdrawn  ends the wait for an outcome that is not needed any more; None if the work continues without a listener

    `complete` and `fail` may be called on the thread of the event loop only.
    """

    __slots__ = ("_error", "_listeners", "_value", "done", "tasks", "withdrawn")

    def __init__(self, tasks: CallbackQueue) -> None:
        self.tasks = tasks
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._listeners: list[Callable[[Deferred[T]], object]] | None = None
        self.withdrawn: Callable[[], object] | None = None

    def complete(self, value: T) -> None:
        """Set the value, unless there is an outcome."""
        if not self.done:
            self.done = True
            self._value = value
            self._queue_listeners()

    def fail(self, error: BaseException) -> None:
        """Set the error, unless there is an outcome."""
        if not self.done:
            self.done = True
            self._error = error
            self._queue_listeners()

    def abandon(self) -> None:
        """Fail, after the caller has logged why."""
        self.fail(Failed("it failed, as the log says"))

    def _queue_listeners(self) -> None:
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            for listener in listeners:
                self.tasks.call(partial(listener, self))

    def listen(self, listener: Callable[["Deferred[T]"], object]) -> None:
        """Call `listener(self)` after the outcome, never before this returns."""
        if self.done:
            self.tasks.call(partial(listener, self))
        elif self._listeners is None:
            self._listeners = [listener]
        else:
            self._listeners.append(listener)

    def then(self, completed: Callable[[T], object], failed: Callable[[], object]) -> None:
        """Call `completed(value)` after a value, `failed()` after an error, never before this returns."""
        self.listen(partial(_pass_outcome, completed, failed))

    def ignore(self, listener: Callable[["Deferred[T]"], object]) -> None:
        """Remove a listener. It may still be called if there is an outcome."""
        if self._listeners is not None and listener in self._listeners:
            self._listeners.remove(listener)

    def follow(self, answer: "Answer[T]") -> None:
        """Take over the outcome of `answer`, now or later."""
        if isinstance(answer, Deferred):
            answer.listen(self.take_over)
        else:
            self.complete(answer)

    def take_over(self, other: "Deferred[T]") -> None:
        """Take over the outcome of a deferred that has one."""
        if other.error is None:
            self.complete(other.result())
        else:
            self.fail(other.error)

    def withdraw(self) -> None:
        """Drop the listeners, as the connection of the request is closed: nothing that waits may keep it in memory."""
        self._listeners = None
        withdrawn, self.withdrawn = self.withdrawn, None
        if withdrawn is not None and not self.done:
            withdrawn()

    @property
    def is_awaited(self) -> bool:
        """Return whether there are listeners and no outcome yet."""
        return bool(self._listeners)

    @property
    def error(self) -> BaseException | None:
        """Return the error; None before the outcome, and after a value."""
        return self._error

    def result(self) -> T:
        """Return the value, or raise the error. Only for a deferred with an outcome."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def __await__(self) -> Generator["Deferred[Any]", BaseException | None, T]:
        """Wait; with an outcome the coroutine goes on at once.

        What is sent instead of None is raised here: all awaits of tasks end in this one. `throw` would do the same, but
        compiled coroutines hand it on with three arguments, which Python 3.12 warns of.
        """
        if not self.done:
            interrupt = yield self
            if interrupt is not None:
                raise interrupt
        return self.result()


def _pass_outcome(completed: Callable[[T], object], failed: Callable[[], object], deferred: Deferred[T]) -> None:
    if deferred.error is None:
        completed(deferred.result())
    else:
        failed()


Answer: TypeAlias = T | Deferred[T]
"""A value that is there, or one that will be."""


def completed(value: T, tasks: CallbackQueue) -> Deferred[T]:
    """Return a deferred that already has this value."""
    deferred: Deferred[T] = Deferred(tasks)
    deferred.complete(value)
    return deferred


def awaitable(answer: Answer[T], tasks: CallbackQueue) -> Deferred[T]:
    """Return an answer in a form that can be awaited."""
    return answer if isinstance(answer, Deferred) else completed(answer, tasks)


def on_worker(worker: Worker, work: Callable[[], T], tasks: CallbackQueue) -> Deferred[T]:
    """Run `work` on a background thread and return its result; an exception of `work` is logged there."""
    deferred: Deferred[T] = Deferred(tasks)
    worker.run(work, deferred.complete, deferred.abandon)
    return deferred


def after(answer: Answer[T], follow: Callable[[T], Answer[U]]) -> Answer[U]:
    """Pass `answer` to `follow`, now or later, and return the answer of `follow`."""
    if not isinstance(answer, Deferred):
        return follow(answer)
    whole: Deferred[U] = Deferred(answer.tasks)
    answer.listen(partial(_pass_on, whole, follow))
    whole.withdrawn = answer.withdrawn
    return whole


def _pass_on(whole: Deferred[U], follow: Callable[[T], Answer[U]], answer: Deferred[T]) -> None:
    if answer.error is not None:
        whole.fail(answer.error)
    else:
        _follow_up(whole, partial(follow, answer.result()))


def _follow_up(whole: Deferred[U], step: Callable[[], Answer[U]]) -> None:
    """Complete or fail `whole` as `step` answers; an exception is logged once."""
    try:
        following = step()
    except Exception as error:
        _logger.exception("the rest of a request failed")
        whole.fail(error)
    else:
        whole.follow(following)


def gather(answers: Sequence[Answer[T]], combine: Callable[[list[T]], U]) -> Answer[U]:
    """Combine several answers into one, for a request about several keys; failed as soon as one of them is."""
    responses: list[Any] = list(answers)
    missing = [(index, answer) for index, answer in enumerate(answers) if isinstance(answer, Deferred)]
    if not missing:
        return combine(responses)
    whole: Deferred[U] = Deferred(missing[0][1].tasks)
    left = len(missing)

    def arrived(index: int, answer: Deferred[T]) -> None:
        nonlocal left
        if answer.error is not None:
            whole.fail(answer.error)
            return
        responses[index] = answer.result()
        left -= 1
        if left == 0 and not whole.done:
            _follow_up(whole, partial(combine, responses))

    for index, answer in missing:
        answer.listen(partial(arrived, index))
    return whole
