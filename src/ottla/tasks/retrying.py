"""Retries of requests that fail temporarily, while a coordinator is loading or moves to another broker."""

from collections.abc import Callable
from typing import Final, TypeVar

from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.queue import CallbackQueue

R = TypeVar("R")
RETRY_MS: Final = 100
"""Delay before a request is repeated."""
FOREVER: Final = 1 << 62
"""Number of attempts that is never reached."""


def repeat_while(
    is_temporary: Callable[[R], bool],
    request: Callable[[], Answer[R]],
    tasks: CallbackQueue,
    *,
    attempts: int = FOREVER,
    pause_ms: int = RETRY_MS,
    longest_pause_ms: int = 0,
) -> Answer[R]:
    """Repeat `request` while its response is temporary; returns the last response.

    tasks             timers and queue of the broker
    longest_pause_ms  each pause is twice the one before, up to this; by default all are equal
    """
    answer = request()
    if not isinstance(answer, Deferred) and (attempts <= 1 or not is_temporary(answer)):
        return answer
    whole: Deferred[R] = Deferred(tasks)
    remaining = attempts
    pause = pause_ms

    def check(response: R) -> None:
        nonlocal remaining, pause
        remaining -= 1
        if remaining <= 0 or not is_temporary(response):
            whole.complete(response)
        else:
            tasks.call_later(pause, repeat)
            pause = max(pause_ms, min(2 * pause, longest_pause_ms))

    def repeat() -> None:
        try:
            wait_for(request())
        except BaseException:
            whole.abandon()
            raise

    def wait_for(answer: Answer[R]) -> None:
        # All attempts complete one answer: a chain of answers for each attempt would exceed the stack after a thousand.
        if isinstance(answer, Deferred):
            answer.then(check, whole.abandon)
        else:
            check(answer)

    wait_for(answer)
    return whole
