"""One run of the simulation: a seed, brokers, clients, faults, a rest, an audit, the checks.

0 s            brokers start, topics are created, then clients start
4 s            first fault
end - 60 s     all faults end
end - 25 s     clients write nothing new
end            owners are recorded, then every partition is read; the run ends a few virtual seconds later
"""

import gc
import json
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.protocol.uuids import uuid_text

from . import checks
from .applications import (
    DERIVED,
    DERIVED_PREFIX,
    PLAIN,
    Administrator,
    Auditor,
    GroupMember,
    PlainProducer,
    SetUp,
    ShareMember,
    TransactionWriter,
    Transformer,
)
from .brokers import SimulatedBroker
from .checks import Violation
from .clients import Application, ClientProcess, Cluster, SimulatedClient
from .disks import WrittenBatch
from .faults import Faults
from .history import History, Outcome
from .hosts import Host
from .network import Network
from .world import SECOND_US, StoryLine, World

_FIRST_FAULT_US: Final = 4 * SECOND_US
_REST_US: Final = 60 * SECOND_US
_QUIET_US: Final = 25 * SECOND_US
_AUDIT_US: Final = 60 * SECOND_US
_MOST_DELIVERIES: Final = 5
_STALL_US: Final = 35 * SECOND_US
_AROUND_US: Final = 2 * SECOND_US
_MOST_LINES: Final = 60
_SHORTEST_MINUTES: Final = 1.25

