"""A transaction that follows another one: the broker waits for the markers of the one before, in place of the client."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.queues import manual_queue, run_queue

from ottla.broker.coordination.verification import Verification, is_concurrent
from ottla.coordinators.transactions.partitions import Codes
from ottla.protocol.errors import CONCURRENT_TRANSACTIONS, NONE
from ottla.tasks.deferred import Answer, Deferred

PLACE = ("t", 0)


class Delays:
    """A clock, and timers that advance it. Notes the delays."""

    def __init__(self) -> None:
        self.delays: list[int] = []
        self._now_ms = 0
        self._due: list[Callable[[], None]] = []
        self.queue = manual_queue(self)

    def now_ms(self) -> int:
        return self._now_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> "Delays":
        self.delays.append(delay_ms)
        self._due.append(callback)
        return self

    def cancel(self) -> None:
        """Cancel nothing: a delay has passed when a task ends its sleep."""

    def run(self) -> None:
        while self._due:
            self._now_ms = sum(self.delays)
            self._due.pop(0)()
            run_queue(self.queue)


def verify_repeatedly(outcomes: list[int], backoff_ms: int = 20, limit_ms: int = 100) -> tuple[int, list[int]]:
    """Return the last outcome of verifications with these outcomes, and the pauses between them in ms."""
    delays = Delays()
    nothing: Any = None
    timers: Any = delays
    verification = Verification(
        nothing, nothing, nothing, timers, delays.queue, longest_pause_ms=backoff_ms, limit_ms=limit_ms
    )

    def verify() -> Answer[Codes]:
        return {PLACE: outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]}

    answer = verification.repeat(verify, is_concurrent)
    delays.run()
    codes: list[Codes] = []
    if isinstance(answer, Deferred):
        answer.then(codes.append, lambda: pytest.fail("abandoned"))
        run_queue(delays.queue)
    else:
        codes.append(answer)
    return codes[0][PLACE], delays.delays


def test_a_transaction_is_verified_once_if_no_other_one_is_ending() -> None:
    assert verify_repeatedly([NONE]) == (NONE, [])


def test_the_first_pauses_are_short() -> None:
    assert verify_repeatedly([CONCURRENT_TRANSACTIONS] * 3 + [NONE]) == (NONE, [1, 2, 4])


def test_concurrent_transactions_is_returned_when_retries_exceed_the_limit() -> None:
    code, pauses = verify_repeatedly([CONCURRENT_TRANSACTIONS])
    assert code == CONCURRENT_TRANSACTIONS
    assert pauses == [1, 2, 4, 8, 16, 20, 20, 20, 20]
    assert sum(pauses[:-1]) < 100 <= sum(pauses)


def test_a_limit_of_zero_returns_the_first_error() -> None:
    assert verify_repeatedly([CONCURRENT_TRANSACTIONS], limit_ms=0) == (CONCURRENT_TRANSACTIONS, [])


def test_a_backoff_of_a_millisecond_does_not_grow() -> None:
    assert verify_repeatedly([CONCURRENT_TRANSACTIONS], backoff_ms=1, limit_ms=5) == (CONCURRENT_TRANSACTIONS, [1] * 5)
