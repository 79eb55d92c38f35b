"""Answers that are available at once, or come later.

A handler returns a response, or a `Pending` that is completed later: by an append that reached the replicas, by data that
arrived, by coordinator records that were committed. Nothing is a task or a future unless it has to wait, and waiting is one
object and one callback.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, cast

R = TypeVar("R")


class NotReady(Exception):
    """A resource that a decision needs at once is not available yet, but will be soon: the request may be repeated."""


class Pending(Generic[R]):
    """A response that comes later, once. The listener is called at once when the response is there already.

    Or it never comes: the code that should have produced it raised an unexpected exception. The answer is abandoned then, and
    so is each answer that follows it, up to the connection and the turn (`Turns`) that wait for the last one.
    """

    __slots__ = ("_abandoned", "_listener", "_response", "done")

    def __init__(self) -> None:
        self.done = False
        self._response: R | None = None
        self._listener: Callable[[R], object] | None = None
        self._abandoned: Callable[[], object] | bool = False
        """Called when there will be no response; True when that is known before a listener is added."""

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
        """Mark the answer as never coming: the caller re-raises, or has logged, the exception. Nothing if it is complete."""
        if self.done:
            return
        self.done = True
        if callable(self._abandoned):
            self._abandoned()
        else:
            self._abandoned = True

    def follow(self, answer: "Answer[R]") -> None:
        """Answer as `answer` does, now or later."""
        if isinstance(answer, Pending):
            answer.listen(self.complete, self.abandon)
        else:
            self.complete(answer)

    def listen(self, listener: Callable[[R], object], abandoned: Callable[[], object] | None = None) -> None:
        """Call `listener(response)` when the response is there, or `abandoned()` when it is known that none will come."""
        if not self.done:
            self._listener = listener
            self._abandoned = abandoned or False
        elif self._abandoned is not True:
            listener(cast(R, self._response))
        elif abandoned is not None:
            abandoned()


Steps: TypeAlias = Iterator[Pending[Any] | None]
"""Work in pieces of some milliseconds, between which requests are served; a `Pending` that it yields is waited for."""
T = TypeVar("T")
Answer: TypeAlias = T | Pending[T]
U = TypeVar("U")


def after(answer: "Answer[T]", follow: Callable[[T], "Answer[U]"]) -> "Answer[U]":
    """Pass `answer` to `follow`, now or later, and return the answer of `follow`."""
    if not isinstance(answer, Pending):
        return follow(answer)
    whole = Pending[U]()

    def respond(response: T) -> None:
        try:
            following = follow(response)
        except BaseException:
            whole.abandon()
            raise
        whole.follow(following)

    answer.listen(respond, whole.abandon)
    return whole


def in_sequence(questions: Iterable[Callable[[], Answer[T]]]) -> "Answer[list[T]]":
    """Run several questions one after the other, each when the one before it is answered; returns the answers in that order."""
    remaining = iter(questions)
    answers: list[T] = []
    whole = Pending[list[T]]()

    def go_on(response: T | None = None, *, was_pending: bool = False) -> None:
        if was_pending:
            answers.append(response)  # type: ignore[arg-type]
        for question in remaining:
            answer = question()
            if isinstance(answer, Pending):
                answer.listen(lambda response: go_on(response, was_pending=True), whole.abandon)
                return
            answers.append(answer)
        whole.complete(answers)

    go_on()
    return answers if whole.done else whole


def gather(answers: Sequence[Answer[T]], combine: Callable[[list[T]], U]) -> Answer[U]:
    """Combine several answers into one, for a request about several keys."""
    responses: list[Any] = [None] * len(answers)
    missing = 0
    whole: Pending[U] | None = None

    def arrived(index: int, response: T) -> None:
        nonlocal missing
        responses[index] = response
        missing -= 1
        if missing == 0 and whole is not None:
            whole.complete(combine(responses))

    for index, answer in enumerate(answers):
        missing += 1
        if isinstance(answer, Pending):
            answer.listen(partial(arrived, index))
        else:
            arrived(index, answer)
    if missing == 0:
        return combine(responses)
    whole = Pending[U]()
    return whole
