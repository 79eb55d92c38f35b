"""Work that is done one piece at a time: order, results, failures."""

import pytest

from ottla.tasks.deferred import Answer, Deferred, after
from ottla.tasks.turns import Turns
from tests.queues import immediate_queue, unexpected


def test_work_that_answers_at_once_is_answered_at_once() -> None:
    queue = immediate_queue()
    turns = Turns(queue)
    assert [turns.take(lambda number=number: number) for number in range(3)] == [0, 1, 2]  # type: ignore[misc]


def test_the_next_piece_begins_when_the_one_before_it_is_answered() -> None:
    queue = immediate_queue()
    turns = Turns(queue)
    begun: list[int] = []
    first, second = Deferred[str](queue), Deferred[str](queue)

    def work(number: int, answer: "Deferred[str] | str") -> "Deferred[str] | str":
        begun.append(number)
        return answer

    answers = [
        turns.take(lambda: work(0, first)),
        turns.take(lambda: work(1, second)),
        turns.take(lambda: work(2, "c")),
    ]
    heard: list[str] = []
    for answer in answers:
        assert isinstance(answer, Deferred)
        answer.then(heard.append, unexpected)
    assert (begun, heard) == ([0], [])
    first.complete("a")
    assert (begun, heard) == ([0, 1], ["a"])
    second.complete("b")
    assert (begun, heard) == ([0, 1, 2], ["a", "b", "c"])
    assert turns.take(lambda: "d") == "d"


def test_a_long_queue_does_not_end_in_a_recursion() -> None:
    queue = immediate_queue()
    turns = Turns(queue)
    gate = Deferred[int](queue)

    def wait() -> "int | Deferred[int]":
        return gate

    turns.take(wait)
    answers = [turns.take(lambda number=number: number) for number in range(5000)]  # type: ignore[misc]
    gate.complete(0)
    assert all(isinstance(answer, Deferred) and answer.done for answer in answers)


def test_work_that_fails_at_once_does_not_stop_what_follows() -> None:
    queue = immediate_queue()
    turns = Turns(queue)
    with pytest.raises(ZeroDivisionError):
        turns.take(lambda: 1 // 0)
    assert turns.take(lambda: 1) == 1


def failing(_: int) -> Answer[int]:
    return 1 // 0


def test_work_that_fails_while_it_waits_ends_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    """No change of the metadata was answered ever again."""
    queue = immediate_queue()
    turns = Turns(queue)
    stored = Deferred[int](queue)

    def work() -> Answer[int]:
        return after(stored, failing)

    first: Answer[int] = turns.take(work)
    second = turns.take(lambda: 2)
    abandoned, heard = list[str](), list[int]()
    assert isinstance(first, Deferred)
    assert isinstance(second, Deferred)
    first.then(heard.append, lambda: abandoned.append("first"))
    second.then(heard.append, lambda: abandoned.append("second"))
    stored.complete(1)
    assert (abandoned, heard) == (["first"], [2])
    assert caplog.text.count("ZeroDivisionError") == 1
    assert turns.take(lambda: 3) == 3


def test_work_that_fails_when_its_turn_comes_is_logged_and_ends_it(caplog: pytest.LogCaptureFixture) -> None:
    queue = immediate_queue()
    turns = Turns(queue)
    gate = Deferred[int](queue)

    def wait() -> Answer[int]:
        return gate

    turns.take(wait)
    answers = [turns.take(lambda: failing(0)), turns.take(lambda: 2)]
    abandoned, heard = list[str](), list[int]()
    for answer in answers:
        assert isinstance(answer, Deferred)
        answer.then(heard.append, lambda: abandoned.append("it"))
    gate.complete(0)
    assert (abandoned, heard) == (["it"], [2])
    assert "ZeroDivisionError" in caplog.text


def test_an_abandoned_answer_is_abandoned_by_all_that_follow_it() -> None:
    queue = immediate_queue()
    source = Deferred[int](queue)

    def one_more(value: int) -> Answer[int]:
        return value + 1

    chain = after(after(source, one_more), one_more)
    assert isinstance(chain, Deferred)
    source.abandon()
    source.abandon()
    assert chain.done
    events: list[str] = []
    chain.then(lambda _: events.append("response"), lambda: events.append("abandoned"))
    assert events == ["abandoned"]
