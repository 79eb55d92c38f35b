"""A share partition of the broker between its members and a share coordinator that takes its time."""

from typing import Any, cast

from tests.queues import immediate_queue, manual_queue, run_queue, unexpected
from tests.unit.broker.coordination.test_share_state import Later

from ottla.broker.share_partitions.led_partition import AcknowledgementResult, GroupRules, LedSharePartition
from ottla.coordinators.share.acknowledgement import ACCEPT, Acknowledgement, DeliveryLimits
from ottla.coordinators.share.acquisition import AcquireRequest, LogBatch
from ottla.coordinators.share.state import ReadState, StateOutcome, StateRead, WriteState
from ottla.coordinators.share.window import DeadLetters
from ottla.protocol.errors import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    FENCED_STATE_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_SERVER_ERROR,
)
from ottla.replication.partition import Watchers
from ottla.tasks.deferred import Answer, Deferred

RULES = GroupRules(DeliveryLimits(1000, 5, 100), 0, "earliest")


class Coordinator:
    """In the place of `SharePartitions`: reads are answered with `state`, writes when the test says so."""

    def __init__(self) -> None:
        self.state = StateRead(NONE, None, 3, 0, 0, [])
        self.reads = 0
        self.writes: list[tuple[WriteState, Deferred[StateOutcome]]] = []
        self.timers = Later()
        self.tasks = manual_queue(self.timers)

    def read(self, request: ReadState) -> Answer[StateRead]:
        self.reads += 1
        return self.state

    def write(self, request: WriteState) -> Answer[StateOutcome]:
        answer = Deferred[StateOutcome](self.tasks)
        self.writes.append((request, answer))
        return answer

    def answer(self, code: int = NONE) -> None:
        """The oldest write that has no answer yet is done."""
        next(answer for _, answer in self.writes if not answer.done).complete(StateOutcome(code))
        run_queue(self.tasks)

    def rules(self, group_id: str) -> GroupRules:
        return RULES

    def now(self) -> int:
        return 0

    def ring_at(self, shared: LedSharePartition, deadline: int) -> None:
        pass

    def write_dead_letters(self, shared: LedSharePartition, dead: list[DeadLetters]) -> None:
        raise AssertionError(dead)


class Log:
    name = "t-0"


class Place:
    """In the place of a partition."""

    topic_id, index, leader_epoch = b"\1" * 16, 0, 7

    def __init__(self) -> None:
        self.watchers = Watchers(immediate_queue())
        self.log = Log()


def load_partition(coordinator: Coordinator) -> LedSharePartition:
    """With twenty offsets acquired by m."""
    shared = LedSharePartition(cast(Any, coordinator), "g", cast(Any, Place()))
    shared.load()
    if shared.state is not None:
        shared.state.acquire("m", 0, [LogBatch(0, 19)], AcquireRequest(20, 20, False), RULES.rules, 0)
    return shared


def accept(shared: LedSharePartition, first: int, last: int) -> list[AcknowledgementResult]:
    """Accept the records `first` to `last`, and return a list that gets the result when it is there."""
    results: list[AcknowledgementResult] = []
    answer = shared.acknowledge("m", [Acknowledgement(first, last, [ACCEPT])])
    assert isinstance(answer, Deferred)
    answer.then(results.append, unexpected)
    return results


def test_acknowledgements_during_a_write_share_the_next_one() -> None:
    coordinator = Coordinator()
    shared = load_partition(coordinator)
    first = accept(shared, 0, 3)
    others = [accept(shared, at, at) for at in range(4, 10)]
    assert len(coordinator.writes) == 1
    assert first == []
    coordinator.answer()
    assert first == [AcknowledgementResult()]
    assert [len(results) for results in others] == [0] * 6
    assert len(coordinator.writes) == 2
    request = coordinator.writes[1][0]
    assert (request.state_epoch, request.leader_epoch, request.start_offset) == (3, 7, 4)
    assert request.delivery_complete_count == 6
    assert [batch.first_offset for batch in request.batches] == [4, 5, 6, 7, 8, 9]
    coordinator.answer()
    assert others == [[AcknowledgementResult()]] * 6
    assert shared.state is not None
    assert shared.state.start_offset == 10


def test_a_failed_acknowledgement_can_be_repeated() -> None:
    coordinator = Coordinator()
    shared = load_partition(coordinator)
    results = accept(shared, 0, 19)
    coordinator.answer(NOT_COORDINATOR)
    assert [result.error_code for result in results] == [COORDINATOR_NOT_AVAILABLE]
    results = accept(shared, 0, 19)
    coordinator.answer()
    assert results == [AcknowledgementResult()]


def test_a_state_with_a_fenced_epoch_is_loaded_again() -> None:
    coordinator = Coordinator()
    shared = load_partition(coordinator)
    first, later = accept(shared, 0, 3), accept(shared, 4, 5)
    coordinator.state = StateRead(NONE, None, 4, 15, 0, [])
    coordinator.answer(FENCED_STATE_EPOCH)
    assert [result.error_code for result in first + later] == [NOT_LEADER_OR_FOLLOWER] * 2
    assert shared.state is not None
    assert (coordinator.reads, shared.state.start_offset) == (2, 15)
    assert len(coordinator.writes) == 1


def test_a_reset_refuses_pending_acknowledgements() -> None:
    coordinator = Coordinator()
    shared = load_partition(coordinator)
    first, later = accept(shared, 0, 3), accept(shared, 4, 5)
    coordinator.state = StateRead(NONE, None, 3, 2, 0, [])
    shared.reset()
    run_queue(coordinator.tasks)
    assert [result.error_code for result in later] == [NOT_LEADER_OR_FOLLOWER]
    coordinator.answer()
    assert first == [AcknowledgementResult()]
    assert shared.state is not None
    assert shared.state.start_offset == 2


def test_a_coordinator_that_is_loading_is_asked_again() -> None:
    coordinator = Coordinator()
    coordinator.state = StateRead(COORDINATOR_LOAD_IN_PROGRESS, None)
    shared = load_partition(coordinator)
    woken: list[int] = []
    shared.watchers.add(lambda: woken.append(1))
    assert (shared.state, shared.failure, len(coordinator.timers.asked)) == (None, NONE, 1)
    coordinator.state = StateRead(NONE, None, 1, 5, 0, [])
    coordinator.timers.run()
    run_queue(coordinator.tasks)
    assert shared.state is not None
    assert (shared.state.start_offset, woken) == (5, [1])


def test_a_share_partition_without_a_state() -> None:
    coordinator = Coordinator()
    coordinator.state = StateRead(INVALID_REQUEST, "Read operation on uninitialized share partition not allowed.")
    assert load_partition(coordinator).failure == UNKNOWN_SERVER_ERROR


def test_watchers_are_served_in_their_order() -> None:
    coordinator = Coordinator()
    shared = load_partition(coordinator)
    served: list[str] = []
    watchers = {name: (lambda name=name: served.append(name)) for name in "cab"}
    for watcher in watchers.values():
        shared.watchers.add(watcher)
    place = cast(Any, shared.partition)
    assert len(place.watchers) == 1
    shared.wake()
    assert served == ["c", "a", "b"]
    for watcher in watchers.values():
        shared.watchers.discard(watcher)
    assert not place.watchers
