"""Bugs about replaced disks that are planted into brokers: see `planted`."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ottla.broker.cluster import directories
from ottla.broker.cluster.directories import OwnDirectories
from ottla.broker.cluster.membership import Membership
from ottla.metadata.image import TopicImage

from .brokers import SimulatedBroker
from .planting import Fault, Patch, Planted, every, later, serving, settings
from .replaced_disks import CHECK
from .replication import Replication
from .run import Simulation

_CONFIGS: Final = (("min.insync.replicas", "1"),)
_ROUND_MS: Final = (22_000, 24_000)
Replace = Callable[[Replication, SimulatedBroker, random.Random], Callable[[], None]]
"""Prepares the replacement of a disk at the begin of a fault, and returns what replaces it."""


def _empty(replication: Replication, broker: SimulatedBroker, chance: random.Random) -> Callable[[], None]:
    del chance
    return partial(replication.replace_disk, broker)


def _one_of_two(replication: Replication, broker: SimulatedBroker, chance: random.Random) -> Callable[[], None]:
    return partial(replication.replace_disk, broker, chance.choice(broker.directories))


def _old_copy(replication: Replication, broker: SimulatedBroker, chance: random.Random) -> Callable[[], None]:
    del chance
    copied = broker.disk.store.copied()

    def restore() -> None:
        # The copy is that of an earlier process than the last one.
        replication.restore_disk(broker, copied)

    return restore


def _replace_last(prepare: Replace) -> Fault:
    """Replace the disk of the last member of the ISRs: two brokers fail, then it fails with its disk; the others return first.

    Without the bug the partitions wait for the operator, who elects a broker that has kept its log.
    """

    def fault(simulation: Simulation, chance: random.Random) -> None:
        broker = serving(simulation, chance)
        if broker is None:
            return
        (replication,) = simulation.replication
        others = [other for other in simulation.brokers if other is not broker]
        apply = prepare(replication, broker, chance)
        # A new process, so that the registered incarnation is not that of the copy.
        broker.kill()
        later(simulation, 100, partial(broker.restart_after, 0))
        for number, other in enumerate(others):
            later(simulation, 2500 + 1500 * number, other.kill)
            later(simulation, 13_000 + 50 * number, partial(other.restart_after, 0))

        def end() -> None:
            broker.kill()
            apply()

        later(simulation, 12_500, end)
        later(simulation, 15_000, partial(broker.restart_after, 0))
        later(simulation, 20_000, replication.elect_after_loss)

    return fault


def _compare_nothing(patch: Patch) -> None:
    """A broker never looks whether the assigned directories are there."""
    patch.setattr(OwnDirectories, "has_lost", lambda *_: False)


def _compare_as_a_whole(patch: Patch) -> None:
    """A broker compares its directories with its earlier ones as a whole: one of them is enough."""
    original = OwnDirectories.has_lost

    def has_lost(self: OwnDirectories, topic: TopicImage, index: int, node_id: int) -> bool:
        before = () if self._before is None else tuple(map(bytes.fromhex, self._before.directories))
        return not self._current.intersection(before) and original(self, topic, index, node_id)

    patch.setattr(OwnDirectories, "has_lost", has_lost)


def _trust_copies(patch: Patch) -> None:
    """A broker takes a directory with the right id for the one that it had."""
    patch.setattr(directories, "_incarnations", lambda *_: ())


def _forget_replacement(patch: Patch) -> None:
    """An unclean election does not know which replicas have begun again with an empty log."""
    original = Membership._plan_restart

    def restarted(self: Membership, chunk: Any, *, was_clean: bool) -> Any:
        planned = original(self, chunk, was_clean=was_clean)
        return [(topic, index, state._replace(replaced=())) for topic, index, state in planned]

    patch.setattr(Membership, "_plan_restart", restarted)


def _planted(plant: Callable[[Patch], None], prepare: Replace, number: int = 1) -> Planted:
    workload = replace(settings("producer", replicas=3, configs=_CONFIGS), directories=number)
    return Planted(CHECK, 1, workload, plant, every(_replace_last(prepare), _ROUND_MS))


DISK_BUGS: Final[dict[str, Planted]] = {
    "replaced disk taken for the old one": _planted(_compare_nothing, _empty),
    "one replaced directory of two unnoticed": _planted(_compare_as_a_whole, _one_of_two, 2),
    "old copy of a disk taken for the disk": _planted(_trust_copies, _old_copy),
    "empty log elected uncleanly before a kept one": _planted(_forget_replacement, _empty),
}
