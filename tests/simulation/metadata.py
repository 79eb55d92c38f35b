"""The metadata store that the brokers of a simulated cluster share, and the connection of each process to it.

The store runs on a host of its own. What it delivers to a broker runs as part of that broker's process: later while its host
is paused, and never after its end.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ottla.metadata.store import Change, ChangeOutcome, Entry, LeaseOutcome, Snapshot, Watcher
from ottla.metadata.store.memory import MemoryMetadataStore, SharedMetadata
from ottla.protocol.answer import Answer, Pending

from .hosts import Host, Life

T = TypeVar("T")
_LATENCY_MS: Final = (0, 3)
_SLOW_MS: Final = (100, 900)
_SKIPS: Final = 0.15
"""Share of revisions that are delivered together with later ones."""


class StoreHost:
    """Host of the shared store, and its faults.

    cluster  name of the cluster
    shared   the store
    is_slow  True while requests and deliveries take long
    """

    def __init__(self, host: Host, cluster: str) -> None:
        self.cluster = cluster
        self.host = host
        self.shared = SharedMetadata(host.clock, host.begin_life())
        self.is_slow = False
        self._random = host.world.random(host.name)
        self._connections: dict[str, MemoryMetadataStore] = {}
        self._cuts: dict[str, None] = {}

    def connect(self, life: Life) -> "BrokerStore":
        """Open the connection of a process."""
        name = life.host.name
        connection = self.shared.connect(
            latency=lambda: self._random.randint(*(_SLOW_MS if self.is_slow else _LATENCY_MS)),
            skip=lambda: self._random.random() < _SKIPS,
        )
        self._connections[name] = connection
        if name in self._cuts:
            connection.cut()
        return BrokerStore(connection, life)

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

    def values(self) -> dict[str, bytes]:
        """Return the contents."""
        return {entry.key: entry.value for entry in self.shared.snapshot().entries if entry.value is not None}


class BrokerStore:
    """Implementation of `MetadataStore` for one process."""

    def __init__(self, connection: MemoryMetadataStore, life: Life) -> None:
        self._connection = connection
        self._life = life
        self.largest_change = connection.largest_change

    def load(self) -> Answer[Snapshot]:
        return self._answer(self._connection.load())

    def change(self, change: Change) -> Answer[ChangeOutcome]:
        """See `MetadataStore`."""
        return self._answer(self._connection.change(change))

    def grant(self, ttl_ms: int) -> Answer[LeaseOutcome]:
        return self._answer(self._connection.grant(ttl_ms))

    def renew(self, lease: int) -> Answer[LeaseOutcome]:
        return self._answer(self._connection.renew(lease))

    def revoke(self, lease: int) -> Answer[bool]:
        return self._answer(self._connection.revoke(lease))

    def watch(self, revision: int, watcher: Watcher) -> None:
        """See `MetadataStore`."""
        self._connection.watch(revision, _LifeWatcher(watcher, self._life.run))

    def close(self) -> None:
        """See `MetadataStore`."""
        self._connection.close()

    def _answer(self, answer: Answer[T]) -> Answer[T]:
        """Complete an answer as part of the process."""
        if not isinstance(answer, Pending):
            return answer
        own = Pending[T]()
        answer.listen(lambda response: self._life.run(lambda: own.complete(response)), own.abandon)
        return own


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
