"""The runtime: loading, answers that wait, timers, errors of the log."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from ottla.coordinators.groups.records import decode_record, group_tombstone
from ottla.coordinators.log import CoordinatorAppend
from ottla.coordinators.records import CoordinatorRecord
from ottla.coordinators.runtime import NOTHING, Operation, Result, Timer, coordinator_error, operation
from ottla.protocol import errors
from ottla.tasks.deferred import Answer, Deferred, gather
from tests.queues import manual_queue, run_queue, unexpected

from .world import EPOCH, Logged, MemoryLog, SettledRuntime, VirtualClock


class Ask(NamedTuple):
    """A request that wants `names` written."""

    names: tuple[str, ...] = ()


class Names:
    """A state that remembers the names in its records, and what timers did."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parked: list[Ask] = []
        self.rang: list[tuple[str, int]] = []

    def replay(self, record: CoordinatorRecord) -> None:
        self.names.append(getattr(record.key, "group"))  # noqa: B009

    def replay_pending(self, record: CoordinatorRecord, producer_id: int) -> None:
        self.names.append(f"{getattr(record.key, 'group')} of {producer_id}")  # noqa: B009

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        self.names.append(f"{producer_id} {'committed' if commit else 'aborted'}")


@operation(lambda request, code: [f"refused {code}"])
def write(state: Names, request: Ask, now: int) -> Result:
    records = [group_tombstone(name) for name in request.names]
    return Result(records, then=lambda state, now: Result(answers=((request, list(state.names)),)))


@operation(lambda request, code: [f"refused {code}"])
def park(state: Names, request: Ask, now: int) -> Result:
    state.parked.append(request)
    return NOTHING


@operation(lambda request, code: [f"refused {code}"])
def wake(state: Names, request: Ask, now: int) -> Result:
    answers = [(waiter, ["woken"]) for waiter in (*state.parked, request)]
    state.parked.clear()
    return Result([group_tombstone(name) for name in request.names], answers)


def ring(state: Names, name: str, now: int) -> Result:
    state.rang.append((name, now - EPOCH))
    return NOTHING


def timer(*timers: tuple[str, int | None]) -> Operation[Ask, str]:
    return Operation(
        lambda state, request, now: Result(
            answers=((request, "set"),), timers=[Timer(ring, (name,), delay) for name, delay in timers]
        ),
        lambda request, code: "refused",
    )


class Desk:
    def __init__(self, log: MemoryLog | None = None) -> None:
        self.clock = VirtualClock()
        self.log = log or MemoryLog()
        self.alarms: list[int] = []
        self.runtime: SettledRuntime[Names] = SettledRuntime(
            partitions=1,
            new_state=lambda partition: Names(),
            decode=decode_record,
            loaded=lambda state, now: Result(timers=(Timer(ring, ("loaded",), 1_000_000),)),
            clock=self.clock,
            alarm=self.alarms.append,
        )

    def load(self) -> "Desk":
        self.runtime.load(0, self.log)
        assert self.runtime.load_more(0)
        return self

    @property
    def state(self) -> Names:
        return self.runtime.states()[0]

    def advance(self, to: int) -> None:
        while (deadline := self.runtime.next_deadline()) is not None and deadline <= to:
            self.clock.now = max(self.clock.now, deadline)
            self.runtime.advance(self.clock.now)
        self.clock.now = to


def results_of(answer: Answer[list[str]]) -> list[list[str]]:
    """Return a list that gets the result of a pending answer when it is there."""
    assert isinstance(answer, Deferred)
    results: list[list[str]] = []
    answer.then(results.append, unexpected)
    return results


def test_records_are_replayed_before_the_answer() -> None:
    desk = Desk().load()
    assert desk.runtime.run("k", write, Ask(("a", "b"))) == ["a", "b"]
    assert desk.log.batches == [2]
    assert Desk(desk.log).load().state.names == ["a", "b"]


