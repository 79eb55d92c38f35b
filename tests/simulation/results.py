"""Settings and outcome of a run, and its explanation: the events around each violated check."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .checks import Violation
from .world import SECOND_US, StoryLine

_BEFORE_US: Final = 5 * SECOND_US
_AFTER_US: Final = 20 * SECOND_US
_MOST_LINES: Final = 60
_MOST_OF_A_CHECK: Final = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run.

    minutes   virtual time, the rest at the end included
    brokers   number of brokers
    clients   number of clients
    parallel  largest number of faults at a time
    gap_s     longest time from the begin of a fault to the next one, in seconds
    length    factor of the durations of faults
    only_stops  the only faults are clean stops: no client sees an error
    replicas  replication factor of all topics, at most the number of brokers of a cluster
    clusters  number of clusters; brokers and clients are spread over them
    flushes   whether every append is flushed before it is acknowledged; None: drawn from the seed
    configs   configs of the brokers
    directories  number of log directories of a broker
    roles     names of clients to start; all by default
    store     metadata store: memory or etcd
    """

    minutes: float = 3.0
    brokers: int = 3
    clients: int = 17
    parallel: int = 3
    replicas: int = 3
    clusters: int = 1
    roles: tuple[str, ...] = ()
    store: str = "memory"
    flushes: bool | None = None
    configs: tuple[tuple[str, str], ...] = ()
    gap_s: float = 5.0
    length: float = 1.0
    only_stops: bool = False
    directories: int = 1


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a run.

    trace_hash  equal for two runs exactly if everything happened in the same way
    """

    seed: int
    settings: Settings
    violations: list[Violation]
    trace_hash: str
    virtual_seconds: float
    cpu_seconds: float
    events: int
    counts: Mapping[str, int]
    story: list[StoryLine]

    @property
    def speed(self) -> float:
        """Return the virtual time for each unit of CPU time."""
        return self.virtual_seconds / self.cpu_seconds if self.cpu_seconds else 0.0

    def summary(self) -> str:
        """Describe the run in one line."""
        counts = ", ".join(f"{number} {name}" for name, number in sorted(self.counts.items()))
        return (
            f"seed {self.seed}: {'FAILED' if self.violations else 'ok'}, {self.virtual_seconds:.0f} virtual s, "
            f"{self.events} events, {self.speed:.0f} virtual hours per CPU hour, trace {self.trace_hash[:16]}; {counts}"
        )

    @property
    def command(self) -> str:
        """Return the command that repeats the run."""
        one = self.settings
        return (
            f"scripts/simulate --seed {self.seed} --minutes {one.minutes:g} --brokers {one.brokers} "
            f"--clients {one.clients} --parallel {one.parallel} --replicas {one.replicas} --clusters {one.clusters}"
            + (f" --roles {','.join(one.roles)}" if one.roles else "")
            + (f" --store {one.store}" if one.store != "memory" else "")
            + (f" --gap {one.gap_s:g}" if one.gap_s != Settings().gap_s else "")
            + (f" --length {one.length:g}" if one.length != Settings().length else "")
            + (" --only-stops" if one.only_stops else "")
            + (f" --directories {one.directories}" if one.directories > 1 else "")
        )

    def explain(self) -> str:
        """Describe the violations with the events around the first of each check."""
        by_check: dict[str, list[Violation]] = {}
        for violation in self.violations:
            by_check.setdefault(violation.check, []).append(violation)
        lines = []
        for check, its in by_check.items():
            lines += [f"VIOLATION {check}: {violation.text}" for violation in its[:_MOST_OF_A_CHECK]]
            if len(its) > _MOST_OF_A_CHECK:
                lines.append(f"VIOLATION {check}: {len(its) - _MOST_OF_A_CHECK} more")
            lines += [f"    {line}" for line in self._around(its[0])]
        return "\n".join([*lines, f"repeat: {self.command}", self.summary()])

    def _around(self, violation: Violation) -> list[StoryLine]:
        """Return the story around a violation: lines that concern it, and faults and life of brokers near it."""
        hosts = {"faults", *(f"b{number}" for number in range(1, self.settings.brokers + 1))}
        near = [
            line
            for line in self.story
            if violation.at_us >= 0
            and violation.at_us - _BEFORE_US <= line.at_us <= violation.at_us + _AFTER_US
            and (line.host in hosts or (line.host.startswith("(") and "topic scratch" not in line.text))
        ]
        about = [line for line in self.story if any(word in f"{line.host} {line.text}" for word in violation.about)]
        lines = dict.fromkeys(
            sorted([*near[: _MOST_LINES // 2], *about[-_MOST_LINES // 2 :]], key=lambda one: one.at_us)
        )
        return list(lines)

    def as_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(
            {
                "seed": self.seed,
                "violations": [violation._asdict() for violation in self.violations],
                "trace": self.trace_hash,
                "virtual_seconds": self.virtual_seconds,
                "cpu_seconds": round(self.cpu_seconds, 3),
                "events": self.events,
                "counts": dict(sorted(self.counts.items())),
                "command": self.command,
            }
        )
