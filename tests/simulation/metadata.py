"""The metadata store that the brokers of a simulated cluster share, and the connection of each process to it.

The store runs on a host of its own. What it delivers to a broker runs as part of that broker's process: later while its host
is paused, and never after its end.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

from ottla.environment import Clock, Timers
from ottla.metadata.image import EMPTY, NO_LEADER, PartitionImage
from ottla.metadata.image.deltas import advanced
from ottla.metadata.store import Change, ChangeOutcome, Entry, LeaseOutcome, MetadataStore, Snapshot, Watcher
from ottla.metadata.store.memory import MemoryMetadataStore, SharedMetadata
from ottla.tasks.deferred import Answer
from ottla.tasks.scheduler import Scheduler

from .checks import Election
from .hosts import Host, Life

T = TypeVar("T")
LATENCY_MS: Final = (0, 3)
_SLOW_MS: Final = (100, 900)
_SKIPS: Final = 0.15
"""Share of revisions that are delivered together with later ones."""


class Revision(NamedTuple):
    """Revision of the store; `writer` is the host whose change it is, empty for the end of a lease."""

    number: int
    writer: str
    entries: tuple[Entry, ...]


class RecordedMetadata(SharedMetadata):
    """Shared metadata that keeps all revisions, for the checks at the end; `applied` is called after each."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        super().__init__(clock, timers)
        self.revisions: list[Revision] = []
        self.applied: Callable[[Revision], None] = lambda _: None
        self._sent: dict[int, tuple[Change, str]] = {}
        self._writer = ""

    def sent(self, change: Change, writer: str) -> None:
        """Note the writer of a change that is on its way."""
        self._sent[id(change)] = change, writer

    def change(self, change: Change) -> ChangeOutcome:
        _, self._writer = self._sent.pop(id(change), (change, ""))
        try:
            return super().change(change)
        finally:
            self._writer = ""

    def _apply(self, changed: dict[str, Entry]) -> None:
        revision = Revision(self.revision + 1, self._writer, tuple(changed.values()))
        self.revisions.append(revision)
        super()._apply(changed)
        self.applied(revision)


def elections(revisions: Sequence[Revision], nodes: Mapping[str, int]) -> list[Election]:
    """Return every change of a partition's leader in the store; `nodes` are the node ids of the writers."""
    image, result = EMPTY, []
    for revision in revisions:
        delta = advanced(image, revision.number, revision.entries)
        before, image = image, delta.image
        live = frozenset(before.brokers)

        def note(
            topic_id: bytes, index: int, old: PartitionImage | None, new: PartitionImage, revision: Revision = revision
        ) -> None:
            leader_before = NO_LEADER if old is None else old.leader
            if new.leader != leader_before:
                writer = nodes.get(revision.writer, NO_LEADER)
                place = (revision.number, topic_id.hex(), index)
                roles = (writer, before.controller_id)  # noqa: B023  (called in this round only)
                result.append(Election(*place, old is None, leader_before, new.leader, *roles, live))  # noqa: B023

        for topic in delta.changed:
            known = before.topics_by_id.get(topic.id)
            for index, partition in enumerate(topic.partitions):
                is_old = known is not None and index < len(known.partitions)
                note(topic.id, index, known.partitions[index] if known is not None and is_old else None, partition)
        for name, indexes in delta.moved.items():
            for index in indexes:
                states = (before.topics[name].partitions[index], image.topics[name].partitions[index])
                note(image.topics[name].id, index, *states)
    return result