def test_loading_runs_in_steps_and_refuses_requests_until_its_end() -> None:
    log = MemoryLog()
    Desk(log).load().runtime.run("k", write, Ask(("a", "b", "c")))
    log.logged.insert(1, Logged(b"\x7f\x00 a type of a newer release", b"x"))
    log.release()
    desk = Desk(log)
    assert desk.runtime.run("k", write, Ask()) == [f"refused {errors.NOT_COORDINATOR}"]
    desk.runtime.load(0, log)
    loading = desk.runtime.is_loading
    assert loading
    assert desk.runtime.leads(0)
    assert desk.runtime.active_partitions() == []
    assert not desk.runtime.load_more(0, 2)
    assert desk.runtime.run("k", write, Ask()) == [f"refused {errors.COORDINATOR_LOAD_IN_PROGRESS}"]
    assert desk.runtime.load_more(0, 100)
    assert not desk.runtime.is_loading
    assert desk.runtime.run("k", write, Ask()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("of_the_log", "of_the_client"),
    [
        (errors.NOT_ENOUGH_REPLICAS, errors.COORDINATOR_NOT_AVAILABLE),
        (errors.UNKNOWN_TOPIC_OR_PARTITION, errors.COORDINATOR_NOT_AVAILABLE),
        (errors.NOT_LEADER_OR_FOLLOWER, errors.NOT_COORDINATOR),
        (errors.KAFKA_STORAGE_ERROR, errors.NOT_COORDINATOR),
        (errors.MESSAGE_TOO_LARGE, errors.UNKNOWN_SERVER_ERROR),
        (errors.INVALID_PRODUCER_EPOCH, errors.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_refused_append_changes_nothing(of_the_log: int, of_the_client: int) -> None:
    assert coordinator_error(of_the_log) == of_the_client
    desk = Desk().load()
    parked = results_of(desk.runtime.run("k", park, Ask()))
    desk.log.fails_with = of_the_log
    assert desk.runtime.run("k", write, Ask(("a",))) == [f"refused {of_the_client}"]
    assert desk.state.names == []
    assert parked == []
    assert desk.runtime.run("k", wake, Ask(("a",))) == [f"refused {of_the_client}"]
    assert parked == [[f"refused {of_the_client}"]]
    desk.log.fails_with = errors.NONE
    assert desk.runtime.run("k", write, Ask(("b",))) == ["b"]


def test_a_parked_request_is_answered_by_a_later_one() -> None:
    desk = Desk().load()
    parked = results_of(desk.runtime.run("k", park, Ask()))
    assert parked == []
    assert desk.runtime.run("k", wake, Ask()) == ["woken"]
    assert parked == [["woken"]]


def test_answers_wait_for_the_commit_in_order() -> None:
    desk = Desk().load()
    desk.log.holds = True
    first = results_of(desk.runtime.run("k", write, Ask(("a",))))
    second = results_of(desk.runtime.run("k", write, Ask()))
    desk.runtime.on_committed(0)
    assert (first, second) == ([], [])
    desk.log.release()
    desk.runtime.on_committed(0)
    assert (first, second) == ([["a"]], [["a"]])


def test_answers_about_loaded_records_wait_for_their_commit() -> None:
    """It may be truncated yet: a member that heard of it would go by records that no log has."""
    log = MemoryLog()
    log.holds = True
    results_of(Desk(log).load().runtime.run("k", write, Ask(("a",))))
    desk = Desk(log).load()
    answer = results_of(desk.runtime.run("k", write, Ask()))
    assert answer == []
    log.release()
    desk.runtime.on_committed(0)
    assert answer == [["a"]]
    assert desk.runtime.run("k", write, Ask()) == ["a"]


def test_a_coordinator_that_lost_its_partition_does_not_watch_its_log() -> None:
    desk = Desk().load()
    for _ in range(3):
        desk.load()
    assert len(desk.log.watchers) == 1
    desk.runtime.unload(0)
    assert desk.log.watchers == []


def test_an_answer_waits_no_longer_than_the_commit_timeout() -> None:
    desk = Desk().load()
    desk.log.holds = True
    answer = results_of(desk.runtime.run("k", write, Ask(("a",))))
    assert desk.runtime.next_deadline() == 5_000
    assert desk.alarms[-1] == 5_000
    desk.advance(4_999)
    assert answer == []
    desk.advance(5_000)
    assert answer == [[f"refused {errors.COORDINATOR_NOT_AVAILABLE}"]]


def test_unloading_refuses_all_waiting_requests() -> None:
    desk = Desk().load()
    parked = results_of(desk.runtime.run("k", park, Ask()))
    desk.log.holds = True
    waiting = results_of(desk.runtime.run("k", write, Ask(("a",))))
    desk.runtime.unload(0)
    assert parked == waiting == [[f"refused {errors.NOT_COORDINATOR}"]]
    assert desk.runtime.next_deadline() is None
    desk.runtime.unload(0)
    assert desk.runtime.load_more(0)


def test_a_callback_of_an_answer_may_send_the_next_request() -> None:
    desk = Desk().load()
    parked = desk.runtime.run("k", park, Ask())
    again: list[Answer[list[str]]] = []
    assert isinstance(parked, Deferred)
    parked.then(lambda _: again.append(desk.runtime.run("k", write, Ask(("b",)))), unexpected)
    assert desk.runtime.run("k", wake, Ask(("a",))) == ["woken"]
    assert again == [["a", "b"]]


def test_timers_fire_once_in_order_and_can_be_moved() -> None:
    desk = Desk().load()
    run: Callable[..., Answer[str]] = desk.runtime.run
    run("k", timer(("late", 300), ("early", 100), ("moved on", 50), ("moved back", 900), ("gone", 10)), Ask())
    run("k", timer(("moved on", 400), ("moved back", 200), ("gone", None), ("never was", None)), Ask())
    desk.advance(1_000)
    assert desk.state.rang == [("early", 100), ("moved back", 200), ("late", 300), ("moved on", 400)]


def test_a_timer_that_is_cancelled_and_set_again_fires_once() -> None:
    desk = Desk().load()
    for delay in (100, None, 200, None, 150):
        desk.runtime.run("k", timer(("t", delay)), Ask())
    desk.advance(1_000)
    assert desk.state.rang == [("t", 150)]


def test_moving_a_timer_does_not_fill_the_heap() -> None:
    desk = Desk().load()
    for now in range(10_000):
        desk.clock.now = now
        desk.runtime.run("k", timer(("session", 10_000), ("other", 5 if now % 2 else None)), Ask())
    assert len(desk.runtime._heap) < 2_000
    desk.advance(30_000)
    assert desk.state.rang[-1] == ("session", 19_999)


def test_the_alarm_is_set_for_the_earliest_timer() -> None:
    desk = Desk().load()
    for name, delay in (("a", 500), ("b", 700), ("c", 300), ("c", 400)):
        desk.runtime.run("k", timer((name, delay)), Ask())
    assert desk.alarms == [1_000_000, 500, 300]


def test_gathering_answers() -> None:
    queue = manual_queue()
    later: Deferred[int] = Deferred(queue)
    assert gather([1, 2], sum) == 3
    assert gather([], sum) == 0
    waiting: list[Answer[int]] = [1, later]
    both = gather(waiting, list)
    assert isinstance(both, Deferred)
    results: list[list[int]] = []
    both.then(results.append, unexpected)
    later.complete(2)
    run_queue(queue)
    assert results == [[1, 2]]


def test_a_failed_append_has_no_end_offset() -> None:
    assert CoordinatorAppend(errors.KAFKA_STORAGE_ERROR).end_offset == -1