Create = Callable[[ClientProcess], Application]
_ROLES: Final[tuple[tuple[tuple[str, Create], ...], ...]] = (
    (
        ("producer", PlainProducer),
        ("classic", partial(GroupMember, protocol="classic")),
        ("transactions", TransactionWriter),
        ("classic-2", partial(GroupMember, protocol="classic")),
    ),
    (
        ("producer", PlainProducer),
        ("transformer", Transformer),
        ("consumer", partial(GroupMember, protocol="consumer")),
        ("consumer-2", partial(GroupMember, protocol="consumer")),
    ),
    (
        ("producer", PlainProducer),
        ("share", ShareMember),
        ("admin", Administrator),
        ("share-2", ShareMember),
    ),
)
"""Groups of clients that need each other: the members of one share a cluster."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run.

    minutes   virtual time, the rest at the end included
    brokers   number of brokers
    clients   number of clients
    parallel  largest number of faults at a time
    """

    minutes: float = 3.0
    brokers: int = 3
    clients: int = 12
    parallel: int = 3


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
            f"--clients {one.clients} --parallel {one.parallel}"
        )

    def explain(self) -> str:
        """Describe the violations with the events around the first of each check."""
        lines = []
        shown: dict[str, None] = {}
        for violation in self.violations:
            lines.append(f"VIOLATION {violation.check}: {violation.text}")
            if violation.check not in shown:
                shown[violation.check] = None
                lines += [f"    {line}" for line in self._around(violation)]
        return "\n".join([*lines, f"repeat: {self.command}", self.summary()])

    def _around(self, violation: Violation) -> list[StoryLine]:
        """Return the story around a violation: lines that concern it, and faults and life of brokers near it."""
        near = [
            line
            for line in self.story
            if violation.at_us >= 0 and abs(line.at_us - violation.at_us) <= _AROUND_US and "#" not in line.text
        ]
        about = [line for line in self.story if any(word in f"{line.host} {line.text}" for word in violation.about)]
        lines = dict.fromkeys(
            sorted([*near[-_MOST_LINES // 2 :], *about[-_MOST_LINES // 2 :]], key=lambda one: one.at_us)
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


class _LogLines(logging.Handler):
    """Adds the log lines of brokers and clients to the story; an exception in one is a violation."""

    def __init__(self, world: World, failed: Callable[[str, str], None]) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self._failed = failed

    def emit(self, record: logging.LogRecord) -> None:
        self._world.remark(f"({record.name})", record.getMessage())
        if record.exc_info is not None and record.exc_info[0] is not None:
            self._failed(f"({record.name})", logging.Formatter().format(record))


@contextmanager
def _logging_to(handler: logging.Handler) -> Iterator[None]:
    logger = logging.getLogger("ottla")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


class Simulation:
    """Brokers and clients of one run."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.settings = settings
        self.world = World(seed)
        self.network = Network(self.world)
        self.history = History()
        self.violations: list[Violation] = []
        self.batches: list[WrittenBatch] = []
        self.end_us = int(max(settings.minutes, _SHORTEST_MINUTES) * 60 * SECOND_US)
        draw = self.world.random("settings")
        self.flushes = draw.random() < 0.6
        """True if every append is flushed before it is acknowledged: only then power may be lost."""
        configs = {"log.flush.interval.messages": "1"} if self.flushes else {}
        self.brokers = [self._broker(number, configs) for number in range(1, settings.brokers + 1)]
        self.clusters = [Cluster(f"c{broker.node_id}", (broker.name,)) for broker in self.brokers]
        self.clients = self._clients(draw)
        self.faults = Faults(
            self.world,
            self.network,
            self.brokers,
            self.clients,
            parallel=settings.parallel,
            power_loss=self.flushes,
        )
        self._waiting: dict[str, list[SimulatedClient]] = {}

    # -- set-up --

    def _host(self, name: str) -> Host:
        host = self.network.hosts[name] = Host(self.world, name, self.failed)
        return host

    def failed(self, host: str, text: str) -> None:
        """Record an unexpected exception."""
        self.world.remark(host, text)
        self.violations.append(Violation("no unexpected exception", f"{host}: {text}", (host,), self.world.now_us))

    def _broker(self, number: int, configs: dict[str, str]) -> SimulatedBroker:
        host = self._host(f"b{number}")

        def observe(topic_id: str, partition: int, epoch: int, base_offset: int, content: int) -> None:
            batch = WrittenBatch(topic_id, partition, epoch, base_offset, content, host.name, self.world.now_us)
            self.batches.append(batch)

        return SimulatedBroker(host, self.network, number, configs, observe)

    def _client(self, cluster: Cluster, role: str, create: Create) -> SimulatedClient:
        host = self._host(f"{role}-{cluster.name}")
        return SimulatedClient(host, self.network, cluster, self.history, create, self.end_us - _QUIET_US)

    def _clients(self, draw: random.Random) -> list[SimulatedClient]:
        """Spread the roles over the clusters; a smaller number of clients leaves the last role of each group out."""
        first = draw.randrange(len(self.clusters))
        homes = [self.clusters[(first + number) % len(self.clusters)] for number in range(len(_ROLES))]
        clients = []
        for place in range(max(map(len, _ROLES))):
            for number, roles in enumerate(_ROLES):
                if len(clients) < self.settings.clients:
                    role, create = roles[place]
                    same = sum(client.name.startswith(f"{role}-{homes[number].name}") for client in clients)
                    name = f"{role}-{homes[number].name}" if not same else f"{role}-{homes[number].name}-{same}"
                    host = self._host(name)
                    clients.append(
                        SimulatedClient(
                            host, self.network, homes[number], self.history, create, self.end_us - _QUIET_US
                        )
                    )
        return clients

    # -- phases --

    def run(self) -> None:
        """Run all phases and checks."""
        world = self.world
        for broker in self.brokers:
            broker.start()
        for cluster in self.clusters:
            self._client(
                cluster,
                "setup",
                lambda process, cluster=cluster: SetUp(process, partial(self._ready, cluster), 1),  # type: ignore[misc]
            ).start()
        self.faults.schedule(_FIRST_FAULT_US, self.end_us - _REST_US)
        world.run(self.end_us)
        for client in self.clients:
            if client.application is not None:
                client.application.at_rest()
        self._audit()
        self._check()

    def _ready(self, cluster: Cluster) -> None:
        self.world.tell(cluster.name, "topics exist")
        for client in self.clients:
            if client.cluster is cluster:
                client.start()

    def _audit(self) -> None:
        auditors = [self._client(cluster, "auditor", Auditor) for cluster in self.clusters]
        for auditor in auditors:
            auditor.start()
        self.world.run(self.end_us + _AUDIT_US)
        for auditor in auditors:
            if not auditor.is_done:
                text = f"{auditor.cluster.name} cannot be read {_AUDIT_US // SECOND_US} s after the end of the run"
                self.violations.append(Violation("readable", text, (auditor.name,)))

    # -- checks --

    def _check(self) -> None:
        history = self.history
        reads = history.reads
        uncommitted = frozenset(
            value for one in history.transactions if one.outcome is not Outcome.COMMITTED for value in one.values
        )
        self.violations += checks.nothing_lost(history.acknowledged, reads, uncommitted)
        self.violations += checks.nothing_duplicated(reads)
        self.violations += checks.nothing_invented(reads, history.sent)
        self.violations += checks.order_kept(history.acknowledged)
        self.violations += checks.one_content(self._comparable_batches())
        self.violations += checks.producer_ids_unique(history.identities)
        self.violations += checks.transactions_atomic(history.transactions, reads)
        self.violations += checks.topics_as_answered(
            history.topics, {cluster.name: self._topics_of(cluster) for cluster in self.clusters}
        )
        names = [client.name for client in self.clients if not client.name.startswith("classic-2")]
        self.violations += checks.stalls_bounded(names, history.steps, self.faults.last_end_us, _STALL_US)
        for cluster in self.clusters:
            self._check_cluster(cluster)

    def _check_cluster(self, cluster: Cluster) -> None:
        history, name = self.history, cluster.name
        commits = [commit for commit in history.commits if commit.partition.cluster == name]
        self.violations += checks.commits_advance(commits, {})
        prefix = f"{name}/"
        self.violations += checks.owned_once(
            history.ownership, {key: its for key, its in history.subscribed.items() if key.startswith(prefix)}
        )
        reads = [read for read in history.reads if read.partition.cluster == name]
        plain = [read for read in reads if read.partition.topic == PLAIN]
        if self._has(cluster, "transformer"):
            derived = [read.value for read in reads if read.partition.topic == DERIVED]
            self.violations += checks.transformed_once([read.value for read in plain], derived, DERIVED_PREFIX)
        if self._has(cluster, "share"):
            self.violations += checks.shares_accounted(
                [one for one in history.share_received if one.partition.cluster == name],
                [one for one in history.finished if one.partition.cluster == name],
                [(read.partition, read.offset) for read in plain],
                _MOST_DELIVERIES,
            )

    def _has(self, cluster: Cluster, role: str) -> bool:
        return any(client.cluster is cluster and client.name.startswith(role) for client in self.clients)

    def _topics_of(self, cluster: Cluster) -> list[str]:
        names: dict[str, None] = {}
        for broker in self.brokers:
            if broker.name in cluster.brokers and broker.server is not None:
                names |= dict.fromkeys(broker.server.broker.image.topics)
        return list(names)

    def _comparable_batches(self) -> list[WrittenBatch]:
        """Return the batches to compare.

        A broker with a metadata store of its own does not begin a new leader epoch after a loss of power yet: batches that
        were lost unflushed are written again in the same epoch, with other content.
        """
        return [] if self.flushes else self.batches


def run(seed: int, settings: Settings | None = None) -> Result:
    """Run the simulation with a seed."""
    settings = settings or Settings()
    begun = time.process_time()
    simulation = Simulation(seed, settings)
    world = simulation.world
    with _logging_to(_LogLines(world, simulation.failed)):
        simulation.run()
    cpu_seconds = time.process_time() - begun
    return Result(
        seed,
        settings,
        simulation.violations,
        world.trace_hash,
        world.now_us / SECOND_US,
        cpu_seconds,
        world.events,
        dict(world.counts),
        world.story,
    )
