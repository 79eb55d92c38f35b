"""No listener runs inside a method of `Partition`, `Runtime` or `Metadata`: their state is never seen half changed.

The methods are called in random order on real objects with every kind of listener. A listener that runs before the method has
returned ends the test; the tables name every public method, so that a new one cannot be left out.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.coordinators.runtime import Operation, Result, Runtime, Timer
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.metadata import changes
from ottla.metadata.image import BrokerImage, PartitionImage, TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.plans.topics import RequestedTopic, TopicBatch
from ottla.metadata.store import Change, keys
from ottla.metadata.store.memory import SharedMetadata
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.replication.leader.leadership import Leadership
from ottla.replication.partition import Partition
from ottla.tasks.deferred import Deferred
from ottla.tasks.queue import CallbackQueue
from ottla.tasks.scheduler import Scheduler
from tests.memory_store import MemoryStore
from tests.queues import immediate_queue, manual_queue, run_queue
from tests.unit.coordinators.world import CountingRandom, MemoryLog, VirtualClock
from tests.unit.metadata.stores import VirtualTime

TOPIC_ID = bytes(15) + b"\1"
BATCH = build([Record(0, 1, None, b"v")])


class Reentered(AssertionError):
    """A listener ran inside a method."""


class Guard:
    """Depth of the methods under test that are running, and the number of listeners that ran outside of them."""

    def __init__(self) -> None:
        self.depth = 0
        self.heard = 0

    def call(self, method: Callable[[], object]) -> object:
        """Call a method under test."""
        self.depth += 1
        try:
            return method()
        finally:
            self.depth -= 1

    def listener(self, *_: object) -> None:
        """Stand for anything that waits."""
        if self.depth:
            raise Reentered
        self.heard += 1


def public_methods(kind: type) -> set[str]:
    """Return the names of the methods that code outside of a class may call."""
    return {name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}


# -- partitions --


class PartitionCase:
    """Replica of a partition that leads, follows and leads again, with listeners of every kind."""

    def __init__(self, seed: int, queue: CallbackQueue) -> None:
        self.dice = random.Random(seed)
        self.guard = Guard()
        self.queue = queue
        log = Log(MemoryStore(), Path("/data/t-0"), LogConfig(), high_watermark=0)
        self.partition = Partition("t", TOPIC_ID, 0, log, 1, 0, lambda _: None, self.queue)
        self.epoch = 0
        self.now_ms = 0
        self.lead()

    def lead(self) -> None:
        state = PartitionImage((1, 2, 3), (1, 2), 1, self.epoch)
        self.partition.lead(Leadership(1, state, 1, 1, 0, self.now_ms, 1000, lambda node, epoch: True))

    def listen(self) -> None:
        """Register a listener of each kind."""
        partition, listener = self.partition, self.guard.listener
        partition.watchers.add(listener)
        partition.end_watchers.add(lambda: listener())
        partition.when_committed(self.epoch, self.dice.randrange(partition.log.end_offset + 2), listener)
        partition.when(self.epoch, lambda: partition.log.end_offset % 2 == 0, listener)

    def step(self) -> None:
        partition, log, dice = self.partition, self.partition.log, self.dice
        self.now_ms += dice.choice((0, 10, 2000))
        leads = partition.leadership is not None
        methods: dict[str, Callable[[], object]] = {
            "follow": lambda: partition.follow(dice.choice((1, 2)), self._next_epoch()),
            "lead": self.lead if partition.leader_id == 1 else lambda: None,
            "record_fetch": lambda: partition.record_fetch(dice.choice((2, 3)), log.end_offset, 0, 1, self.now_ms),
            "observe": lambda: partition.observe(self.now_ms),
            "propose": partition.propose,
            "when_committed": lambda: partition.when_committed(
                dice.choice((self.epoch, self.epoch + 1)), log.end_offset, self.guard.listener
            ),
            "when": lambda: partition.when(self.epoch, lambda: True, self.guard.listener),
            "append": lambda: partition.append(BATCH, 0, len(BATCH), self.now_ms) if leads else None,
            "append_records": lambda: partition.append_records([(b"k", b"v")], self.now_ms) if leads else None,
            "append_marker": lambda: (
                partition.append_marker(7, 0, 0, self.now_ms, commit=True, new_epoch=False) if leads else None
            ),
            "append_message_set": lambda: None,  # the append of a batch, after a conversion
            "append_fetched": lambda: (
                None if leads else partition.append_fetched(b"", 0, 0, self.epoch, 0, log.end_offset, self.now_ms)
            ),
            "advance": partition.advance,
            "wake": partition.wake,
            "fail": lambda: partition.fail(6),
            "when_settled": lambda: None if leads else partition.when_settled(self.guard.listener),
            "has_acknowledged": lambda: partition.has_acknowledged(-1),
            "log_damage": lambda: None,
            "may_cut_damage": lambda: None,
        }
        assert methods.keys() == public_methods(Partition)
        self.listen()
        self.guard.call(methods[dice.choice(sorted(methods))])

    def _next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch


@pytest.mark.parametrize("seed", range(30))
def test_no_listener_runs_inside_a_method_of_a_partition(seed: int) -> None:
    case = PartitionCase(seed, manual_queue())
    for _ in range(60):
        case.step()
        if case.dice.random() < 0.3:
            run_queue(case.queue)
    run_queue(case.queue)
    assert case.guard.heard > 20


# -- coordinators --


class Names:
    """State that has the replayed records in order."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.parked: list[str] = []

    def replay(self, record: Any) -> None:
        self.names.append(record.name)

    def replay_pending(self, record: Any, producer_id: int) -> None:
        del producer_id
        self.names.append(record.name)

    def replay_end(self, producer_id: int, *, commit: bool) -> None:
        self.names.append(f"{producer_id} {commit}")


