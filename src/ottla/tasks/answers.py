"""Answers that follow from other answers, without a task: one after another, or several together.

An answer fails if the code that should complete it raised an unexpected exception, which is logged there, once. All answers
that follow it fail with the same error, up to the connection that waits for the last one.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from ottla.tasks.deferred import Answer, Deferred

T = TypeVar("T")
U = TypeVar("U")
_logger = logging.getLogger("ottla.tasks")


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
