"""Answers of handlers: responses that are available at once, or completed later.

A handler returns a response, or a `Pending` that is completed later: by an append that is replicated, by data that arrived,
by coordinator records that are committed. There are no tasks or futures; an answer that waits is one object and one callback.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, cast

R = TypeVar("R")
_logger = logging.getLogger("ottla.broker")


class NotReady(Exception):
    """A required resource is not available yet, but will be soon: the request can be retried."""


class Pending(Generic[R]):
    """Response that is completed later, once. A listener is called at once if the response is complete already.

    An answer is abandoned if the code that should complete it raised an unexpected exception, which is logged there, once. All
    answers that follow it are abandoned as well, up to the connection and the turn (`Turns`) that wait for the last one.
    """

    __slots__ = ("_abandoned", "_listener", "_response", "done", "withdrawn")

    def __init__(self) -> None:
        self.done = False
        self._response: R | None = None
        self._listener: Callable[[R], object] | None = None
        self._abandoned: Callable[[], object] | bool = False
        """Callback for an abandoned answer; True if it was abandoned before a listener was added."""
        self.withdrawn: Callable[[], object] | None = None
        """Ends the wait for an answer that is not needed any more; None if the work continues without a listener."""

    def complete(self, response: R) -> None:
        """Complete the answer. A second call is a bug of the caller and raises RuntimeError."""
        if self.done:
            raise RuntimeError("this answer was given already")
        self.done = True
        if self._listener is None:
            self._response = response
        else:
            self._listener(response)

    def abandon(self) -> None:
        """Abandon the answer; the caller has logged the exception. No effect if the answer is complete."""
        if self.done:
            return
        self.done = True
        if callable(self._abandoned):
            self._abandoned()
        else:
            self._abandoned = True

    def withdraw(self) -> None:
        """Drop the listener, as the connection of the request is closed: nothing that waits may keep it in memory."""
        self._listener = _discard
        self._abandoned = False
        withdrawn, self.withdrawn = self.withdrawn, None
        if withdrawn is not None and not self.done:
            withdrawn()

    def follow(self, answer: "Answer[R]") -> None:
        """Complete or abandon this answer as `answer` is, now or later."""
        if isinstance(answer, Pending):
            answer.listen(self.complete, self.abandon)
        else:
            self.complete(answer)

    def listen(self, listener: Callable[[R], object], abandoned: Callable[[], object] | None = None) -> None:
        """Call `listener(response)` when the answer is complete, or `abandoned()` when it is abandoned."""
        if not self.done:
            self._listener = listener
            self._abandoned = abandoned or False
        elif self._abandoned is not True:
            listener(cast(R, self._response))
        elif abandoned is not None:
            abandoned()


def _discard(_: object) -> None:
    pass


Steps: TypeAlias = Iterator[Pending[Any] | None]
"""Work in steps of a few milliseconds, between which requests are served; the next step waits for a yielded `Pending`."""
T = TypeVar("T")
Answer: TypeAlias = T | Pending[T]
U = TypeVar("U")


def after(answer: "Answer[T]", follow: Callable[[T], "Answer[U]"]) -> "Answer[U]":
    """Pass `answer` to `follow`, now or later, and return the answer of `follow`.

    An exception of a `follow` that was called later is logged here, and the answer abandoned: raised, it would end what
    completes `answer`, often the request of another client.
    """
    if not isinstance(answer, Pending):
        return follow(answer)
    whole: Pending[U] = Pending()
    answer.listen(lambda response: _follow_up(whole, partial(follow, response)), whole.abandon)
    whole.withdrawn = answer.withdrawn
    return whole


def _follow_up(whole: Pending[U], step: "Callable[[], Answer[U]]") -> None:
    """Complete or abandon `whole` as `step` answers, unless it answers `whole` itself; an exception is logged once."""
    try:
        following = step()
    except Exception:
        _logger.exception("the rest of a request failed")
        whole.abandon()
    except BaseException:
        whole.abandon()
        raise
    else:
        if following is not whole:
            whole.follow(following)


def in_sequence(questions: Iterable[Callable[[], Answer[T]]]) -> "Answer[list[T]]":
    """Run several requests one after the other, each when the previous one is answered; return the answers in order."""
    remaining = iter(questions)
    answers: list[T] = []
    whole: Pending[list[T]] = Pending()

    def ask_on() -> "Answer[list[T]]":
        for question in remaining:
            answer = question()
            if isinstance(answer, Pending):
                answer.listen(arrived, whole.abandon)
                return whole
            answers.append(answer)
        return answers

    def arrived(response: T) -> None:
        answers.append(response)
        _follow_up(whole, ask_on)

    return ask_on()


def gather(answers: Sequence[Answer[T]], combine: Callable[[list[T]], U]) -> Answer[U]:
    """Combine several answers into one, for a request about several keys; abandoned as soon as one of them is."""
    responses: list[Any] = list(answers)
    missing = sum(isinstance(answer, Pending) for answer in answers)
    if missing == 0:
        return combine(responses)
    whole: Pending[U] = Pending()

    def arrived(index: int, response: T) -> None:
        nonlocal missing
        responses[index] = response
        missing -= 1
        if missing == 0 and not whole.done:
            _follow_up(whole, partial(combine, responses))

    for index, answer in enumerate(answers):
        if isinstance(answer, Pending):
            answer.listen(partial(arrived, index), whole.abandon)
    return whole