class Named:
    """Record with a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def encoded(self) -> tuple[bytes, bytes]:
        return self.name.encode(), b""


def ring(state: Names, name: str, now: int) -> Result:
    del now
    records: list[Any] = [Named(f"{name} rang")]
    return Result(records, [(request, "woken") for request in _taken(state)])


def _taken(state: Names) -> list[str]:
    taken, state.parked = state.parked, []
    return taken


def decide(state: Names, request: str, now: int) -> Result:
    del now
    if "park" in request:
        state.parked.append(request)
        return Result()
    outgoing = [request] if "send" in request else []
    timers = [Timer(ring, (request,), 10)] if "timer" in request else []
    records: list[Any] = [Named(request)]
    return Result(records, [(request, "done")], timers, outgoing=outgoing)


WRITE = Operation[str, str](decide, lambda request, code: f"{request}: {code}")


@pytest.mark.parametrize("seed", range(30))
def test_no_listener_runs_inside_a_method_of_a_runtime(seed: int) -> None:
    """Each answer begins another request at once, as the backlog of a connection does: the replay follows the log."""
    dice, guard, queue, clock, log = random.Random(seed), Guard(), manual_queue(), VirtualClock(), MemoryLog()
    runtime: Runtime[Any] = Runtime(
        partitions=1,
        new_state=lambda _: Names(),
        decode=lambda key, value: Named(key.decode()),  # type: ignore[arg-type,return-value]
        loaded=lambda state, now: Result(),
        clock=clock,
        tasks=queue,
        send=guard.listener,
    )
    count = 0

    def load() -> None:
        runtime.load(0, log)
        while not runtime.load_more(0):
            pass

    def run(kind: str) -> None:
        nonlocal count
        count += 1
        answer = guard.call(lambda: runtime.run("g", WRITE, f"{kind} {count}"))
        if isinstance(answer, Deferred):
            answer.listen(answered)

    def answered(_: object) -> None:
        guard.listener()
        if dice.random() < 0.3:
            run("plain")

    load()
    for _ in range(60):
        log.holds = dice.random() < 0.5
        if not log.holds:
            log.release()
        methods: dict[str, Callable[[], object]] = {
            "load": load,
            "load_more": lambda: runtime.load_more(0),
            "unload": lambda: runtime.unload(0),
            "on_committed": lambda: runtime.on_committed(0),
            "run": lambda: run(dice.choice(("plain", "park", "send", "timer", "send timer"))),
            "run_on": lambda: runtime.run_on(0, WRITE, f"on {count}"),
            "advance": lambda: runtime.advance(clock.now_ms()),
            "end_transaction": lambda: None,
            **dict.fromkeys(
                ("partition_of", "availability", "leads", "states", "state_of", "active_partitions", "next_deadline"),
                lambda: None,
            ),
        }
        assert methods.keys() == public_methods(Runtime)
        clock.now += dice.choice((0, 5, 20))
        name = dice.choice(("run", "run", "run", *sorted(methods)))
        guard.call(methods[name])
        if dice.random() < 0.3:
            run_queue(queue)
        if name == "unload":
            load()
        (state,) = runtime.states()
        assert state.names == [record.key.decode() for record in log.logged if record.key is not None]
    log.release()
    runtime.on_committed(0)
    run_queue(queue)
    assert guard.heard > 5


# -- metadata --


@pytest.mark.parametrize("seed", range(10))
def test_no_listener_runs_inside_a_method_of_the_metadata(seed: int) -> None:
    dice, guard, time = random.Random(seed), Guard(), VirtualTime()
    queue = Scheduler(time, time)
    shared = SharedMetadata(time, time)
    shared.change(
        Change(
            put={
                keys.CLUSTER_ID: b"cluster",
                keys.METADATA_VERSION: str(keys.NEWEST_METADATA_VERSION).encode(),
                keys.broker_key(1): BrokerImage(1, "h", 9092, None, incarnation="1").encoded(),
            }
        )
    )
    store = shared.connect(tasks=queue)
    single = BrokerImage(1, "", -1, None)
    metadata = Metadata(
        store,
        shared.snapshot(),
        random=CountingRandom(),
        tasks=queue,
        default_partitions=lambda: 1,
        default_replicas=lambda: 1,
        single=single,
    )
    metadata.follow(guard.listener)
    names = [f"t{number}" for number in range(4)]

    def create_or_delete() -> object:
        name, image = dice.choice(names), metadata.image
        if name in image.topics:
            return metadata.commit(next(changes.delete_left(image, [image.topics[name]], 100)))
        topic = metadata.plans.plan(RequestedTopic(name, 1, 1, {}, {}), TopicBatch())
        return metadata.commit(next(changes.create_topics(image, [topic], 100))[1])

    def configure(name: str, value: str) -> Change:
        return changes.configure(metadata.image, 4, name, {"a": value})

    def topic() -> TopicImage | None:
        return next(iter(metadata.image.topics.values()), None)

    methods: dict[str, Callable[[], object]] = {
        "commit": create_or_delete,
        "submit": lambda: metadata.tasks.start(metadata.submit(configure("", str(dice.random())))),
        "result_of": lambda: metadata.tasks.start(metadata.result_of(lambda _: configure("1", str(dice.random())))),
        "producer_id_block": lambda: metadata.tasks.start(metadata.producer_id_block()),
        "when_applied": lambda: metadata.when_applied(metadata.applied + dice.randrange(2)),
        "when": lambda: metadata.when(lambda: topic() is not None),
    }
    assert methods.keys() <= public_methods(Metadata)
    for _ in range(60):
        answer = guard.call(methods[dice.choice(sorted(methods))])
        if isinstance(answer, Deferred):
            answer.listen(guard.listener)
        if dice.random() < 0.5:
            time.advance(dice.choice((0, 1, 100)))
    time.advance(60_000)
    assert guard.heard > 20


# -- the planted bug --


def test_a_direct_call_is_caught() -> None:
    """As if a partition called its watchers inside of an append, as it did once."""
    case = PartitionCase(0, immediate_queue())

    def live() -> None:
        for _ in range(60):
            case.step()

    with pytest.raises(Reentered):
        live()
