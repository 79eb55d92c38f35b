"""Answers that are completed later: a failure of a part is a failure of the whole, logged once, and affects no other answer."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.tasks.deferred import Answer, Deferred, after, gather
from tests.queues import immediate_queue, unexpected

Compose = Callable[[Deferred[Any], Callable[[Any], Any]], Answer[Any]]


def fail(response: object) -> int:
    raise ValueError(response)


COMPOSERS: dict[str, Compose] = {
    "after": after,
    "gather": lambda part, step: gather([part, 1], step),
}


def outcomes(answer: Answer[Any]) -> list[str]:
    heard = list[str]()
    assert isinstance(answer, Deferred)
    answer.then(lambda response: heard.append("completed"), lambda: heard.append("abandoned"))
    return heard


@pytest.mark.parametrize("compose", COMPOSERS.values(), ids=COMPOSERS)
def test_an_abandoned_part_abandons_the_whole(compose: Compose) -> None:
    queue = immediate_queue()
    part = Deferred[int](queue)
    heard = outcomes(compose(part, lambda response: response))
    part.abandon()
    assert heard == ["abandoned"]


@pytest.mark.parametrize("compose", COMPOSERS.values(), ids=COMPOSERS)
def test_a_later_step_that_raises_abandons_the_whole_and_is_logged_once(
    compose: Compose, caplog: pytest.LogCaptureFixture
) -> None:
    queue = immediate_queue()
    part = Deferred[int](queue)
    heard = outcomes(compose(part, fail))
    with caplog.at_level(logging.ERROR):
        part.complete(1)  # whoever completes it is not disturbed
    assert heard == ["abandoned"]
    assert len(caplog.records) == 1
    assert "ValueError" in caplog.text


@pytest.mark.parametrize("compose", COMPOSERS.values(), ids=COMPOSERS)
def test_a_part_that_is_done_already(compose: Compose) -> None:
    queue = immediate_queue()
    part = Deferred[int](queue)
    part.complete(1)
    assert outcomes(compose(part, lambda response: response)) == ["completed"]


def test_gather_is_abandoned_once() -> None:
    queue = immediate_queue()
    first, second = Deferred[int](queue), Deferred[int](queue)
    heard = outcomes(gather([first, second, 3], sum))
    first.abandon()
    second.complete(2)
    assert heard == ["abandoned"]


def test_gather_keeps_the_order_of_its_parts() -> None:
    queue = immediate_queue()
    first, second = Deferred[int](queue), Deferred[int](queue)
    answer = gather([first, 2, second], list)
    second.complete(3)
    first.complete(1)
    responses = list[object]()
    assert isinstance(answer, Deferred)
    answer.then(responses.append, unexpected)
    assert responses == [[1, 2, 3]]
