"""The checker of the queue finds each anomaly that is planted in a history, and none in histories of a correct queue."""

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .deliveries import (
    ACCEPT,
    ACKNOWLEDGE,
    DRAINED,
    POLL,
    PRODUCE,
    REJECT,
    RELEASE,
    anomalies,
)
from .histories_by_hand import HandWritten
from .operations import FAIL, OK, UNKNOWN, Operation

LIMIT = 3


class Queue(HandWritten):
    """History of a queue of one partition."""

    def produce(self, value: int, offset: int, outcome: str = OK) -> None:
        self.add(PRODUCE, {"value": value}, {"partition": 0, "offset": offset} if outcome == OK else {}, outcome)

    def poll(self, *records: tuple[int, int, int]) -> Operation:
        """Deliver (offset, value, count)."""
        return self.add(POLL, {}, {"records": [(0, *record) for record in records]})

    def acknowledge(self, *records: tuple[int, str], outcome: str = OK, partitions: Sequence[int] = (0,)) -> Operation:
        rows = [(0, offset, kind) for offset, kind in records]
        return self.add(ACKNOWLEDGE, {"records": rows}, {"partitions": partitions}, outcome)

    def drained(self) -> None:
        self.add(DRAINED, {}, {})

    def kinds(self) -> list[str]:
        return sorted({anomaly.kind for anomaly in anomalies(self.operations, LIMIT)})


@pytest.fixture
def history() -> Queue:
    return Queue()


def test_a_history_of_correct_deliveries_has_no_anomalies(history: Queue) -> None:
    history.produce(10, 0)
    history.produce(11, 1)
    history.produce(12, -1, UNKNOWN)
    history.poll((0, 10, 1), (1, 11, 1))
    history.acknowledge((0, ACCEPT), (1, RELEASE))
    history.poll((1, 11, 2), (2, 12, 1))
    history.acknowledge((1, REJECT), (2, ACCEPT), outcome=UNKNOWN)
    history.poll((1, 11, 3))
    history.acknowledge((1, ACCEPT))
    history.drained()
    assert history.kinds() == []
    assert anomalies([], LIMIT) == []


@pytest.mark.parametrize("kind", [ACCEPT, REJECT])
def test_delivered_after_its_end(history: Queue, kind: str) -> None:
    history.produce(10, 0)
    history.poll((0, 10, 1))
    history.acknowledge((0, kind))
    history.poll((0, 10, 2))
    assert history.kinds() == ["after its end"]


def test_an_acknowledgement_that_was_not_confirmed_ends_nothing(history: Queue) -> None:
    history.produce(10, 0)
    history.poll((0, 10, 1))
    history.acknowledge((0, ACCEPT), outcome=UNKNOWN)
    history.poll((0, 10, 2))
    history.acknowledge((0, ACCEPT), partitions=())
    history.poll((0, 10, 3))
    assert history.kinds() == []


def test_a_poll_that_began_before_the_end(history: Queue) -> None:
    history.produce(10, 0)
    history.poll((0, 10, 1))
    history.acknowledge((0, ACCEPT))
    history.poll((0, 10, 2)).invoked = 1
    assert history.kinds() == []


def test_lost(history: Queue) -> None:
    history.produce(10, 0)
    assert history.kinds() == []
    history.drained()
    assert history.kinds() == ["lost"]


def test_invented(history: Queue) -> None:
    history.produce(10, 0)
    history.produce(11, -1, FAIL)
    history.poll((0, 77, 1))
    assert history.kinds() == ["invented"]
    history.operations.pop()
    history.poll((1, 11, 1))
    assert history.kinds() == ["invented"]


def test_another_value_than_the_acknowledged_one(history: Queue) -> None:
    history.produce(10, 0)
    history.produce(11, -1, UNKNOWN)
    history.poll((0, 11, 1))
    assert history.kinds() == ["invented"]


def test_moved(history: Queue) -> None:
    history.produce(10, 0)
    history.poll((5, 10, 1))
    assert history.kinds() == ["moved"]


def test_moved_without_an_acknowledgement(history: Queue) -> None:
    history.produce(10, -1, UNKNOWN)
    history.poll((5, 10, 1))
    history.poll((6, 10, 1))
    assert history.kinds() == ["moved"]


def test_two_values_at_one_place(history: Queue) -> None:
    history.produce(10, 0)
    history.produce(11, 0)
    assert history.kinds() == ["duplicate"]


def test_too_often(history: Queue) -> None:
    history.produce(10, 0)
    history.poll((0, 10, LIMIT + 1))
    assert history.kinds() == ["too often"]


def test_a_count_that_forgets_releases(history: Queue) -> None:
    history.produce(10, 0)
    history.poll((0, 10, 1))
    history.acknowledge((0, RELEASE))
    history.poll((0, 10, 1))
    assert history.kinds() == ["count"]


def correct(dice: random.Random, values: int) -> Queue:
    """Return the history of a correct queue, which is read until it is empty."""
    history = Queue()
    left: dict[int, int] = {}
    """Deliveries by offset."""
    for offset in range(values):
        outcome = dice.choice((OK, OK, UNKNOWN))
        history.produce(100 + offset, offset, outcome)
        if outcome == OK or dice.random() < 0.5:
            left[offset] = 0
    while left:
        chosen = dice.sample(sorted(left), dice.randint(1, len(left)))
        for offset in chosen:
            left[offset] += 1
        history.poll(*((offset, 100 + offset, left[offset]) for offset in chosen))
        kinds = [(offset, dice.choice((ACCEPT, RELEASE, REJECT))) for offset in chosen]
        outcome = dice.choice((OK, UNKNOWN))
        is_applied = outcome == OK or dice.random() < 0.5
        if dice.random() < 0.9:
            history.acknowledge(*kinds, outcome=outcome)
        else:
            is_applied = False
        for offset, kind in kinds:
            if (is_applied and kind != RELEASE) or left[offset] == LIMIT:
                del left[offset]
    history.drained()
    return history


@given(st.integers(0, 1 << 32), st.integers(0, 12))
def test_a_correct_queue_has_no_anomalies(seed: int, values: int) -> None:
    assert anomalies(correct(random.Random(seed), values).operations, LIMIT) == []


def deliver_again(history: Queue, dice: random.Random) -> bool:
    accepted = [
        offset
        for one in history.operations
        if one.kind == ACKNOWLEDGE and one.outcome == OK
        for _, offset, kind in one.request["records"]
        if kind == ACCEPT
    ]
    for offset in accepted[:1]:
        history.poll((offset, 100 + offset, LIMIT))
    return bool(accepted)


def forget(history: Queue, dice: random.Random) -> bool:
    produced = [one.result["offset"] for one in history.operations if one.kind == PRODUCE and one.outcome == OK]
    if not produced:
        return False
    lost = dice.choice(produced)
    for one in history.operations:
        if one.kind == POLL:
            one.result["records"] = [row for row in one.result["records"] if row[1] != lost]
    return True


@pytest.mark.parametrize("damage", [deliver_again, forget])
@given(st.integers(0, 1 << 32), st.integers(0, 12))
def test_damage_is_found(damage: Callable[[Queue, random.Random], bool], seed: int, values: int) -> None:
    dice = random.Random(seed)
    history = correct(dice, values)
    if damage(history, dice):
        assert anomalies(history.operations, LIMIT) != []
