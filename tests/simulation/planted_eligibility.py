"""Bugs of eligible leader replicas (KIP-966) that are planted into brokers: see `planted`."""

from collections.abc import Sequence
from typing import Any, Final

from ottla.metadata.changes import elections
from ottla.metadata.image import PartitionImage
from ottla.replication.leader.leadership import Follower, Leadership

from .planted_replication import cut_from_peers, kill_two
from .planting import Patch, Planted, every, serving, settings

_CONFIGS: Final = (("min.insync.replicas", "2"), ("replica.lag.time.max.ms", "1000"))


def _isolate(simulation: Any, chance: Any) -> None:
    """Cut a broker off from the others, until its leaders remove it from the ISRs."""
    broker = serving(simulation, chance)
    if broker is not None:
        cut_from_peers(simulation, broker, chance.randint(2000, 4000))


def _keep_unclean_members(patch: Patch) -> None:
    """A member of ISR or ELR that stopped uncleanly enters the ELR, or stays in it."""
    original = elections._reduced

    def reduced(partition: PartitionImage, isr: tuple[int, ...], unclean_nodes: Sequence[int]) -> Any:
        del unclean_nodes
        return original(partition, isr, ())

    patch.setattr(elections, "_reduced", reduced)


def _commit_alone(patch: Patch) -> None:
    """The high watermark advances while the ISR is smaller than min.insync.replicas."""
    original = Leadership.committed

    def committed(self: Leadership, local_end: int) -> int:
        needed, self.min_isr = self.min_isr, 1
        try:
            return original(self, local_end)
        finally:
            self.min_isr = needed

    patch.setattr(Leadership, "committed", committed)


def _use_config_early(patch: Patch) -> None:
    """The leader uses a changed min.insync.replicas before the state of the partition has it."""
    original = Leadership._take

    def take(self: Leadership, state: PartitionImage, min_isr: int, next_min_isr: int) -> None:
        original(self, state, min_isr, next_min_isr)
        self.min_isr = min(min_isr, len(state.replicas))

    patch.setattr(Leadership, "_take", take)


def _add_lagging_followers(patch: Patch) -> None:
    """A follower joins the ISR for what is committed, although it lags, and is removed at once."""

    def may_join(self: Leadership, follower: Follower, leader_end: int, high_watermark: int) -> bool:
        del leader_end
        return follower.end_offset >= max(high_watermark, self.epoch_start) and self._is_usable(follower)

    patch.setattr(Leadership, "_may_join", may_join)


ELIGIBILITY_BUGS: Final[dict[str, Planted]] = {
    "unclean member kept in the ELR": Planted(
        "ELR registered",
        1,
        settings("producer", replicas=3, configs=_CONFIGS),
        _keep_unclean_members,
        every(kill_two, (6000, 8000)),
    ),
    "high watermark below min.insync.replicas": Planted(
        "high watermark replicated",
        1,
        settings("producer", "hasty", replicas=3, configs=_CONFIGS),
        _commit_alone,
        every(_isolate, (4000, 6000)),
    ),
    "min.insync.replicas ahead of the state": Planted(
        "high watermark replicated",
        6,
        settings("producer", "hasty", "eligibility", replicas=3, configs=_CONFIGS),
        _use_config_early,
        every(_isolate, (2000, 4000), (50, 400)),
    ),
    "follower added although it lags": Planted(
        "ISR settled",
        1,
        settings("producer", "hasty", replicas=3, configs=_CONFIGS),
        _add_lagging_followers,
        every(_isolate, (4000, 6000)),
    ),
}
