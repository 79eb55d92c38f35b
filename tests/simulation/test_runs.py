"""Runs with faults violate nothing; planted bugs are caught and explained."""

from typing import Any

import pytest

from ottla.broker.cluster.membership import Membership
from ottla.metadata.changes import elections
from ottla.metadata.image import PartitionImage

from . import checks
from .__main__ import vary
from .disks import DiskState, HostStore
from .results import Settings
from .run import Simulation, run
from .world import SECOND_US

_PRODUCERS = ("producer",)


@pytest.mark.parametrize("seed", [1])
def test_clusters_of_one_broker(seed: int) -> None:
    result = run(seed, Settings(minutes=1.25, clusters=3))
    assert not result.violations, result.explain()
    assert (
        sum(number for name, number in result.counts.items() if name.startswith("fault:")) >= 4
    )  # a quiet run proves nothing
    assert result.counts["records acknowledged"] > 1_000


@pytest.mark.parametrize("seed", [4])
def test_one_cluster_of_three_brokers(seed: int) -> None:
    result = run(seed, Settings(minutes=0.8))
    assert not result.violations, result.explain()
    assert sum(number for name, number in result.counts.items() if name.startswith("fault:")) >= 4
    assert result.counts["records acknowledged"] > 1_000


def test_no_client_sees_an_error_of_a_clean_stop() -> None:
    result = run(1, Settings(minutes=0.8, parallel=1, gap_s=3.0, only_stops=True))
    assert not result.violations, result.explain()
    assert result.counts["clean stops checked"] >= 4
    assert result.counts["records acknowledged"] > 1_000


def _planted(seed: int) -> Simulation:
    simulation = Simulation(seed, Settings(minutes=1.25, parallel=0, roles=_PRODUCERS, replicas=1))
    simulation.world.call_at(10 * SECOND_US, simulation.brokers[0].lose_power)
    simulation.world.call_at(11 * SECOND_US, simulation.brokers[0].start)
    return simulation


def _seed(*, flushes: bool) -> int:
    return next(seed for seed in range(50) if Simulation(seed, Settings()).flushes is flushes)


def test_power_loss_without_flushes_may_lose_records() -> None:
    simulation = _planted(_seed(flushes=False))
    simulation.run()
    assert not simulation.violations, simulation.result(0.0).explain()
    assert any(replication.losses for replication in simulation.replication)
    history = simulation.history
    assert checks.nothing_lost(history.acknowledged, history.reads)


def test_power_loss_with_flushes_loses_nothing() -> None:
    simulation = _planted(_seed(flushes=True))
    simulation.run()
    assert not simulation.violations, simulation.result(0.0).explain()


def test_flush_that_does_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostStore, "flush", lambda store, path: None)
    simulation = _planted(_seed(flushes=True))
    simulation.run()
    assert "nothing lost" in {violation.check for violation in simulation.violations}
    text = simulation.result(0.0).explain()
    assert "VIOLATION nothing lost" in text
    assert "b1             loses power" in text
    assert f"repeat: scripts/simulate --seed {simulation.world.seed} " in text


def test_epoch_that_outlives_its_leader_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = elections._changed

    def in_the_same_epoch(partition: PartitionImage, members: Any, leader: int, epoch: int, **rest: bool) -> Any:
        return changed(partition, members, leader, partition.leader_epoch, **rest)

    async def begin_no_epochs(membership: Membership) -> None: ...

    monkeypatch.setattr(elections, "_changed", in_the_same_epoch)
    monkeypatch.setattr(Membership, "_begin_epochs", begin_no_epochs)
    simulation = _planted(_seed(flushes=False))
    simulation.run()
    assert {"one leader", "one content"} <= {violation.check for violation in simulation.violations}


def test_broker_that_never_starts_again_is_a_stall() -> None:
    simulation = Simulation(1, Settings(minutes=1.25, parallel=0, roles=_PRODUCERS, brokers=1))
    simulation.world.call_at(12 * SECOND_US, simulation.brokers[0].kill)
    simulation.run()
    checks = {violation.check for violation in simulation.violations}
    assert {"stalls bounded", "readable", "brokers serve"} <= checks


def test_group_is_assigned_after_the_clock_of_its_coordinator_was_set_back() -> None:
    simulation = Simulation(3, Settings(minutes=1.25, parallel=0, roles=("producer", "consumer"), brokers=1))
    broker, (member, *_) = simulation.brokers[0], [one for one in simulation.clients if one.role == "consumer"]
    simulation.world.call_at(12 * SECOND_US, lambda: broker.host.clock.set_wall(-1_200_000))
    simulation.world.call_at(13 * SECOND_US, member.kill)
    simulation.world.call_at(14 * SECOND_US, member.start)
    simulation.run()
    assert not simulation.violations, simulation.result(0.0).explain()


def test_full_disk_is_survived() -> None:
    simulation = Simulation(2, Settings(minutes=1.25, parallel=0, roles=_PRODUCERS, brokers=1))
    broker = simulation.brokers[0]
    simulation.world.call_at(10 * SECOND_US, lambda: broker.set_disk(DiskState.FULL))
    simulation.world.call_at(14 * SECOND_US, lambda: broker.set_disk(DiskState.GOOD))
    simulation.run()
    assert not simulation.violations, simulation.result(0.0).explain()


def test_many_seeds(pytestconfig: pytest.Config, dice_seed: int) -> None:
    """With `--soak N`, N runs of three virtual minutes on varied clusters."""
    rounds = pytestconfig.getoption("--soak")
    for seed in range(dice_seed, dice_seed + rounds if rounds > 1 else dice_seed):
        result = run(seed, vary(Settings(), seed))
        assert not result.violations, result.explain()
