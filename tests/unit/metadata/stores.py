"""Metadata stores for the tests of the contract: how each is opened, and how time passes for it.

Another store takes part in all tests of the contract with one more entry in `STORES`.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import pytest

from ottla.environment import Address, Receiver, Stream, Transport
from ottla.environment.process import process_environment
from ottla.metadata.store import Change, ChangeOutcome, Entry, LeaseOutcome, MetadataStore, Snapshot
from ottla.metadata.store.etcd.store import EtcdMetadataStore
from ottla.metadata.store.etcd.url import parse
from ottla.metadata.store.memory import SharedMetadata
from ottla.metadata.store.shared_sqlite import SharedSqliteStore
from ottla.metadata.store.sqlite import SqliteStore
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.scheduler import Scheduler
from tests.queues import unexpected
from tests.simulation.etcd import SimulatedEtcd, SimulatedMember, SimulatedNetwork

T = TypeVar("T")


class _Scheduled:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class VirtualTime:
    """Clock and timers that only tests move."""

    def __init__(self) -> None:
        self.now = 1000
        self._due: list[tuple[int, int, _Scheduled]] = []
        self._count = 0

    def now_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> _Scheduled:
        self._count += 1
        scheduled = _Scheduled(callback)
        heapq.heappush(self._due, (self.now + max(delay_ms, 0), self._count, scheduled))
        return scheduled

    def advance(self, ms: int) -> None:
        """Run all that is due within the next `ms` milliseconds."""
        end = self.now + ms
        while self.step(end):
            pass
        self.now = end

    def step(self, end: int) -> bool:
        """Run the next callback that is due until `end`."""
        if not self._due or self._due[0][0] > end:
            return False
        self.now, _, scheduled = heapq.heappop(self._due)
        if scheduled.callback is not None:
            scheduled.callback()
        return True


class StoreHarness(Protocol):
    """A store, for one test.

    ttl_ms          a short time to live that leases can have
    first_revision  revision of the empty store, None if it may be any
    """

    ttl_ms: int
    first_revision: int | None

    def connect(self) -> MetadataStore:
        """Open the store for one more broker."""

    def advance(self, ms: int) -> None:
        """Let time pass."""

    def end_of(self, lease: int) -> None:
        """End the process that holds a lease; a store whose leases end by time needs not notice it."""

    def until(self, condition: Callable[[], bool], limit_ms: int = 10_000) -> None:
        """Let time pass until the condition holds; fails after `limit_ms`."""


class MemoryHarness:
    """The store in memory, on virtual time."""

    ttl_ms = 1000
    first_revision: int | None = 0

    def __init__(
        self, latency: Callable[[], int] = lambda: 0, skip: Callable[[], bool] = lambda: False, timeout_ms: int = 2000
    ) -> None:
        self.time = VirtualTime()
        self.shared = SharedMetadata(self.time, self.time)
        self.options: dict[str, Any] = {"latency": latency, "skip": skip, "timeout_ms": timeout_ms}

    def connect(self) -> MetadataStore:
        return self.shared.connect(**self.options)

    def end_of(self, lease: int) -> None:
        """The lease ends by time."""

    def advance(self, ms: int) -> None:
        self.time.advance(ms)

    def until(self, condition: Callable[[], bool], limit_ms: int = 10_000) -> None:
        end = self.time.now + limit_ms
        while not condition():
            assert self.time.step(end), "the condition does not hold in time"


@contextmanager
def memory(request: pytest.FixtureRequest) -> Any:
    del request
    yield MemoryHarness()


@contextmanager
def slow_memory(request: pytest.FixtureRequest) -> Any:
    """Requests, answers and deliveries take different times."""
    del request
    dice = random.Random(1)
    yield MemoryHarness(latency=lambda: dice.choice((0, 1, 30)))


@contextmanager
def skipping_memory(request: pytest.FixtureRequest) -> Any:
    """Every other revision is delivered with the next ones."""
    del request
    dice = random.Random(2)
    yield MemoryHarness(latency=lambda: dice.choice((0, 1, 2)), skip=lambda: dice.random() < 0.5)


class SimulatedEtcdHarness(MemoryHarness):
    """The client of etcd, with a simulated etcd of three members on virtual time."""

    first_revision: int | None = None

    def __init__(self, dice: random.Random, latency: Callable[[], int] = lambda: 0) -> None:
        super().__init__()
        self.etcd = SimulatedEtcd(self.time, self.shared, dice)
        self.network = SimulatedNetwork(self.time, latency)
        addresses = [("one", 1), ("two", 2), ("three", 3)]
        self.members = [SimulatedMember(self.etcd, address) for address in addresses]
        self.network.members = {member.address: member for member in self.members}
        self.url = "etcd://one:1,two:2,three:3/test"
        self.connected: list[EtcdMetadataStore] = []

    def connect(self, url: str | None = None) -> EtcdMetadataStore:
        store = EtcdMetadataStore(parse(url or self.url), Scheduler(self.time, self.time), self.network)
        self.connected.append(store)
        return store


@contextmanager
def simulated_etcd(request: pytest.FixtureRequest) -> Any:
    del request
    dice = random.Random(3)
    yield SimulatedEtcdHarness(dice, lambda: dice.choice((0, 1, 3)))


class RealTimeHarness:
    """A store on the event loop of asyncio."""

    ttl_ms = 1000
    first_revision: int | None = None

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.environment = process_environment(self.loop)
        self.tasks = Scheduler(self.environment.clock, self.environment.timers)
        self.connected: list[Any] = []
        self.errors: list[str] = []
        """Exceptions that reached the event loop."""
        self.loop.set_exception_handler(lambda loop, context: self.errors.append(str(context)))

    def end_of(self, lease: int) -> None:
        """The lease ends by time."""

    def advance(self, ms: int) -> None:
        self.loop.run_until_complete(asyncio.sleep(ms / 1000))

    def until(self, condition: Callable[[], bool], limit_ms: int = 10_000) -> None:
        async def wait() -> None:
            deadline = self.loop.time() + limit_ms / 1000
            while not condition():
                assert self.loop.time() < deadline, "the condition does not hold in time"
                await asyncio.sleep(0.0005)

        self.loop.run_until_complete(wait())

    def close(self) -> None:
        for store in self.connected:
            store.close()
        self.advance(10)
        self.loop.close()
        assert self.errors == []


class CountingTransport:
    """A transport that knows how many of its connections are open, or being opened."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.open_connections = 0

    def open(self, address: Address, receiver: Receiver, **buffers: int) -> Callable[[], None]:
        self.open_connections += 1
        connection = _CountedConnection(self, receiver)
        give_up = self._transport.open(address, connection, **buffers)

        def give_up_and_count() -> None:
            give_up()
            connection.end()

        return give_up_and_count


