"""The group coordinator's way to the share coordinator: one that is not there yet is waited for."""

from collections.abc import Callable
from typing import Any, cast

from tests.queues import manual_queue, run_queue, unexpected
from tests.unit.coordinators.test_consumer_transcripts import image
from tests.unit.coordinators.world import MemoryLog, SettledRuntime, VirtualClock

from ottla.broker.cluster.peers import Peers
from ottla.broker.coordination.routing import CoordinatorRouting
from ottla.broker.coordination.share_state import ShareCoordinators, ShareStateKeeper
from ottla.coordinators.runtime import Runtime
from ottla.coordinators.share.coordinator import locate, on_loaded
from ottla.coordinators.share.records import decode_record
from ottla.coordinators.share.state import ShareCoordinatorSettings, ShareStates, StateOutcome
from ottla.coordinators.topology import Topology
from ottla.metadata.image import EMPTY
from ottla.protocol.errors import NOT_COORDINATOR
from ottla.tasks.deferred import Answer, Deferred, after

TOPIC = b"t".ljust(16, b".")


class _Asked:
    """A call that cannot be taken back."""

    def cancel(self) -> None:
        pass


class Later:
    """Calls back when told."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], None]] = []

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        self.asked.append(callback)
        return _Asked()

    def run(self) -> None:
        asked, self.asked = self.asked, []
        for callback in asked:
            callback()


class Desk:
    def __init__(self) -> None:
        self.later = Later()
        self.queue = manual_queue(self.later)
        self.provided = 0
        cluster = Topology(0, image(1, {"t": 3}))
        self.runtime: Runtime[ShareStates] = SettledRuntime(
            partitions=1,
            new_state=lambda partition: ShareStates(ShareCoordinatorSettings(), cluster),
            decode=decode_record,
            loaded=on_loaded,
            clock=VirtualClock(),
            locate=locate,
        )
        # Without a topic in the metadata no other broker coordinates anything, and there are no requests to peers.
        routing = CoordinatorRouting(0, lambda: EMPTY)
        coordinators = ShareCoordinators(self.runtime, routing, cast(Peers, None), self.queue)
        self.keeper = ShareStateKeeper(coordinators, self.queue, self.provide)

    def provide(self) -> bool:
        self.provided += 1
        return True

    def wait(self) -> None:
        """Let the pauses between attempts pass."""
        self.later.run()
        run_queue(self.queue)

    def load(self) -> None:
        self.runtime.load(0, MemoryLog())
        assert self.runtime.load_more(0)


def test_outcomes_are_by_topic_partition() -> None:
    desk = Desk()
    desk.load()
    offsets = {(TOPIC, 0): 3, (TOPIC, 2): 5, (TOPIC, 9): 0}
    outcomes = desk.keeper.initialize("g", 1, offsets)
    assert not isinstance(outcomes, Deferred)
    assert {place: outcome.error_code for place, outcome in outcomes.items()} == {
        (TOPIC, 0): 0,
        (TOPIC, 2): 0,
        (TOPIC, 9): 3,
    }
    summaries = desk.keeper.summarize("g", offsets)
    assert not isinstance(summaries, Deferred)
    assert {place: summary.start_offset for place, summary in summaries.items()} == {
        (TOPIC, 0): 3,
        (TOPIC, 2): 5,
        (TOPIC, 9): 0,
    }
    assert desk.keeper.delete("g", [(TOPIC, 0)]) == {(TOPIC, 0): StateOutcome()}
    assert (desk.later.asked, desk.provided) == ([], 3)


def test_a_request_without_partitions_is_not_sent() -> None:
    desk = Desk()
    assert desk.keeper.summarize("g", []) == {}
    assert desk.provided == 0


def test_a_request_is_retried_until_the_coordinator_is_loaded() -> None:
    desk = Desk()
    answer = desk.keeper.initialize("g", 1, {(TOPIC, 0): 3, (TOPIC, 1): 4})
    assert isinstance(answer, Deferred)
    desk.wait()
    assert not answer.done
    desk.load()
    desk.wait()
    heard: list[dict[Any, StateOutcome]] = []
    answer.then(heard.append, unexpected)
    run_queue(desk.queue)
    assert heard == [{(TOPIC, 0): StateOutcome(), (TOPIC, 1): StateOutcome()}]


def test_retries_end_with_not_coordinator() -> None:
    desk = Desk()
    answer = desk.keeper.delete("g", [(TOPIC, 0)])
    assert isinstance(answer, Deferred)
    run_queue(desk.queue)
    times = 0
    while desk.later.asked:
        desk.wait()
        times += 1
    heard: list[dict[Any, StateOutcome]] = []
    answer.then(heard.append, unexpected)
    run_queue(desk.queue)
    assert (times, heard[0][TOPIC, 0].error_code) == (50, NOT_COORDINATOR)


def test_the_next_request_is_sent_after_the_answer() -> None:
    queue = manual_queue()
    first, second = Deferred[int](queue), Deferred[str](queue)

    def ask(number: int) -> Answer[str]:
        return second if number else "nothing"

    answer = after(first, ask)
    assert after(0, ask) == "nothing"
    heard: list[str] = []
    assert isinstance(answer, Deferred)
    answer.then(heard.append, unexpected)
    first.complete(1)
    run_queue(queue)
    assert heard == []
    second.complete("something")
    run_queue(queue)
    assert heard == ["something"]
