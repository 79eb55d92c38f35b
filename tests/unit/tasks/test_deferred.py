"""The contract of a deferred: one outcome, every listener called once, in order, and never by the code that completes."""

import random

import pytest

from ottla.tasks.deferred import Deferred, Failed
from ottla.tasks.queue import CallbackQueue
from tests.queues import immediate_queue, manual_queue, run_queue


def test_a_listener_runs_after_the_event_that_completes() -> None:
    queue = manual_queue()
    deferred: Deferred[int] = Deferred(queue)
    values: list[int] = []
    deferred.then(values.append, values.clear)
    deferred.complete(1)
    assert (deferred.done, values) == (True, [])
    run_queue(queue)
    assert values == [1]


def test_a_listener_of_a_complete_deferred_is_queued_too() -> None:
    queue = manual_queue()
    deferred: Deferred[int] = Deferred(queue)
    deferred.complete(1)
    values: list[int] = []
    deferred.then(values.append, values.clear)
    assert values == []
    run_queue(queue)
    assert values == [1]


def test_an_abandoned_deferred_has_an_error() -> None:
    deferred: Deferred[int] = Deferred(immediate_queue())
    deferred.abandon()
    with pytest.raises(Failed):
        deferred.result()


def test_a_withdrawn_deferred_calls_no_listener() -> None:
    queue = manual_queue()
    deferred: Deferred[int] = Deferred(queue)
    values: list[int] = []
    deferred.then(values.append, values.clear)
    ended: list[str] = []
    deferred.withdrawn = lambda: ended.append("ended")
    deferred.withdraw()
    deferred.complete(1)
    run_queue(queue)
    assert (values, ended) == ([], ["ended"])


@pytest.mark.parametrize("seed", range(50))
def test_random_operations_keep_the_contract(seed: int) -> None:
    """The first outcome counts; listeners hear of it once each, in the order of their registration, when the queue runs."""
    dice = random.Random(seed)
    queue = manual_queue()
    deferreds: list[Deferred[int]] = [Deferred(queue) for _ in range(4)]
    outcomes: list[object] = [None] * 4
    registered: list[list[int]] = [[] for _ in range(4)]
    heard: list[tuple[int, int]] = []
    runs = 0
    is_acting = False

    def listener(index: int, number: int) -> None:
        assert not is_acting
        heard.append((index, number))
        assert deferreds[index].done
        if dice.random() < 0.2:
            act()

    def act() -> None:
        nonlocal is_acting
        is_acting = True
        index = dice.randrange(4)
        deferred = deferreds[index]
        choice = dice.random()
        if choice < 0.5:
            number = len(registered[index])
            registered[index].append(number)
            deferred.listen(lambda _: listener(index, number))
        elif choice < 0.75:
            value = dice.randrange(100)
            if outcomes[index] is None:
                outcomes[index] = value
            deferred.complete(value)
        elif choice < 0.9:
            error = ValueError(str(dice.randrange(100)))
            if outcomes[index] is None:
                outcomes[index] = error
            deferred.fail(error)
        is_acting = False

    for _ in range(60):
        act()
        if dice.random() < 0.2:
            run_queue(queue)
            runs += 1
    run_queue(queue)
    for index, deferred in enumerate(deferreds):
        expected = outcomes[index]
        assert deferred.done == (expected is not None)
        if isinstance(expected, ValueError):
            assert deferred.error is expected
        elif expected is not None:
            assert deferred.result() == expected
        numbers = [number for place, number in heard if place == index]
        assert numbers == (registered[index] if expected is not None else [])


def test_a_callback_that_raises_is_reported_once_and_the_others_run() -> None:
    reports: list[tuple[str, str]] = []
    timers: list[object] = []

    class Timers:
        def call_later(self, delay_ms: int, callback: object) -> object:
            assert delay_ms == 0
            timers.append(callback)
            return callback

    queue = CallbackQueue(Timers(), lambda name, error: reports.append((name, str(error))))  # type: ignore[arg-type]
    calls: list[str] = []

    def fail() -> None:
        raise ValueError("a bug")

    for callback in (lambda: calls.append("first"), fail, lambda: calls.append("last")):
        queue.call(callback)
    assert len(timers) == 1
    timers.pop()()  # type: ignore[operator]
    assert (calls, reports) == (["first", "last"], [("a callback", "a bug")])
    assert queue.is_empty


def test_a_drain_leaves_the_rest_to_the_next_pass() -> None:
    timers: list[object] = []

    class Timers:
        def call_later(self, delay_ms: int, callback: object) -> object:
            timers.append(callback)
            return callback

    queue = CallbackQueue(Timers())  # type: ignore[arg-type]
    calls: list[int] = []
    for number in range(2500):
        queue.call(lambda number=number: calls.append(number))  # type: ignore[misc]
    passes = 0
    while timers:
        timers.pop()()  # type: ignore[operator]
        passes += 1
    assert (passes, calls) == (3, list(range(2500)))


def test_a_closed_queue_drops_what_it_has() -> None:
    queue = manual_queue()
    calls: list[str] = []
    queue.call(lambda: calls.append("before"))
    queue.close()
    queue.call(lambda: calls.append("after"))
    run_queue(queue)
    assert calls == []
