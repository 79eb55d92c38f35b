"""Confirmations that other brokers are alive: when they answer, and how many requests they send."""

import pytest
from tests.queues import manual_queue, run_queue
from tests.unit.broker.requests.test_waiting import Timers

from ottla.broker.cluster.confirmations import CONFIRM_MS, Confirmations
from ottla.tasks.deferred import Answer, Deferred, after


class Confirmed:
    """Listener of a confirmation."""

    def __init__(self, answer: Answer[None]) -> None:
        self.done = False
        after(answer, self._ended)

    def _ended(self, _: None) -> None:
        self.done = True


class Case:
    """Confirmations whose requests a test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Deferred[object]]] = []
        self.timers = Timers()
        self.queue = manual_queue(self.timers)
        self.confirmations = Confirmations(self.ask, self.queue)

    def ask(self, node_id: int) -> Answer[object]:
        self.asked.append((node_id, Deferred(self.queue)))
        return self.asked[-1][1]

    def confirm(self, node_id: int = 2) -> "Confirmed":
        return Confirmed(self.confirmations.confirm(node_id))

    def answer(self, number: int) -> None:
        self.asked[number][1].complete(None)
        run_queue(self.queue)

    def expire(self) -> None:
        (timer,) = [timer for delay_ms, timer in self.timers.set if delay_ms == CONFIRM_MS and not timer.cancelled]
        timer.callback()
        run_queue(self.queue)


@pytest.fixture
def case() -> Case:
    return Case()


def test_a_confirmation_is_the_answer_to_a_request_of_its_own(case: Case) -> None:
    confirmed = case.confirm()
    assert (case.asked[0][0], confirmed.done) == (2, False)
    case.answer(0)
    assert confirmed.done
    assert case.timers.set[0][1].cancelled


def test_confirmations_during_a_request_share_the_next_one(case: Case) -> None:
    first, second, third = case.confirm(), case.confirm(), case.confirm()
    assert len(case.asked) == 1
    case.answer(0)
    assert (first.done, second.done, third.done, len(case.asked)) == (True, False, False, 2)
    case.answer(1)
    assert second.done
    assert third.done
    assert len(case.asked) == 2


def test_brokers_are_asked_independently(case: Case) -> None:
    second, third = case.confirm(2), case.confirm(3)
    case.answer(1)
    assert (second.done, third.done) == (False, True)


def test_a_broker_that_does_not_answer_is_confirmed_after_the_timeout(case: Case) -> None:
    first, second = case.confirm(), case.confirm()
    case.expire()
    assert first.done
    assert second.done
    assert case.confirmations.confirm(2) is None
    assert len(case.asked) == 1
    case.answer(0)  # late
    assert not case.confirm().done
    assert len(case.asked) == 2


def test_a_broker_that_cannot_be_asked_is_confirmed_at_once() -> None:
    queue = manual_queue()
    confirmations = Confirmations(lambda _: None, queue)
    for _ in range(2):
        confirmed = Confirmed(confirmations.confirm(2))
        run_queue(queue)
        assert confirmed.done
