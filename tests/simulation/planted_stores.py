"""Bugs about restored metadata stores that are planted into brokers: see `planted`."""

import random
from typing import Final

from ottla.broker.cluster import applied_revision
from ottla.metadata.store.etcd.store import EtcdMetadataStore

from .etcd_host import EtcdStoreHost
from .older_stores import CHECK
from .planting import Fault, Patch, Planted, every, later, restart, settings, together
from .run import Simulation

_PERIOD_MS: Final = (26_000, 28_000)
_OLDER_MS: Final = 18_000
_AGE_MS: Final = 4_000


def _restore_store(simulation: Simulation, chance: random.Random) -> None:
    """Restore the store from a snapshot that is some seconds old, for a time in which all brokers notice it."""
    del chance
    (store,) = simulation.stores
    assert isinstance(store, EtcdStoreHost)
    taken = store.shared.snapshot()

    def restore() -> None:
        if store.shared.revision > taken.revision:
            begun_us = simulation.world.now_us
            store.restore(taken)
            later(simulation, _OLDER_MS, store.put_back)
            simulation.faults.intervals.append((begun_us, begun_us + 1000 * _OLDER_MS))

    later(simulation, _AGE_MS, restore)


def _restart_on_it(simulation: Simulation, chance: random.Random) -> None:
    later(simulation, _AGE_MS - 500, lambda: _restart(simulation, chance))


_restart: Final[Fault] = restart(1_000, 2_000)


def _notice_nothing(patch: Patch) -> None:
    """A broker goes on when the revision of etcd is lower than it was."""
    patch.setattr(EtcdMetadataStore, "_fail", lambda *_: None)


def _start_on_older(patch: Patch) -> None:
    """A broker starts on a store that is older than what it has applied."""
    patch.setattr(applied_revision, "why_older", lambda *_: None)


STORE_BUGS: Final[dict[str, Planted]] = {
    "restored store taken for the old one": Planted(
        CHECK,
        1,
        settings("producer", "config", "config-2", store="etcd", replicas=3),
        _notice_nothing,
        every(_restore_store, _PERIOD_MS),
    ),
    "start on a restored store": Planted(
        CHECK,
        1,
        settings("producer", "config", "config-2", store="etcd", replicas=3),
        _start_on_older,
        every(together(_restore_store, _restart_on_it), _PERIOD_MS),
    ),
}
