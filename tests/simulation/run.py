"""One run of the simulation: a seed, brokers, clients, faults, a rest, an audit, the checks.

0 s            brokers start, topics are created, then clients start
4 s            first fault
end - 60 s     all faults end
end - 25 s     clients write nothing new
end            owners are recorded, then every partition is read; the run ends a few virtual seconds later
"""

import gc
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

from ottla.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC, Image, TopicImage
from ottla.metadata.image.deltas import image_from
from ottla.metadata.store import keys

from . import checks
from .applications import (
    DERIVED,
    DERIVED_PREFIX,
    HASTY,
    LEDGER,
    PLAIN,
    TRANSFORM_GROUP,
    Administrator,
    Configurator,
    GroupMember,
    HastyProducer,
    PlainProducer,
    SetUp,
    ShareMember,
    TransactionWriter,
    Transformer,
)
from .auditor import Auditor
from .brokers import SimulatedBroker
from .checks import Leadership, LoadedCoordinator, Violation
from .clean_stops import errors_of_stops
from .clients import Application, ClientProcess, Cluster, SimulatedClient
from .disks import WrittenBatch
from .eligibility import Eligibility
from .etcd_host import EtcdStoreHost
from .faults import Faults
from .history import Commit, History, Outcome, PartitionKey, Read
from .hosts import Host
from .metadata import StoreHost, elections
from .network import Network
from .older_stores import OlderStores
from .reassignments import Reassigner, logs_of_replicas, reassignments_end
from .replication import Replication, at_rest
from .results import Result, Settings
from .world import SECOND_US, World

_FIRST_FAULT_US: Final = 4 * SECOND_US
_REST_US: Final = 60 * SECOND_US
_QUIET_US: Final = 25 * SECOND_US
_AUDIT_US: Final = 60 * SECOND_US
_MOST_DELIVERIES: Final = 5
_STALL_US: Final = 35 * SECOND_US
_SHORTEST_MINUTES: Final = 1.25
_START_US: Final = 3 * SECOND_US
_SAMPLE_US: Final = SECOND_US // 4
_REPLICATION_FACTORS: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)

_OF_TRANSACTIONS: Final = frozenset((TRANSACTION_STATE_TOPIC, OFFSETS_TOPIC, LEDGER, DERIVED))
"""Topics which take part in transactions: when one of them loses records, a transaction may stay open for ever, and a producer
may get an epoch again that was used before. Apache Kafka leaves both to the operator, too."""
_SHARE_STATE: Final = frozenset((SHARE_STATE_TOPIC, OFFSETS_TOPIC))
"""Topics with the state of share groups: without it the partitions of a group cannot be read until an operator initializes
them again, as in Apache Kafka."""
_SHARED: Final = _SHARE_STATE | {PLAIN}
"""If a shared log itself has lost its end, the start offset of the group lies beyond the log until as many records have come
again, as in Apache Kafka, whose groups follow only the start of the log."""
_DEPENDS_ON: Final = {
    "transactions": _OF_TRANSACTIONS,
    "transformer": _OF_TRANSACTIONS,
    "share": _SHARED,
    "share-2": _SHARED,
}
"""Topics by the roles of clients that may stall after a loss in them."""
_WITH_OWN_ERRORS: Final = ("hasty", "admin", "reassign", "eligibility")
"""Roles that are out of place where every error of a client is a violation: a producer that gives up early, an administrator
that uses topics before all brokers have them, one that leaves partitions with less than min.insync.replicas, and one that
raises it."""
_COUNTED: Final = {
    " is truncated from ": "truncations",
    ", is replaced from ": "logs replaced",
    "is fetched again": "refetches",
}
"""Phrases of log lines that are counted, by name."""
Create = Callable[[ClientProcess], Application]
_ROLES: Final[tuple[tuple[tuple[str, Create], ...], ...]] = (
    (
        ("producer", PlainProducer),
        ("classic", partial(GroupMember, protocol="classic")),
        ("transactions", TransactionWriter),
        ("classic-2", partial(GroupMember, protocol="classic")),
        ("hasty", HastyProducer),
    ),
    (
        ("producer", PlainProducer),
        ("transformer", Transformer),
        ("consumer", partial(GroupMember, protocol="consumer")),
        ("consumer-2", partial(GroupMember, protocol="consumer")),
        ("eligibility", Eligibility),
    ),
    (
        ("producer", PlainProducer),
        ("share", ShareMember),
        ("admin", Administrator),
        ("share-2", ShareMember),
        ("config", Configurator),
        ("config-2", Configurator),
        ("reassign", Reassigner),
    ),
)
"""Groups of clients that need each other: the members of one share a cluster."""


