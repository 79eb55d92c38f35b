"""Metadata stores that are restored from a snapshot, and the check that no broker goes on with one.

    snapshot ----------> settled -------> restored ~~~~~~~~~~~~> put back
             changes              2 s              older store

An operator restores etcd from a snapshot, sees that all brokers have stopped, and puts the newest contents back. A broker that
took the older store for its own would write decisions there that the newest never sees.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from .brokers import SimulatedBroker
from .checks import Violation
from .disks import DiskState
from .etcd_host import EtcdStoreHost
from .metadata import StoreHost
from .world import SECOND_US, World

CHECK: Final = "older store"
_NOTICED_US: Final = 15 * SECOND_US
"""Time in which a broker that reaches the store has renewed its lease, also at a slow member of it."""
_WRITTEN_US: Final = 2 * SECOND_US
"""Time in which a running broker has written to its disk which revision it has applied."""


class _Applied(NamedTuple):
    """The newest revision that a broker had applied at a time."""

    at_us: int
    revision: int


class OlderStores:
    """The restored stores of a run, and the brokers that reach them."""

    def __init__(self, world: World, stores: Sequence[StoreHost], brokers: Sequence[SimulatedBroker]) -> None:
        self._world = world
        self._stores = [store for store in stores if isinstance(store, EtcdStoreHost)]
        self._brokers = brokers
        self._reached_us: dict[str, int] = {}
        """Time since which a broker has reached an older store, by the name of its process."""
        self._unwritten: defaultdict[str, deque[_Applied]] = defaultdict(deque)
        self._known: dict[str, _Applied] = {}
        """The newest revision on the disk of a broker, by its name."""
        self.violations: list[Violation] = []

    def known_revision(self, store: EtcdStoreHost) -> int:
        """Return the revision that all brokers of `store` have applied and written: -1 if one of them may have none.

        A broker that has not run since an older revision cannot tell that a store of that revision was restored.
        """
        brokers = [broker for broker in self._brokers if broker.store is store]
        known = [self._known.get(broker.name, _Applied(-1, -1)) for broker in brokers]
        return min(
            applied.revision if applied.at_us > broker.replaced_us else -1
            for broker, applied in zip(brokers, known, strict=True)
        )

    def _sample_known(self) -> None:
        now_us = self._world.now_us
        for broker in self._brokers:
            unwritten = self._unwritten[broker.name]
            if (
                broker.server is None
                or not broker.is_serving
                or broker.host.is_paused
                or broker.disk.state is not DiskState.GOOD
            ):
                unwritten.clear()
                continue
            unwritten.append(_Applied(now_us, broker.server.broker.image.revision))
            while unwritten[0].at_us <= now_us - _WRITTEN_US:
                self._known[broker.name] = unwritten.popleft()

    def sample(self) -> None:
        """Look at all brokers: none begins to serve on an older store, and none stays."""
        self._sample_known()
        reached = {}
        now_us = self._world.now_us
        for store in self._stores:
            if store.older_since_us is None:
                continue
            for broker in self._brokers:
                if broker.store is not store or not broker.is_serving or broker.host.is_paused:
                    continue
                if broker.starts[-1].begun_us >= store.older_since_us:
                    self._add_violation(broker, "begins to serve on an older store")
                elif not store.is_cut(broker.name):
                    begun_us = reached[broker.incarnation] = self._reached_us.get(broker.incarnation, now_us)
                    if now_us - begun_us > _NOTICED_US:
                        self._add_violation(broker, f"serves {_NOTICED_US // SECOND_US} s after its store was restored")
        self._reached_us = reached

    def _add_violation(self, broker: SimulatedBroker, text: str) -> None:
        if not any(broker.incarnation in violation.about for violation in self.violations):
            who = f"{broker.incarnation} {text}"
            self.violations.append(Violation(CHECK, who, (broker.incarnation, broker.name), self._world.now_us))