class StoreHost:
    """Host of the shared store, and its faults.

    cluster     name of the cluster
    shared      the store
    latency_ms  shortest and longest time that a request, an answer or a delivery takes
    """

    def __init__(self, host: Host, cluster: str) -> None:
        self.cluster = cluster
        self.host = host
        self.shared = RecordedMetadata(host.clock, host.begin_life())
        self.latency_ms = LATENCY_MS
        self._random = host.world.random(host.name)
        self._connections: dict[str, MemoryMetadataStore] = {}
        self._cuts: dict[str, None] = {}

    def set_slow(self, is_slow: bool) -> None:
        """Let requests and deliveries take long from now on, or no longer."""
        self.latency_ms = _SLOW_MS if is_slow else LATENCY_MS

    def latency(self) -> int:
        """Return the milliseconds of the next message."""
        return self._random.randint(*self.latency_ms)

    def freeze(self) -> None:
        """Stop serving, like an etcd without a quorum."""
        self.shared.freeze()

    def thaw(self) -> None:
        """Serve again, the waiting requests first."""
        self.shared.thaw()

    def compact(self) -> None:
        """Drop the history."""
        self.shared.compact()

    def connect(self, life: Life, tasks: Scheduler) -> MetadataStore:
        """Open the connection of a process."""
        name = life.host.name
        connection = self.shared.connect(
            latency=self.latency,
            skip=lambda: self._random.random() < _SKIPS,
            tasks=tasks,
        )
        self._connections[name] = connection
        if name in self._cuts:
            connection.cut()
        return BrokerStore(connection, life, partial(self._sent, name))

    def _sent(self, name: str, change: Change) -> None:
        self.shared.sent(change, name)

    def disconnect(self, name: str) -> None:
        """Close the connection of a process that has ended."""
        connection = self._connections.pop(name, None)
        if connection is not None:
            connection.close()

    def cut(self, name: str) -> None:
        """Cut a broker off from the store."""
        self._cuts[name] = None
        if name in self._connections:
            self._connections[name].cut()

    def heal(self, name: str) -> None:
        """Let a broker reach the store again."""
        self._cuts.pop(name, None)
        if name in self._connections:
            self._connections[name].heal()

    def observe(self, applied: Callable[[Revision], None]) -> None:
        """Call `applied` with each revision from now on."""
        self.shared.applied = applied

    def snapshot(self) -> Snapshot:
        """Return the contents."""
        return self.shared.snapshot()

    def revisions(self) -> Sequence[Revision]:
        """Return all revisions, in order."""
        return self.shared.revisions

    def values(self) -> dict[str, bytes]:
        """Return the values by key."""
        return {entry.key: entry.value for entry in self.snapshot().entries if entry.value is not None}


class BrokerStore:
    """Implementation of `MetadataStore` for one process."""

    def __init__(self, connection: MemoryMetadataStore, life: Life, sent: Callable[[Change], None]) -> None:
        self._connection = connection
        self._life = life
        self._sent = sent
        self.largest_change = connection.largest_change

    def load(self) -> Answer[Snapshot]:
        return self._connection.load()

    def change(self, change: Change) -> Answer[ChangeOutcome]:
        """See `MetadataStore`."""
        self._sent(change)
        return self._connection.change(change)

    def grant(self, ttl_ms: int) -> Answer[LeaseOutcome]:
        return self._connection.grant(ttl_ms)

    def renew(self, lease: int) -> Answer[LeaseOutcome]:
        return self._connection.renew(lease)

    def revoke(self, lease: int) -> Answer[bool]:
        return self._connection.revoke(lease)

    def watch(self, revision: int, watcher: Watcher) -> None:
        """See `MetadataStore`."""
        self._connection.watch(revision, _LifeWatcher(watcher, self._life.run))

    def close(self) -> None:
        """See `MetadataStore`."""
        self._connection.close()


class _LifeWatcher:
    """Watcher that is called as part of a process."""

    def __init__(self, watcher: Watcher, run: Callable[[Callable[[], None]], None]) -> None:
        self._watcher = watcher
        self._run = run

    def changed(self, revision: int, entries: Sequence[Entry]) -> None:
        self._run(lambda: self._watcher.changed(revision, entries))

    def reloaded(self, snapshot: Snapshot) -> None:
        self._run(lambda: self._watcher.reloaded(snapshot))

    def failed(self, reason: str) -> None:
        self._run(lambda: self._watcher.failed(reason))
