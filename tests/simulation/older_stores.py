"""Metadata stores that are restored from a snapshot, and the check that no broker goes on with one.

    snapshot ----------> settled -------> restored ~~~~~~~~~~~~> put back
             changes              2 s              older store

An operator restores etcd from a snapshot, sees that all brokers have stopped, and puts the newest contents back. A broker that
took the older store for its own would write decisions there that the newest never sees.
"""

from collections.abc import Sequence
from typing import Final

from .brokers import SimulatedBroker
from .checks import Violation
from .etcd_host import EtcdStoreHost
from .metadata import StoreHost
from .world import SECOND_US, World

CHECK: Final = "older store"
_NOTICED_US: Final = 15 * SECOND_US
"""Time in which a broker that reaches the store has renewed its lease, also at a slow member of it."""


class OlderStores:
    """The restored stores of a run, and the brokers that reach them."""

    def __init__(self, world: World, stores: Sequence[StoreHost], brokers: Sequence[SimulatedBroker]) -> None:
        self._world = world
        self._stores = [store for store in stores if isinstance(store, EtcdStoreHost)]
        self._brokers = brokers
        self._reached_us: dict[str, int] = {}
        """Time since which a broker has reached an older store, by the name of its process."""
        self.violations: list[Violation] = []

    def sample(self) -> None:
        """Look at all brokers: none begins to serve on an older store, and none stays."""
        reached = {}
        now_us = self._world.now_us
        for store in self._stores:
            if store.older_since_us is None:
                continue
            for broker in self._brokers:
                if broker.store is not store or not broker.is_serving or broker.host.is_paused:
                    continue
                if broker.starts[-1].begun_us >= store.older_since_us:
                    self._violated(broker, "begins to serve on an older store")
                elif not store.is_cut(broker.name):
                    begun_us = reached[broker.incarnation] = self._reached_us.get(broker.incarnation, now_us)
                    if now_us - begun_us > _NOTICED_US:
                        self._violated(broker, f"serves {_NOTICED_US // SECOND_US} s after its store was restored")
        self._reached_us = reached

    def _violated(self, broker: SimulatedBroker, text: str) -> None:
        if not any(broker.incarnation in violation.about for violation in self.violations):
            who = f"{broker.incarnation} {text}"
            self.violations.append(Violation(CHECK, who, (broker.incarnation, broker.name), self._world.now_us))