class _CountedConnection:
    """Receiver and stream of a connection, between the store and the transport."""

    def __init__(self, transport: CountingTransport, receiver: Receiver) -> None:
        self._transport = transport
        self._receiver = receiver
        self._has_ended = False
        self.resolved = receiver.resolved
        self.readable = receiver.readable
        self.rejected = receiver.rejected

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._transport.open_connections -= 1

    def connected(self, stream: Stream) -> None:
        self._stream = stream
        self.write = stream.write
        self._receiver.connected(self)

    def lost(self, reason: str) -> None:
        self._receiver.lost(reason)

    def close(self) -> None:
        self._stream.close()
        self.end()


class EtcdHarness(RealTimeHarness):
    """A real etcd."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = parse(url)
        self._transport = CountingTransport(self.environment.transport)

    def close(self) -> None:
        """Close the stores, and wait until the changes under way are sent: a store keeps its connections open until then."""
        for store in self.connected:
            store.close()
        self.until(lambda: not self._transport.open_connections)
        super().close()

    def connect(self, url: str | None = None) -> EtcdMetadataStore:
        environment = self.environment
        parsed = self.url if url is None else parse(url)
        store = EtcdMetadataStore(parsed, Scheduler(environment.clock, environment.timers), self._transport)
        self.connected.append(store)
        return store


@contextmanager
def etcd(request: pytest.FixtureRequest) -> Any:
    harness = EtcdHarness(request.getfixturevalue("etcd_server").url())
    try:
        yield harness
    finally:
        harness.close()


class SharedSqliteHarness(RealTimeHarness):
    """One SQLite file, with a connection and a thread for each broker; leases end with their process, as the parent sees it.

    poll_ms  interval of polling; `is_notified` says if the brokers are notified of changes as well
    """

    ttl_ms = 50
    first_revision: int | None = 0

    def __init__(self, path: Path, poll_ms: int, *, is_notified: bool) -> None:
        super().__init__()
        self.path = path
        self.poll_ms = poll_ms
        self.is_notified = is_notified
        self.parent = self.connect()

    def connect(self) -> SharedSqliteStore:
        worker = self.environment.workers.start("metadata")
        store = SharedSqliteStore(self.path, worker, self.tasks, self.notify, self.poll_ms)
        self.connected.append(store)
        return store

    def notify(self) -> None:
        if self.is_notified:
            for store in self.connected:
                self.loop.call_soon(store.refresh)

    def end_of(self, lease: int) -> None:
        self.parent.revoke(lease)


@contextmanager
def shared_sqlite(request: pytest.FixtureRequest) -> Any:
    """Brokers are notified of changes; without that no test would end in time."""
    with closing(SharedSqliteHarness(data_file(request), 60_000, is_notified=True)) as harness:
        yield harness


@contextmanager
def polled_sqlite(request: pytest.FixtureRequest) -> Any:
    """All notifications are lost."""
    with closing(SharedSqliteHarness(data_file(request), 10, is_notified=False)) as harness:
        yield harness


class SingleBrokerStore(SqliteStore):
    """The store of a single broker: tests that need a lease do not apply to it."""

    def grant(self, ttl_ms: int) -> LeaseOutcome:
        assert super().grant(ttl_ms).error is not None
        pytest.skip("the store of a single broker has no leases")


class SqliteHarness(RealTimeHarness):
    """One SQLite file and its only broker: tests that need several brokers do not apply to it."""

    first_revision: int | None = 0

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def connect(self) -> SqliteStore:
        if self.connected:
            pytest.skip("a single broker uses this store")
        self.worker = self.environment.workers.start("metadata")
        self.connected.append(
            SingleBrokerStore(self.path, self.worker, Scheduler(self.environment.clock, self.environment.timers))
        )
        return self.connected[0]  # type: ignore[no-any-return]

    def close(self) -> None:
        if self.connected:
            self.worker.close()
        super().close()


@contextmanager
def sqlite(request: pytest.FixtureRequest) -> Any:
    with closing(SqliteHarness(data_file(request))) as harness:
        yield harness


def data_file(request: pytest.FixtureRequest) -> Path:
    """Return the path of a new metadata.db."""
    directory: Path = request.getfixturevalue("tmp_path")
    return directory / "metadata.db"


STORES: Final[Mapping[str, Callable[[pytest.FixtureRequest], AbstractContextManager[StoreHarness]]]] = {
    "memory": memory,
    "slow memory": slow_memory,
    "skipping memory": skipping_memory,
    "simulated etcd": simulated_etcd,
    "etcd": etcd,
    "SQLite": sqlite,
    "shared SQLite": shared_sqlite,
    "polled SQLite": polled_sqlite,
}


class Replica:
    """A watcher that keeps the contents, as a broker does, and checks what every delivery must keep to."""

    def __init__(self) -> None:
        self.revision = 0
        self.entries: dict[str, Entry] = {}
        self.deliveries: list[tuple[int, list[Entry]]] = []
        self.reloads = 0
        self.failures: list[str] = []
        self.on_change: Callable[[int], None] = lambda revision: None

    def start(self, snapshot: Snapshot) -> None:
        """Start with the loaded contents."""
        assert [entry.key for entry in snapshot.entries] == sorted(entry.key for entry in snapshot.entries)
        assert all(0 < entry.created <= entry.revision <= snapshot.revision for entry in snapshot.entries)
        self.revision = snapshot.revision
        self.entries = {entry.key: entry for entry in snapshot.entries}

    def changed(self, revision: int, entries: Sequence[Entry]) -> None:
        assert revision > self.revision
        assert len({entry.key for entry in entries}) == len(entries)
        for entry in entries:
            assert self.revision < entry.revision <= revision
            if entry.value is None:
                assert (entry.created, entry.lease) == (0, 0)
                self.entries.pop(entry.key, None)
            else:
                before = self.entries.get(entry.key)
                assert (before is not None and entry.created == before.created) or entry.created > self.revision
                self.entries[entry.key] = entry
        self.revision = revision
        self.deliveries.append((revision, list(entries)))
        self.on_change(revision)

    def reloaded(self, snapshot: Snapshot) -> None:
        assert snapshot.revision >= self.revision
        self.reloads += 1
        self.start(snapshot)
        self.on_change(snapshot.revision)

    def failed(self, reason: str) -> None:
        assert "\n" not in reason
        self.failures.append(reason)

    def value(self, key: str) -> bytes | None:
        """Return the value of a key, None if it does not exist."""
        entry = self.entries.get(key)
        return entry.value if entry else None


class Broker:
    """One connection to a store, with its replica, and requests that wait for their answers."""

    def __init__(self, stores: StoreHarness) -> None:
        self.stores = stores
        self.store = stores.connect()
        self.replica = Replica()

    def wait(self, answer: Answer[T]) -> T:
        """Let time pass until an answer has come."""
        return self.arrived(answer) if isinstance(answer, Deferred) else answer

    def arrived(self, answer: Deferred[T]) -> T:
        """Let time pass until an answer is complete."""
        responses: list[T] = []
        answer.then(responses.append, unexpected)
        self.stores.until(lambda: bool(responses))
        return responses[0]

    def load(self) -> Snapshot:
        """Return the contents."""
        return self.wait(self.store.load())

    def watch(self) -> Replica:
        """Load the contents, and follow the changes."""
        self.replica.start(self.load())
        self.store.watch(self.replica.revision, self.replica)
        return self.replica

    def outcome(self, **change: Any) -> ChangeOutcome:
        return self.wait(self.store.change(Change(**change)))

    def change(self, **change: Any) -> int:
        """Make a change, and return its revision."""
        outcome = self.outcome(**change)
        assert (outcome.error, outcome.conflicts, outcome.is_unknown) == (None, {}, False)
        assert outcome.revision > 0
        return outcome.revision

    def entry(self, key: str) -> Entry | None:
        """Return the entry that the store has now."""
        return next((entry for entry in self.load().entries if entry.key == key), None)

    def grant(self, ttl_ms: int) -> int:
        outcome = self.wait(self.store.grant(ttl_ms))
        assert outcome.error is None
        assert outcome.id > 0
        return outcome.id
