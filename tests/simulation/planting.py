"""Support for planted bugs: settings of a run, and faults that are drawn from its seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import pytest

from ottla.protocol import plan

from .brokers import SimulatedBroker
from .metadata import LATENCY_MS
from .results import Settings
from .run import Simulation
from .world import MS_US, SECOND_US

_MINUTES: Final = 1.25
_FIRST_US: Final = 6 * SECOND_US
_LAST_US: Final = 35 * SECOND_US
"""Faults begin until then; the run ends at 75 s."""
Patch = pytest.MonkeyPatch
Fault = Callable[[Simulation, random.Random], None]


@dataclass(frozen=True, slots=True)
class Planted:
    """Bug.

    check       the check that finds it
    seed        the first seed whose run violated it
    settings    workload
    plant       replaces the correct code
    faults      schedules faults
    conditions  replaces code in the run without the bug as well: other settings, and faults inside brokers
    """

    check: str
    seed: int
    settings: Settings
    plant: Callable[[Patch], None]
    faults: Callable[[Simulation], None]
    conditions: Callable[[Patch], None] = lambda _: None

    def first_found(self, first: int, count: int) -> int | None:
        """Return the first of `count` seeds whose run with the bug violates the check."""
        for seed in range(first, first + count):
            if self.check in {violation.check for violation in self.run(seed, with_bug=True).violations}:
                return seed
        return None

    def run(self, seed: int, *, with_bug: bool) -> Simulation:
        """Run with a seed; returns the simulation with its violations."""
        if plan.COMPILED:
            raise SystemExit("compiled modules do not look up what a planted bug replaces: set PYTHONPATH=src")
        with Patch.context() as patch:
            self.conditions(patch)
            if with_bug:
                self.plant(patch)
            simulation = Simulation(seed, self.settings)
            self.faults(simulation)
            simulation.run()
        return simulation


def settings(
    *roles: str,
    store: str = "memory",
    replicas: int = 1,
    flushes: bool | None = None,
    configs: tuple[tuple[str, str], ...] = (),
) -> Settings:
    """Return the settings of a short run without drawn faults."""
    return Settings(
        minutes=_MINUTES, parallel=0, roles=roles, store=store, replicas=replicas, flushes=flushes, configs=configs
    )


# -- faults --


def every(
    fault: Fault, period_ms: tuple[int, int], latency_ms: tuple[int, int] = LATENCY_MS
) -> Callable[[Simulation], None]:
    """Repeat a fault, on a store with a latency."""

    def schedule(simulation: Simulation) -> None:
        world = simulation.world
        chance = world.random("planted")

        def begin() -> None:
            if world.now_us < _LAST_US:
                fault(simulation, chance)
                world.call_after(chance.randint(*period_ms) * MS_US, begin)

        def set_latency(value_ms: tuple[int, int]) -> None:
            for store in simulation.stores:
                store.latency_ms = value_ms

        world.call_at(_FIRST_US, begin)
        if latency_ms != LATENCY_MS:
            simulation.faults.intervals.append((_FIRST_US, _LAST_US))
            world.call_at(_FIRST_US, partial(set_latency, latency_ms))
        world.call_at(_LAST_US, partial(set_latency, LATENCY_MS))

    return schedule


def serving(simulation: Simulation, chance: random.Random) -> SimulatedBroker | None:
    """Choose a broker that serves requests."""
    them = [broker for broker in simulation.brokers if broker.is_serving]
    return chance.choice(them) if them else None


def later(simulation: Simulation, delay_ms: int, action: Callable[[], None]) -> None:
    simulation.world.call_after(delay_ms * MS_US, action)


def restart(shortest_ms: int, longest_ms: int, *, clean: bool = False, kills: bool = True) -> Fault:
    """Kill or stop a broker, and start it again after a time; `clean` lets it stop some brokers, and without `kills` all."""

    def fault(simulation: Simulation, chance: random.Random) -> None:
        broker = serving(simulation, chance)
        if broker is not None:
            broker.stop() if clean and (not kills or chance.random() < 0.5) else broker.kill()
            later(simulation, chance.randint(shortest_ms, longest_ms), partial(broker.restart_after, 0))

    return fault


def cut_from_store(shortest_ms: int, longest_ms: int) -> Fault:
    """Cut a broker off from the store for a time."""

    def fault(simulation: Simulation, chance: random.Random) -> None:
        broker = chance.choice(simulation.brokers)
        broker.store.cut(broker.name)
        later(simulation, chance.randint(shortest_ms, longest_ms), partial(broker.store.heal, broker.name))

    return fault


def together(*faults: Fault) -> Fault:
    def fault(simulation: Simulation, chance: random.Random) -> None:
        for one in faults:
            one(simulation, chance)

    return fault


def restart_client(simulation: Simulation, chance: random.Random) -> None:
    client = chance.choice(simulation.clients)
    client.kill()
    later(simulation, 100, client.start)