class _LogLines(logging.Handler):
    """Adds the log lines of brokers and clients to the story; an exception in one is a violation."""

    def __init__(self, world: World, failed: Callable[[str, str], None]) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self._failed = failed

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._world.remark(f"({record.name})", text)
        for phrase, name in _COUNTED.items():
            if phrase in text:
                self._world.count(name)
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
        self.flushes = draw.random() < 0.6 if settings.flushes is None else settings.flushes
        """True if every append is flushed before it is acknowledged: only then all brokers may lose power together."""
        configs = {"log.flush.interval.messages": "1"} if self.flushes else {}
        count = min(settings.clusters, settings.brokers)
        self.replicas = min(settings.replicas, settings.brokers // count)
        configs |= {name: str(self.replicas) for name in _REPLICATION_FACTORS}
        configs["min.insync.replicas"] = configs["transaction.state.log.min.isr"] = str(
            draw.choice((1, 1, 2)) if self.replicas > 2 else 1
        )
        configs["replica.lag.time.max.ms"] = draw.choice(("3000", "10000", "30000"))
        configs.update(settings.configs)
        kind = EtcdStoreHost if settings.store == "etcd" else StoreHost
        self.stores = [kind(self._host(f"store-c{number}"), f"c{number}") for number in range(1, count + 1)]
        self.brokers = [
            self._broker(number, self.stores[number % count], configs) for number in range(1, settings.brokers + 1)
        ]
        self.clusters = [
            Cluster(store.cluster, tuple(broker.name for broker in self.brokers if broker.store is store))
            for store in self.stores
        ]
        self.clients = self._clients(draw)
        self.older_stores = OlderStores(self.world, self.stores, self.brokers)
        self.faults = Faults(
            self.world,
            self.network,
            self.stores,
            self.brokers,
            self.clients,
            self.older_stores,
            parallel=settings.parallel,
            gap_s=settings.gap_s,
            length=settings.length,
            power_loss=self.flushes or self.replicas > 1,
            all_power=self.flushes,
            only_stops=settings.only_stops,
        )
        self.replication = [self._observed(store) for store in self.stores]
        self.faults.observe(self.replication)
        self.leaderships: dict[Leadership, None] = {}
        self.high_watermarks: list[tuple[str, int, int, str, int]] = []

    # -- set-up --

    def _observed(self, store: StoreHost) -> Replication:
        """Observe the replicas of a cluster."""
        brokers = [broker for broker in self.brokers if broker.store is store]
        replication = Replication(self.world, brokers)
        store.observe(replication.applied)
        for broker in brokers:
            broker.served = replication.claim_all
            broker.left = replication.stops.left
            if not self.flushes:
                broker.lost_power = replication.lost_page_cache
        return replication

    def _host(self, name: str) -> Host:
        host = self.network.hosts[name] = Host(self.world, name, self.failed)
        return host

    def failed(self, host: str, text: str) -> None:
        """Record an unexpected exception."""
        self.world.remark(host, text)
        self.violations.append(Violation("no unexpected exception", f"{host}: {text}", (host,), self.world.now_us))

    def _broker(self, number: int, store: StoreHost, configs: dict[str, str]) -> SimulatedBroker:
        host = self._host(f"b{number}")

        def observe(
            topic_id: str, partition: int, epoch: int, base_offset: int, content: int, next_offset: int
        ) -> None:
            where = host.name, self.world.now_us
            self.batches.append(WrittenBatch(topic_id, partition, epoch, base_offset, content, *where, next_offset))

        return SimulatedBroker(host, self.network, store, number, configs, observe, self.settings.directories)

    def _client(self, cluster: Cluster, role: str, create: Create, same: int = 0) -> SimulatedClient:
        """Create a client; `same` is the number of clients of this role that the cluster has already."""
        host = self._host(f"{role}-{cluster.name}" + (f"-{same}" if same else ""))
        until_us = self.end_us - _QUIET_US
        return SimulatedClient(host, role, self.network, cluster, self.history, create, until_us, same)

    def _clients(self, draw: random.Random) -> list[SimulatedClient]:
        """Spread the roles over the clusters; a smaller number of clients leaves the last role of each group out."""
        first = draw.randrange(len(self.clusters))
        homes = [self.clusters[(first + number) % len(self.clusters)] for number in range(len(_ROLES))]
        clients: list[SimulatedClient] = []
        for place in range(max(map(len, _ROLES))):
            for home, roles in zip(homes, _ROLES, strict=True):
                if place >= len(roles):
                    continue
                role, create = roles[place]
                is_included = not self.settings.roles or role.removesuffix("-2") in self.settings.roles
                is_included = is_included and not (self.settings.only_stops and role in _WITH_OWN_ERRORS)
                if is_included and len(clients) < self.settings.clients:
                    same = sum(
                        client.role.removesuffix("-2") == role.removesuffix("-2") and client.cluster is home
                        for client in clients
                    )
                    clients.append(self._client(home, role, create, same))
        return clients

    # -- phases --

    def run(self) -> None:
        """Run all phases and checks."""
        with _logging_to(_LogLines(self.world, self.failed)):
            self._run()

    def result(self, cpu_seconds: float) -> Result:
        """Return the outcome of a run."""
        world = self.world
        return Result(
            world.seed,
            self.settings,
            self.violations,
            world.trace_hash,
            world.now_us / SECOND_US,
            cpu_seconds,
            world.events,
            dict(world.counts),
            world.story,
        )

    def _run(self) -> None:
        world = self.world
        for broker in self.brokers:
            broker.start()
        for cluster in self.clusters:
            self._client(
                cluster,
                "setup",
                lambda process, cluster=cluster: SetUp(process, partial(self._ready, cluster), self.replicas),  # type: ignore[misc]
            ).start()
        world.call_after(_SAMPLE_US, self._sample)
        self.faults.schedule(_FIRST_FAULT_US, self.end_us - _REST_US)
        world.run(self.end_us)
        for client in self.clients:
            if client.application is not None:
                client.application.at_rest()
        self._audit()
        self._check()

    def _sample(self) -> None:
        """Record who leads each partition, and its high watermark, as the brokers themselves have it."""
        for broker in self.brokers:
            if broker.server is None or not broker.is_serving:
                continue
            replication = self.replication[self.stores.index(broker.store)]
            for partition in broker.server.broker.replicas.all():
                replication.claim(broker, partition)
                if partition.leader_id == broker.node_id:
                    where = (partition.topic_id.hex(), partition.index, partition.leader_epoch)
                    leadership = Leadership(*where, broker.node_id, broker.incarnation)
                    self.leaderships[leadership] = None
                    self.high_watermarks.append((*where, broker.name, partition.log.high_watermark))
                    replication.sample(broker, partition, leadership)
        self.older_stores.sample()
        self.world.call_after(_SAMPLE_US, self._sample)

    def _ready(self, cluster: Cluster) -> None:
        self.world.tell(cluster.name, "topics exist")
        for client in self.clients:
            if client.cluster is cluster:
                client.start()

    def _audit(self) -> None:
        hanging = self._hanging(self._lossy())
        auditors = [
            self._client(cluster, "auditor", partial(Auditor, requires_stable=cluster.name not in hanging))
            for cluster in self.clusters
        ]
        for auditor in auditors:
            auditor.start()
        while self.world.now_us < self.end_us + _AUDIT_US and not all(auditor.is_done for auditor in auditors):
            self.world.run(self.world.now_us + SECOND_US)
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
        lossy = self._lossy()
        hanging = self._hanging(lossy)
        # Clients may go on while the final reading is made.
        acknowledged = [one for one in history.acknowledged if lossy.get(one.partition, -1) < one.at_us <= self.end_us]
        repeated = checks.under_repeated_epochs(
            (one for one in acknowledged if one.partition.cluster in hanging), history.identities
        )
        outcomes_lost = checks.with_lost_outcomes(
            history.transactions,
            {key: until_us for key, until_us in lossy.items() if key.topic == TRANSACTION_STATE_TOPIC},
        )
        excused = uncommitted | repeated | outcomes_lost
        self.violations += checks.nothing_lost(acknowledged, [*reads, *history.blocked], excused)
        self.violations += checks.transactions_end(history.open_transactions, hanging)
        # Producers with acks=1 are not idempotent.
        # A group begins again without its committed offsets, and where they lie beyond the end of what was lost.
        begun_again = hanging | {partition.cluster for partition in lossy if partition.topic == PLAIN}
        self.violations += checks.nothing_duplicated(
            [
                read
                for read in reads
                if read.partition not in lossy
                and read.partition.topic != HASTY
                and (read.partition.topic != DERIVED or read.partition.cluster not in begun_again)
            ]
        )
        self.violations += checks.nothing_invented(reads, history.sent)
        self.violations += checks.order_kept([one for one in acknowledged if one.partition not in lossy])
        self.violations += checks.one_content(self.batches)
        self.violations += checks.one_leader(self.leaderships)
        self.violations += self.older_stores.violations
        self.world.counts["leader epochs"] = len({(one.topic_id, one.partition, one.epoch) for one in self.leaderships})
        self.world.counts["metadata revisions"] = sum(len(store.shared.revisions) for store in self.stores)
        self.violations += checks.high_watermarks_monotonic(self.high_watermarks)
        self._check_metadata()
        self._check_replicas()
        damaged = frozenset(partition.cluster for partition in lossy if partition.topic != HASTY)
        self.world.counts["runs with losses"] = len(damaged)
        self.violations += checks.producer_ids_unique(one for one in history.identities if one.cluster not in damaged)
        self.violations += checks.transactions_atomic(
            # Those that end later may do so between the readings of two partitions.
            [one for one in history.transactions if one.cluster not in damaged and one.ended_us <= self.end_us],
            reads,
        )
        self.violations += checks.topics_as_answered(
            history.topics, {cluster.name: self._topics_of(cluster) for cluster in self.clusters}
        )
        lost = {cluster.name: {one.topic for one in lossy if one.cluster == cluster.name} for cluster in self.clusters}
        names = [
            client.name
            for client in self.clients
            if not lost[client.cluster.name] & _DEPENDS_ON.get(client.role, frozenset())
        ]
        self.violations += checks.stalls_bounded(names, history.steps, self.faults.last_end_us, _STALL_US)
        if self.settings.only_stops:
            self.violations += errors_of_stops(history.errors)
        for cluster in self.clusters:
            self._check_cluster(cluster, is_damaged=cluster.name in damaged, is_hanging=cluster.name in hanging)

    def _hanging(self, lossy: Iterable[PartitionKey]) -> frozenset[str]:
        """Return the clusters in which a transaction may stay open for ever."""
        return frozenset(partition.cluster for partition in lossy if partition.topic in _OF_TRANSACTIONS)

    def _lossy(self) -> dict[PartitionKey, int]:
        """Return the partitions that may have lost records, and the time until which acknowledgements are not relied on."""
        lossy: dict[PartitionKey, int] = {}
        for store, replication in zip(self.stores, self.replication, strict=True):
            names = {topic.id.hex(): topic.name for topic in image_from(store.snapshot()).topics.values()}
            for loss in replication.losses:
                if loss.topic_id not in names:
                    continue  # a topic that was deleted
                partition = PartitionKey(store.cluster, names[loss.topic_id], loss.partition)
                lossy[partition] = max(lossy.get(partition, -1), loss.until_us)
        return lossy

    def _check_replicas(self) -> None:
        """Check what was observed of replicas during the run, and compare them at rest."""
        for store, replication in zip(self.stores, self.replication, strict=True):
            replication.compare_claims()
            self.violations += replication.violations + replication.stops.violations
            brokers = [broker for broker in self.brokers if broker.store is store and broker.server is not None]

            def violated(check: str, text: str) -> None:
                self.violations.append(Violation(check, text, (text.split(":")[0],)))

            image = image_from(store.snapshot())
            self.violations += reassignments_end(image)
            if len(brokers) == sum(broker.store is store for broker in self.brokers):
                logs = at_rest(brokers, image, violated)
                self.violations += checks.replicas_equal(logs)
                self.violations += logs_of_replicas(brokers, image)

    def _check_cluster(self, cluster: Cluster, *, is_damaged: bool, is_hanging: bool) -> None:
        history, name = self.history, cluster.name
        # Members go on to commit while the committed offsets are read.
        commits = [one for one in history.commits if one.partition.cluster == name and one.done_us <= self.end_us]
        if not is_damaged:
            self.violations += checks.commits_advance(commits, history.final_commits)
        subscribed = {key: its for key, its in history.subscribed.items() if key.startswith(f"{name}/")}
        if is_hanging:
            subscribed.pop(f"{name}/{TRANSFORM_GROUP}", None)
        self.violations += checks.owned_once(history.ownership, subscribed)
        if is_damaged:
            return
        reads = [read for read in history.reads if read.partition.cluster == name]
        plain = [read for read in reads if read.partition.topic == PLAIN]
        if self._has(cluster, "transformer"):
            derived = [read.value for read in reads if read.partition.topic == DERIVED]
            self.violations += checks.transformed_once(
                [read.value for read in plain], derived, DERIVED_PREFIX, _not_reached(plain, commits)
            )
        if self._has(cluster, "share"):
            self.violations += checks.shares_accounted(
                [one for one in history.share_received if one.partition.cluster == name],
                [one for one in history.finished if one.partition.cluster == name],
                [(read.partition, read.offset) for read in plain],
                _MOST_DELIVERIES,
            )

    def _has(self, cluster: Cluster, role: str) -> bool:
        return any(client.cluster is cluster and client.role == role for client in self.clients)

    def _topics_of(self, cluster: Cluster) -> list[str]:
        names: dict[str, None] = {}
        for broker in self.brokers:
            if broker.name in cluster.brokers and broker.server is not None:
                names |= dict.fromkeys(broker.server.broker.image.topics)
        return list(names)

    def _configs(self) -> dict[tuple[str, str, str], str]:
        """Return the configs of topics, as the stores have them."""
        return {
            (store.cluster, topic.name, config): value
            for store in self.stores
            for topic in image_from(store.snapshot()).topics.values()
            for config, value in topic.configs.items()
        }

    def _written_configs(self) -> dict[tuple[str, str], list[Mapping[str, str]]]:
        """Return the configs of the topic whose configs clients change, after each revision of the stores."""
        written: dict[tuple[str, str], list[Mapping[str, str]]] = {}
        for store in self.stores:
            for entry in (entry for revision in store.revisions() for entry in revision.entries):
                if entry.key == keys.TOPICS + LEDGER and entry.value is not None:
                    topic = TopicImage.decoded(entry.key, LEDGER, entry.value)
                    written.setdefault((store.cluster, LEDGER), []).append(topic.configs)
        return written

    def _check_metadata(self) -> None:
        serving = [broker for broker in self.brokers if broker.server is not None and broker.is_serving]
        for store in self.stores:
            image = image_from(store.snapshot())
            images = {
                broker.name: _texts(broker.server.broker.image)
                for broker in serving
                if broker.server is not None and broker.store is store
            }
            self.violations += checks.images_equal(_texts(image), images)
            topic_ids = [topic_id.hex() for topic_id in image.topics_by_id]
            nodes = {broker.name: broker.node_id for broker in self.brokers}
            leaders = elections(store.revisions(), nodes)
            self.violations += checks.leaders_live(leaders) + checks.elected_by_controller(leaders)
            self.violations += checks.no_orphans(store.values(), topic_ids, keys.PARTITIONS)
        self.violations += checks.configs_as_answered(self.history.configs, self._configs())
        self.violations += checks.configs_kept(self._written_configs())
        self.violations += checks.coordinators_current(
            one for broker in serving for one in _loaded_coordinators(broker)
        )
        starts = [start for broker in self.brokers for start in broker.starts]
        self.violations += checks.starts_bounded(starts, self.faults.intervals, _START_US, self.end_us)
        self.violations += [
            Violation("brokers serve", f"{broker.name} does not serve at the end", (broker.name,))
            for broker in self.brokers
            if broker not in serving
        ]


def _not_reached(source: Iterable[Read], commits: Iterable[Commit]) -> frozenset[str]:
    """Return the values that the transformer has not committed by the end: it may be far behind after many faults."""
    reached: dict[PartitionKey, int] = {}
    for commit in commits:
        if commit.group == TRANSFORM_GROUP:
            reached[commit.partition] = max(reached.get(commit.partition, 0), commit.offset)
    return frozenset(read.value for read in source if read.offset >= reached.get(read.partition, 0))


def _loaded_coordinators(broker: SimulatedBroker) -> list[LoadedCoordinator]:
    """Return the partitions of internal topics that a broker leads, with the epoch in which each was loaded."""
    server = broker.server
    coordination = None if server is None else server.broker._coordination
    if server is None or coordination is None:
        return []
    return [
        LoadedCoordinator(broker.name, topic, index, coordination._epochs[topic, index], placed.leader_epoch)
        for topic, runtime in coordination._runtimes.items()
        if topic in server.broker.image.topics
        for index, placed in enumerate(server.broker.image.topics[topic].partitions)
        if placed.leader == broker.node_id and runtime.leads(index)
    ]


def _texts(image: Image) -> dict[str, str]:
    """Return the content of an image as texts, for a comparison."""
    texts = {"controller": repr(image.controller), "brokers": repr(sorted(image.brokers))}
    for topic in image.topics.values():
        texts |= _topic_texts(topic)
    for node, broker in image.registered.items():
        texts[f"{keys.BROKERS}{node}"] = repr(broker)
    for node, sign in image.live.items():
        texts[f"{keys.LIVE}{node}"] = repr(sign)
    return texts | {f"configs {resource}": repr(dict(values)) for resource, values in image.configs.items()}


def _topic_texts(topic: TopicImage) -> dict[str, str]:
    texts = {f"{keys.TOPICS}{topic.name}": f"{topic.id.hex()} {dict(topic.configs)}"}
    for index, partition in enumerate(topic.partitions):
        texts[keys.partition_key(topic.id, index)] = repr(partition)
    return texts


def run(seed: int, settings: Settings | None = None) -> Result:
    """Run the simulation with a seed."""
    settings = settings or Settings()
    begun = time.process_time()
    # Collections of a heap that grows all the time cost a fifth of a run, and find little.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        simulation = Simulation(seed, settings)
        simulation.run()
        return simulation.result(time.process_time() - begun)
    finally:
        if was_enabled:
            gc.enable()
