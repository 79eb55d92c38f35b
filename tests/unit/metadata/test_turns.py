"""Work that is done one piece at a time: order, results, failures."""

import pytest

from ottla.metadata.turns import Turns
from ottla.protocol.answer import Pending


def test_work_that_answers_at_once_is_answered_at_once() -> None:
    turns = Turns()
    assert [turns.take(lambda number=number: number) for number in range(3)] == [0, 1, 2]  # type: ignore[misc]


def test_the_next_piece_begins_when_the_one_before_it_is_answered() -> None:
    turns = Turns()
    begun: list[int] = []
    first, second = Pending[str](), Pending[str]()

    def work(number: int, answer: "Pending[str] | str") -> "Pending[str] | str":
        begun.append(number)
        return answer

    answers = [
        turns.take(lambda: work(0, first)),
        turns.take(lambda: work(1, second)),
        turns.take(lambda: work(2, "c")),
    ]
    heard: list[str] = []
    for answer in answers:
        assert isinstance(answer, Pending)
        answer.listen(heard.append)
    assert (begun, heard) == ([0], [])
    first.complete("a")
    assert (begun, heard) == ([0, 1], ["a"])
    second.complete("b")
    assert (begun, heard) == ([0, 1, 2], ["a", "b", "c"])
    assert turns.take(lambda: "d") == "d"


def test_a_long_queue_does_not_end_in_a_recursion() -> None:
    turns = Turns()
    gate = Pending[int]()

    def wait() -> "int | Pending[int]":
        return gate

    turns.take(wait)
    answers = [turns.take(lambda number=number: number) for number in range(5000)]  # type: ignore[misc]
    gate.complete(0)
    assert all(isinstance(answer, Pending) and answer.done for answer in answers)


def test_work_that_fails_at_once_does_not_stop_what_follows() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError):
        turns.take(lambda: 1 // 0)
    assert turns.take(lambda: 1) == 1
