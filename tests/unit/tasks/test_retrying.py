"""Repeated requests, and the alarm for the earliest deadline."""

import heapq
from collections.abc import Callable

import pytest

from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.due_work import DueWork
from ottla.tasks.queue import CallbackQueue
from ottla.tasks.retrying import repeat_while
from tests.queues import unexpected


class Timer:
    """A call at `deadline_ms`."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class World:
    """Virtual time."""

    def __init__(self) -> None:
        self.now = 0
        self._timers: list[tuple[int, int, Timer]] = []
        self.queue = CallbackQueue(self)

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return self.now

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (self.now + delay_ms, id(timer), timer))
        return timer

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while self._timers and self._timers[0][0] <= end:
            self.now, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
        self.now = end


@pytest.fixture
def world() -> World:
    return World()


def test_a_response_that_is_final_is_returned_at_once(world: World) -> None:
    assert repeat_while(lambda code: code == 1, lambda: 0, world.queue) == 0


def test_a_temporary_response_is_repeated_after_a_pause(world: World) -> None:
    codes = [1, 1, 0]
    asked: list[int] = []

    def request() -> int:
        asked.append(world.now)
        return codes.pop(0)

    answer = repeat_while(lambda code: code == 1, request, world.queue, pause_ms=30)
    assert isinstance(answer, Deferred)
    responses: list[int] = []
    answer.then(responses.append, unexpected)
    world.advance(59)
    assert responses == []
    world.advance(1)
    assert (responses, asked) == ([0], [0, 30, 60])


def test_the_last_attempt_counts_even_if_it_is_temporary(world: World) -> None:
    answer = repeat_while(lambda code: code == 1, lambda: 1, world.queue, attempts=3, pause_ms=10)
    assert isinstance(answer, Deferred)
    responses: list[int] = []
    answer.then(responses.append, unexpected)
    world.advance(1000)
    assert responses == [1]
    assert repeat_while(lambda code: code == 1, lambda: 1, world.queue, attempts=1) == 1


def test_an_answer_that_comes_later_is_checked_too(world: World) -> None:
    pendings: list[Deferred[int]] = []

    def request() -> Answer[int]:
        pendings.append(Deferred(world.queue))
        return pendings[-1]

    answer = repeat_while(lambda code: code == 1, request, world.queue, pause_ms=10)
    assert isinstance(answer, Deferred)
    responses: list[int] = []
    answer.then(responses.append, unexpected)
    pendings[0].complete(1)
    world.advance(10)
    pendings[1].complete(7)
    world.advance(0)
    assert responses == [7]


def test_a_request_that_is_abandoned_abandons_the_answer(world: World) -> None:
    pending: Deferred[int] = Deferred(world.queue)

    def request() -> Answer[int]:
        return pending

    answer = repeat_while(lambda code: code == 1, request, world.queue)
    assert isinstance(answer, Deferred)
    events: list[str] = []
    answer.then(lambda _: events.append("answered"), lambda: events.append("abandoned"))
    pending.abandon()
    world.advance(0)
    assert events == ["abandoned"]


def test_an_alarm_rings_once_at_the_earliest_deadline(world: World) -> None:
    rings: list[int] = []
    alarm = DueWork("test", lambda: rings.append(world.now), world, world)
    alarm.set(50)
    alarm.set(20)
    alarm.set(30)
    world.advance(100)
    assert rings == [20]
    alarm.set(90)
    world.advance(0)
    assert rings == [20, 100]


def test_an_alarm_whose_work_fails_rings_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    rings: list[int] = []

    def work() -> None:
        rings.append(world.now)
        if len(rings) == 1:
            raise ArithmeticError("a bug")

    alarm = DueWork("a test", work, world, world)
    alarm.set(10)
    world.advance(1000)
    assert rings == [10, 110]
    assert "a test failed and will be retried" in caplog.text


def test_a_closed_alarm_does_not_ring(world: World) -> None:
    rings: list[int] = []
    alarm = DueWork("test", lambda: rings.append(world.now), world, world)
    alarm.set(10)
    alarm.close()
    alarm.set(20)
    world.advance(100)
    assert rings == []


def test_thousands_of_attempts_complete_one_answer(world: World) -> None:
    pending: list[Deferred[int]] = []

    def request() -> Answer[int]:
        pending.append(Deferred(world.queue))
        return pending[-1]

    answers: list[int] = []
    answer = repeat_while(lambda response: response < 3_000, request, world.queue, pause_ms=10)
    assert isinstance(answer, Deferred)
    answer.then(answers.append, unexpected)
    for number in range(1, 3_001):
        pending[-1].complete(number)
        world.advance(10)
    assert (answers, len(pending)) == ([3_000], 3_000)


def test_a_repeated_request_that_raises_abandons_the_answer(world: World) -> None:
    calls: list[int] = []

    def request() -> Answer[int]:
        calls.append(world.now)
        if len(calls) == 2:
            raise ArithmeticError("a bug")
        return 0

    abandoned: list[bool] = []
    answer = repeat_while(lambda response: True, request, world.queue)
    assert isinstance(answer, Deferred)
    answer.then(lambda response: None, lambda: abandoned.append(True))
    with pytest.raises(ArithmeticError):
        world.advance(100)
    world.advance(0)
    assert abandoned == [True]
