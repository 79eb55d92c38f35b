"""Random changes of several brokers while members of etcd fail: on a simulated etcd, and on a real one.

Every change puts a key of its own, so that the contents show at the end which changes were made, and when.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.metadata.store import Change, ChangeOutcome, Entry
from ottla.tasks.deferred import Deferred
from tests.etcd_server import EtcdServer, running_cluster
from tests.queues import unexpected
from tests.unit.metadata.stores import Broker, EtcdHarness, SimulatedEtcdHarness, StoreHarness


class Made(NamedTuple):
    """A change, its broker, and its answer, with the revision that the broker's watcher had then."""

    broker: int
    own_key: str
    answers: list[tuple[ChangeOutcome, int]]


class Model:
    """Brokers that change keys at random."""

    def __init__(self, stores: StoreHarness, dice: random.Random) -> None:
        self.stores = stores
        self.dice = dice
        self.brokers = [Broker(stores) for _ in range(3)]
        self.changes: list[Made] = []
        for broker in self.brokers:
            broker.watch()

    def change(self) -> None:
        """Begin a change: of its own key and of some that others change too, compared with what the broker knows."""
        number = self.dice.randrange(len(self.brokers))
        broker = self.brokers[number]
        shared = self.dice.sample([f"/shared/{index}" for index in range(6)], 3)
        compared = broker.replica.entries.get(shared[0])
        own_key = f"/own/{len(self.changes):05}"
        change = Change(
            expect={shared[0]: compared.revision if compared else 0} if self.dice.random() < 0.5 else {},
            created={shared[0]: compared.created if compared else 0} if self.dice.random() < 0.2 else {},
            put={own_key: b"", shared[1]: own_key.encode()},
            delete=shared[2:] if self.dice.random() < 0.3 else (),
        )
        made = Made(number, own_key, [])
        self.changes.append(made)
        answer = broker.store.change(change)
        assert isinstance(answer, Deferred)
        answer.then(lambda outcome: made.answers.append((outcome, broker.replica.revision)), unexpected)

    def check(self) -> dict[str, int]:
        """Compare answers, replicas and contents; return the numbers of outcomes by kind."""
        for broker in self.brokers:  # all faults have ended
            last = broker.change(put={"/last": b""})
        contents = {entry.key: entry for entry in self.brokers[0].load().entries}
        counts = {"made": 0, "refused": 0, "failed": 0, "unknown": 0, "unknown but made": 0}
        newest = dict.fromkeys(range(len(self.brokers)), 0)
        for made in self.changes:
            ((outcome, delivered),) = made.answers
            entry: Entry | None = contents.get(made.own_key)
            assert entry is None or entry.created == entry.revision, "a change was made twice"
            if outcome.is_unknown:
                counts["unknown but made" if entry else "unknown"] += 1
            elif outcome.revision:
                counts["made"] += 1
                assert entry is not None
                assert entry.revision == outcome.revision
                assert delivered >= outcome.revision, "answered before the own watcher was called"
                assert outcome.revision > newest[made.broker], "changes of one broker were made in another order"
                newest[made.broker] = outcome.revision
            else:
                counts["refused" if outcome.conflicts else "failed"] += 1
                assert entry is None, (made, entry)
        for broker in self.brokers:
            self.stores.until(lambda broker=broker: broker.replica.revision >= last)  # type: ignore[misc]
            assert broker.replica.entries == contents
            assert broker.replica.failures == []
        return counts


def simulated_faults(stores: SimulatedEtcdHarness, dice: random.Random) -> list[Callable[[], Any]]:
    def one_member(fault: str) -> Callable[[], Any]:
        return lambda: getattr(dice.choice(stores.members), fault)()

    def delay() -> None:
        dice.choice(stores.members).delay_ms = dice.choice((0, 10, 3000))

    faults = [one_member(name) for name in ("kill", "restart", "restart", "pause", "resume", "resume")]
    return [*faults, delay, delay, stores.etcd.freeze, stores.etcd.thaw, stores.etcd.thaw, stores.etcd.compact]


def simulate(seed: int) -> tuple[dict[str, int], list[Any]]:
    """Run a simulation; return the numbers of outcomes, and what distinguishes it from another one."""
    dice = random.Random(seed)
    stores = SimulatedEtcdHarness(dice, latency=lambda: dice.choice((0, 1, 5, 5, 40)))
    model = Model(stores, dice)
    faults = simulated_faults(stores, dice)
    for _ in range(250):
        model.change()
        if dice.random() < 0.15:
            dice.choice(faults)()
        stores.advance(dice.choice((0, 1, 10, 100, 700)))
    for member in stores.members:
        member.resume()
        member.restart()
        member.delay_ms = 0
    stores.etcd.thaw()
    stores.advance(20_000)
    counts = model.check()
    reloads = sum(broker.replica.reloads for broker in model.brokers)
    restarts = sum(store.watch_restarts for store in stores.connected)
    trace = [stores.etcd.requests, [broker.replica.deliveries for broker in model.brokers], stores.time.now]
    return {**counts, "reloads": reloads, "restarts": restarts}, trace


def test_random_changes_on_a_simulated_etcd(dice_seed: int, request: pytest.FixtureRequest) -> None:
    total: dict[str, int] = {}
    for round_ in range(10 * request.config.getoption("--soak")):
        print("round", dice_seed + round_)  # noqa: T201
        for kind, count in simulate(dice_seed + round_)[0].items():
            total[kind] = total.get(kind, 0) + count
    print(total)  # noqa: T201
    assert all(total.values()), total  # a run in which nothing went wrong shows nothing


def test_a_simulation_runs_again_in_the_same_way(dice_seed: int) -> None:
    assert simulate(dice_seed) == simulate(dice_seed)
    assert simulate(dice_seed) != simulate(dice_seed + 1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[EtcdServer]]:
    with running_cluster(tmp_path) as servers:
        yield servers


def test_random_changes_on_a_real_etcd(cluster: list[EtcdServer], dice_seed: int) -> None:
    dice = random.Random(dice_seed)
    stores = EtcdHarness(cluster[0].url(*cluster[1:]))
    model = Model(stores, dice)
    down: list[Callable[[], None]] = []

    def fail() -> None:
        """Kill or stop one member; a second one, which takes the quorum away, only at times."""
        if len(down) < dice.choice((1, 1, 2)):
            server = dice.choice([server for server in cluster if server not in failed])
            failed.append(server)
            if dice.random() < 0.5:
                server.kill()
                down.append(lambda: server.start(wait=False))
            else:
                server.pause()
                down.append(server.resume)

    failed: list[EtcdServer] = []
    for step in range(300):
        for _ in range(dice.choice((0, 1, 5))):
            model.change()
        if step % 25 == 5:
            fail()
        if step % 25 == 15 and down:
            failed.pop(0)
            down.pop(0)()
        stores.advance(dice.choice((0, 1, 10, 100)))
    for restore in down:
        restore()
    stores.until(lambda: all(change.answers for change in model.changes), 60_000)
    for server in cluster:
        server.wait()
    counts = model.check()
    print(counts)  # noqa: T201
    assert counts["made"] > 50
    stores.close()
