"""An hour of a quiet cluster: every periodic duty is done, and a broker that neglects it is found."""

import pytest

from ottla.broker.cluster.controller import Controller
from ottla.broker.lifecycle import BrokerServer
from ottla.broker.upkeep.maintenance import Maintenance
from ottla.tasks.due_work import DueWork

from .quiet import DEAD_US, DUTIES, SHORTEST_MINUTES, TRANSACTION, QuietSimulation

_SEED = 2
"""Its transaction moves to a broker that was never asked for a coordinator."""


def _moved(seed: int) -> QuietSimulation:
    simulation = QuietSimulation(seed, 3.0, ["open-transaction"])
    simulation.run()
    return simulation


def test_a_quiet_cluster_does_its_duties() -> None:
    simulation = QuietSimulation(1)
    simulation.run()
    assert not simulation.violations, simulation.result(0.0).explain()
    assert simulation.seen == set(DUTIES)


@pytest.mark.replaces_code
def test_neglected_duties_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    is_neglecting = False
    original = DueWork._run

    def run(self: DueWork) -> None:
        if not is_neglecting:
            original(self)

    async def do_nothing(_: Maintenance) -> None: ...

    def neglect() -> None:  # groups cannot begin without the timers of their coordinators
        nonlocal is_neglecting
        is_neglecting = True

    monkeypatch.setattr(DueWork, "_run", run)
    simulation = QuietSimulation(1, SHORTEST_MINUTES)
    monkeypatch.setattr(Maintenance, "_retain", do_nothing)
    monkeypatch.setattr(Maintenance, "_expire_producers", do_nothing)
    monkeypatch.setattr(Controller, "_balance", lambda _: None)
    simulation.world.call_at(DEAD_US, neglect)
    simulation.run()
    assert {violation.check for violation in simulation.violations} >= set(DUTIES)


@pytest.mark.replaces_code
def test_a_coordinator_that_waits_for_its_first_request_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerServer, "_provide_coordination", lambda *_: None)
    assert TRANSACTION in {violation.check for violation in _moved(_SEED).violations}


def test_a_coordinator_without_requests_ends_transactions() -> None:
    simulation = _moved(_SEED)
    assert not simulation.violations, simulation.result(0.0).explain()
    assert TRANSACTION in simulation.seen
