"""Retries of requests that fail temporarily, while a coordinator is loading or moves to another broker."""

from collections.abc import Callable
from typing import Final, TypeVar

from ottla.protocol.answer import Answer, Pending

R = TypeVar("R")
RETRY_MS: Final = 100
"""Delay before a request is repeated."""
FOREVER: Final = 1 << 62
"""Number of attempts that is never reached."""


def repeat_while(
    is_temporary: Callable[[R], bool],
    request: Callable[[], Answer[R]],
    later: Callable[[int, Callable[[], None]], object],
    *,
    attempts: int = FOREVER,
    pause_ms: int = RETRY_MS,
    longest_pause_ms: int = 0,
) -> Answer[R]:
    """Repeat `request` while its response is temporary; returns the last response.

    later             (delay in ms, callback) -> calls back once after the delay, as `Timers.call_later`
    longest_pause_ms  each pause is twice the one before, up to this; by default all are equal
    """
    answer = request()
    if not isinstance(answer, Pending) and (attempts <= 1 or not is_temporary(answer)):
        return answer
    whole: Pending[R] = Pending()
    remaining = attempts
    pause = pause_ms

    def check(response: R) -> None:
        nonlocal remaining, pause
        remaining -= 1
        if remaining <= 0 or not is_temporary(response):
            whole.complete(response)
        else:
            later(pause, repeat)
            pause = max(pause_ms, min(2 * pause, longest_pause_ms))

    def repeat() -> None:
        try:
            wait_for(request())
        except BaseException:
            whole.abandon()
            raise

    def wait_for(answer: Answer[R]) -> None:
        # All attempts complete one answer: a chain of answers for each attempt would exceed the stack after a thousand.
        if isinstance(answer, Pending):
            answer.listen(check, whole.abandon)
        else:
            check(answer)

    wait_for(answer)
    return whole
