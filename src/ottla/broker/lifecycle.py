"""A broker from start to stop: it opens its directories, its metadata and its partitions, then its listeners.

The only place where sockets, disks, clocks and tasks meet. Everything that can fail for a reason outside of the program
fails here, before the listeners open, as `CannotStart` with one line that names the remedy.
"""

import asyncio
import contextlib
import gc
import logging
import resource
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.background import Background
from ottla.broker.checkpoints import Checkpoints
from ottla.broker.config import BrokerConfig, Listener
from ottla.broker.coordination.internal_topics import internal_topic
from ottla.broker.coordination.producer_ids import ProducerIds
from ottla.broker.flushing import Flusher
from ottla.broker.limits import ConnectionLimits
from ottla.broker.maintenance import Maintenance
from ottla.broker.moving import Moves
from ottla.broker.removals import Removals
from ottla.broker.server import LoopTimers, Server
from ottla.broker.sessions import FetchSessions
from ottla.broker.slices import Slices
from ottla.broker.throttling import Throttling, connection_quota
from ottla.broker.watchdog import Watchdog
from ottla.environment import Clock, Random, Timers
from ottla.environment.system import SystemClock, SystemRandom
from ottla.log.config import LogConfig
from ottla.log.directory import FailedDirectory, Identity, LogDirectory, UnusableDirectory
from ottla.log.log import StorageError
from ottla.log.store import DiskStore
from ottla.metadata import keys
from ottla.metadata.alteration import BROKER
from ottla.metadata.configs import topic_configs
from ottla.metadata.controller import Controller, NewTopic
from ottla.metadata.features import feature_level
from ottla.metadata.image import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerImage,
    Delta,
    Image,
    TopicImage,
)
from ottla.metadata.refusal import ChangeResult
from ottla.metadata.store import MetadataStore
from ottla.metadata.store.sqlite import DamagedStore, SqliteStore
from ottla.metadata.turns import Turns
from ottla.protocol.answer import Answer, Steps, after
from ottla.protocol.errors import KAFKA_STORAGE_ERROR, NONE
from ottla.protocol.uuids import uuid_text
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.version import VERSION

if TYPE_CHECKING:
    from ottla.broker.coordination.coordinators import Coordination
    from ottla.broker.share_partitions.partitions import Sharing
    from ottla.broker.telemetry import Telemetry
    from ottla.coordinators.runtime import Runtime

_logger = logging.getLogger("ottla.broker")
_MANY_PARTITIONS: Final = 500
_FETCH_SESSION_EVICTION_MS: Final = 120_000  # Kafka 4 has made min.incremental.fetch.session.eviction.ms a constant


class CannotStart(Exception):
    """Reason for which a broker does not start, and its remedy, in one line."""


class Broker:
    """The broker: context of all handlers, with `start` and `stop`.

    config      the configs in force: those of the start, as altered since
    clock, random, timers, files  access to time, randomness and the file system
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        timers: Timers | None = None,
        files: DiskStore | None = None,
    ) -> None:
        self.config = config = config.numbered()
        self.clock: Clock = clock or SystemClock()
        self.random: Random = random or SystemRandom()
        self.timers: Timers = timers or LoopTimers(loop)
        self._coordination: Coordination | None = None
        self.node_id = config.node_id
        self.bound: list[tuple[Listener, tuple[str, int]]] = []
        self._directories: list[LogDirectory] = []
        self._identities: dict[LogDirectory, Identity | None] = {}
        self._files = files or DiskStore()
        self._store: MetadataStore | None = None
        self.slices = Slices(self.timers)
        self.large_checks = Turns()
        """Checks of batches that are large when decompressed, one after the other."""
        self._flusher = Flusher(loop, self.clock)
        self._background = Background(loop)
        self._removing = Background(loop)
        self._removals = Removals(self.clock, self.timers, self._removing)
        self.throttling: Throttling | None = None
        self._least_throttle_ms = 0
        self._telemetry: Telemetry | None = None
        self._sharing: Sharing | None = None
        self._limits = ConnectionLimits(*_limits_of(config))
        request_bytes, idle_ms = (
            config.integer(name) for name in ("socket.request.max.bytes", "connections.max.idle.ms")
        )
        self.server = Server(self, loop, request_bytes, self._limits, idle_ms)
        self.sessions = FetchSessions(
            config.integer("max.incremental.fetch.session.cache.slots"),
            _FETCH_SESSION_EVICTION_MS,
            self.random,
        )

    @property
    def coordination(self) -> "Coordination":
        """The coordinators, imported and loaded at first use: a broker without groups starts without them."""
        if self._coordination is None:
            from ottla.broker.coordination.coordinators import Coordination

            self._coordination = Coordination(
                self.node_id,
                self.config,
                self.clock,
                self.random,
                self.timers,
                self.replicas,
                lambda: feature_level(self.image.features, "transaction.version"),
                self.producer_ids.take,
                self.provide_internal_topic,
            )
            self._coordination.load(self.image)
            self.controller.subscribe(self._coordination.apply)
        return self._coordination

    @property
    def sharing(self) -> "Sharing":
        """The share partitions, created at first use."""
        if self._sharing is None:
            from ottla.broker.share_partitions.partitions import Sharing

            self._sharing = Sharing(self)
        return self._sharing

    @property
    def telemetry(self) -> "Telemetry":
        """The metrics of clients, created at first use."""
        if self._telemetry is None:
            from ottla.broker.telemetry import Telemetry

            self._telemetry = Telemetry(self.config.integer("telemetry.max.bytes"), self.random)
        return self._telemetry

    @property
    def groups(self) -> "Runtime[Any]":
        """The group coordinator."""
        return self.coordination.groups

    @property
    def image(self) -> Image:
        """The metadata as it is now."""
        return self.controller.image

    def start(self) -> None:
        """Open everything, then listen. Raises CannotStart; what was opened is closed again."""
        begun_ms = self.clock.now_ms()
        self._report_configs()
        try:
            self._open()
            self._listen()
        except (UnusableDirectory, StorageError, DamagedStore) as cause:
            self._abandon()
            raise CannotStart(str(cause)) from None
        except BaseException:
            self._abandon()
            raise
        self._maintenance.begin()
        _logger.info(
            "Ottla %s started in %d ms on %s: node %d of cluster %s, %d topics, listening on %s",
            VERSION,
            self.clock.now_ms() - begun_ms,
            ", ".join(self.config.log_dirs),
            self.node_id,
            self.image.cluster_id,
            len(self.image.topics),
            ", ".join(str(listener._replace(host=host, port=port)) for listener, (host, port) in self.bound),
        )

    def _report_configs(self) -> None:
        """Warn of configs without effect: of a file for another broker, or with a misspelt name."""
        if self.config.unknown:
            _logger.warning("unknown configs in the file are left out: %s", ", ".join(self.config.unknown))
        if self.config.idle:
            _logger.warning("these configs are set and have no effect in Ottla: %s", ", ".join(self.config.idle))

    def _open(self) -> None:
        missing = self._open_directories()
        self._store = self._open_metadata()
        me = BrokerImage(self.node_id, "", -1, self.config.text("broker.rack"))
        self.controller = Controller(
            self._store,
            self.random,
            me,
            lambda: self.config.integer("num.partitions"),
            lambda: self.config.integer("default.replication.factor"),
            self.slices.run,
        )
        self.producer_ids = ProducerIds(self.controller.producer_id_block)
        checkpoints = Checkpoints(self._directories, self._background if self._files.durable else None)
        self.replicas = Replicas(
            self.node_id,
            self._directories,
            self.log_config,
            self._discard,
            self._flusher.flush,
            checkpoints.write,
            missing,
        )
        self.moves = Moves(self.replicas, self.timers, self._flusher, self._assign_directory, self._remove)
        self._maintenance = Maintenance(
            checkpoints.write,
            self._removals,
            self.replicas,
            self.clock,
            self.timers,
            self.config.integer("log.initial.task.delay.ms"),
            self.config.integer("log.retention.check.interval.ms"),
            self.config.integer("log.cleaner.backoff.ms") if self.config.flag("log.cleaner.enable") else -1,
            (
                self.config.integer("producer.id.expiration.check.interval.ms"),
                lambda: self.config.integer("producer.id.expiration.ms"),
            ),
            self._flusher,
        )
        self._take_configs()
        self._take_quotas()
        self.replicas.load(self.image)
        self.controller.subscribe(self.replicas.apply)
        self.controller.subscribe(self._reconfigure)
        for partition in self.replicas.misassigned():
            self._assign_directory(partition, self.replicas.home_of(partition))
        if {OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC} & self.image.topics.keys():
            _ = self.coordination

    def _assign_directory(self, partition: Partition, directory: LogDirectory) -> Answer[ChangeResult]:
        """Record in the metadata which log directory a partition is in."""
        controller = self.controller
        return controller.in_turn(
            lambda: controller.assign_directory(partition.topic_id, partition.index, self.node_id, directory.id)
        )

    def _open_directories(self) -> list[Path]:
        """Open the log directories; returns those that fail, whose partitions are offline, if another one and the metadata can
        be opened.
        """
        missing = []
        for name in self.config.log_dirs:
            path = Path(name)
            try:
                directory = LogDirectory(self._files, path, self._jitter)
                self._directories.append(directory)
                self._identities[directory] = directory.identity()
            except FailedDirectory as cause:
                if self._directories and self._directories[-1].path == path:
                    self._directories.pop().release()
                if len(self.config.log_dirs) == 1 or path == Path(self.config.metadata_log_dir):
                    raise
                _logger.error("%s is offline: %s. Its partitions answer KAFKA_STORAGE_ERROR", path, cause)
                missing.append(path)
        if not self._directories:
            raise UnusableDirectory(f"none of the log directories can be used: {', '.join(map(str, missing))}")
        return missing

    def _jitter(self, most: int) -> int:
        return self.random.below(most + 1) if most else 0

    def _open_metadata(self) -> MetadataStore:
        """Open the metadata store, and verify that all directories belong to this node of this cluster."""
        home = Path(self.config.metadata_log_dir)
        path = home / "metadata.db"
        if not path.exists() and any(self._identities.values()):
            raise UnusableDirectory(
                f"{home} has a meta.properties but no metadata.db: if it is Apache Kafka's, adopt it with "
                f"`ottla storage import {home}`; else it is damaged: give another --data-dir"
            )
        try:
            home.mkdir(parents=True, exist_ok=True)
            self._store = metadata = SqliteStore(path, self._background if self._files.durable else None)
        except (OSError, sqlite3.Error) as cause:
            raise CannotStart(f"cannot open {path}: {cause}") from None
        cluster_id = metadata.cluster_id
        if cluster_id is None:
            cluster_id = uuid_text(self.random.bytes16())
            try:
                metadata.initialize(cluster_id, min_insync_replicas=self.config.integer(keys.MIN_ISR))
            except OSError as cause:
                raise UnusableDirectory(str(cause)) from None
        for directory, identity in self._identities.items():
            if identity is None:
                try:
                    directory.claim(Identity(self.node_id, cluster_id, self.random.bytes16()))
                except OSError as cause:
                    raise UnusableDirectory(f"cannot write {cause.filename}: {cause.strerror}") from None
            elif (identity.node_id, identity.cluster_id) != (self.node_id, cluster_id):
                raise UnusableDirectory(
                    f"{directory.path} belongs to node {identity.node_id} of cluster {identity.cluster_id}, "
                    f"this is node {self.node_id} of cluster {cluster_id}: give the right node.id or another --data-dir"
                )
        return metadata

    def _listen(self) -> None:
        for listener in self.config.listeners:
            if listener.protocol != "PLAINTEXT":
                raise CannotStart(
                    f"cannot listen on {listener}: {listener.protocol} is not supported yet, only PLAINTEXT"
                )
            try:
                self.bound.append((listener, self.server.listen(listener.host, listener.port)))
            except OSError as cause:
                reason = cause.strerror or cause
                raise CannotStart(f"cannot listen on {listener.address}: {reason}") from None

    def _abandon(self) -> None:
        self.server.close()
        self._removing.close(cancel=True)
        self._background.close()
        if self._store is not None:
            self._store.close()
        for directory in self._directories:
            directory.release()

    def stop(self) -> None:
        """Stop accepting, then close every log cleanly. The next start scans nothing."""
        _logger.info("stopping")
        begun_ms = self.clock.now_ms()
        self.server.close()
        if self._sharing is not None:
            self._sharing.close()
        if self._coordination is not None:
            self._coordination.close()
        self.slices.close()
        self._maintenance.close()
        self._removals.close()
        self.moves.close()
        self._flusher.close()
        self._removing.close(cancel=True)
        self._background.close()
        for directory in self._directories:
            try:
                directory.close()
            except (OSError, StorageError) as cause:
                _logger.error("cannot stop %s cleanly: %s; the next start looks through it", directory.path, cause)
        if self._store is not None:
            self._store.close()
        _logger.info("stopped in %d ms", self.clock.now_ms() - begun_ms)

    def kill(self) -> None:
        """Release all resources without a clean stop, as after a kill -9: no client is answered, nothing is written any more,
        state in memory is lost. The next start recovers the logs.
        """
        for connection in self.server.connections:
            connection.end.gone = None
        self.server.close()
        self._flusher.close()
        self._abandon()
        self._files.close()

    def _take_configs(self) -> None:
        """Apply the configs of this broker in the metadata over those of the start."""
        image = self.image
        self.config = self.config.with_dynamic(
            for_all=image.configs_of(BROKER, ""), for_this=image.configs_of(BROKER, str(self.node_id))
        )
        self._limits.change(*_limits_of(self.config))
        self.server.accept_again()

    def _take_quotas(self) -> None:
        """Apply the quotas in the metadata; a broker without quotas checks none."""
        quotas = self.image.quotas
        if quotas or self._least_throttle_ms:
            self.throttling = self.throttling or Throttling(self.config, self.clock)
            self.throttling.take(quotas)
            self.throttling.least_ms = self._least_throttle_ms
        else:
            self.throttling = None
        self.server.connection_quota = connection_quota(self.config, quotas, self.server.connection_quota)

    def throttle_all(self, throttle_ms: int) -> None:
        """Throttle every connection by this time after each of its requests, whatever the quotas; 0 ends it."""
        self._least_throttle_ms = throttle_ms
        self._take_quotas()

    def _reconfigure(self, delta: Delta) -> Steps | None:
        if delta.configured in ((BROKER, ""), (BROKER, str(self.node_id))):
            self._take_configs()
            return self.replicas.reconfigure(delta.image)
        if delta.settings:
            self._take_quotas()
        return None

    def log_config(self, topic: TopicImage) -> LogConfig:
        """A topic's configuration as its logs need it."""
        return LogConfig.of(topic_configs(topic.configs, self.config))

    def advertised(self, context_address: tuple[str, int]) -> tuple[str, int]:
        """The address returned to clients: advertised.listeners, else the address that this client connected to."""
        if not self.config.advertised_listeners:
            return context_address
        advertised = {listener.name: listener for listener in self.config.advertised_listeners}
        for listener, bound in self.bound:
            if bound[1] == context_address[1] and listener.name in advertised:
                return advertised[listener.name].host, advertised[listener.name].port
        first = self.config.advertised_listeners[0]
        return first.host, first.port

    def create_topic(self, topic: NewTopic, requester: str = "the broker") -> Answer[ChangeResult]:
        """Create a topic without a CreateTopics request: usually on first use."""
        controller = self.controller

        def create() -> Answer[ChangeResult]:
            planned = [controller.plan(topic, {})]
            return after(self.create_planned(planned, requester), lambda changes: changes[topic.name])

        return controller.decide(create)

    def create_planned(self, topics: Sequence[TopicImage], requester: str) -> Answer[dict[str, ChangeResult]]:
        """Create planned topics, in a turn of the controller; the results are by name. A topic with a partition that cannot be
        opened on this broker is deleted again, rather than reported as created. (Apache Kafka answers success, and the
        partition is offline.)
        """
        if not self.replicas.is_working:
            return {topic.name: _not_opened(topic) for topic in topics}

        def created(change: ChangeResult) -> Answer[dict[str, ChangeResult]]:
            results = {topic.name: change for topic in topics}
            failed = [topic for topic in topics if change.error_code == NONE and self.replicas.has_offline(topic)]
            for topic in topics:
                if change.error_code == NONE and topic not in failed:
                    count = len(topic.partitions)
                    _logger.info("topic %s created with %d partitions by %s", topic.name, count, requester)
            if not failed:
                return results
            results.update({topic.name: _not_opened(topic) for topic in failed})
            return after(self.controller.delete(failed), lambda deletion: results)  # noqa: ARG005

        return after(self.controller.create(topics), created)

    def create_internal_topic(self, name: str) -> Answer[ChangeResult]:
        """Create a topic of the brokers' own, with at most as many replicas as there are brokers."""
        partitions, factor, configs = internal_topic(name, self.config)
        return self.create_topic(NewTopic(name, partitions, min(factor, len(self.image.brokers)), {}, configs))

    def provide_internal_topic(self, name: str) -> Answer[bool]:
        """Create the topic that a coordinator keeps its state in, unless it exists; False where that cannot be."""
        if name in self.image.topics:
            return True

        def exists(change: ChangeResult) -> bool:
            if name in self.image.topics:
                return True
            _logger.warning("cannot create %s: %s", name, change.error_message)
            return False

        return after(self.create_internal_topic(name), exists)

    def _discard(self, home: LogDirectory, path: Path) -> None:
        """Remove a deleted partition's directory once readers have had time to let go of it."""
        self._remove(home, path, self.config.integer("log.segment.delete.delay.ms"))

    def _remove(self, home: LogDirectory, path: Path, delay_ms: int = 0) -> None:
        self._removals.later(partial(home.remove_discarded, path), delay_ms, in_background=True)


def _not_opened(topic: TopicImage) -> ChangeResult:
    text = f"Topic '{topic.name}' cannot be created: the broker cannot open its partitions, its log says why."
    return ChangeResult(KAFKA_STORAGE_ERROR, text)


def _limits_of(config: BrokerConfig) -> tuple[int, int, dict[str, int]]:
    return config.integer("max.connections"), config.integer("max.connections.per.ip"), config.connections_per_ip


async def serve(config: BrokerConfig, announce: Callable[[Broker], None]) -> None:
    """Run a broker until SIGTERM, SIGINT or SIGHUP. Calls `announce` once it listens. Raises CannotStart."""
    _allow_many_files()
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in _stop_signals():
        loop.add_signal_handler(number, stopped.set)
    broker = Broker(config, loop)
    broker.start()
    gc.freeze()
    broker.controller.subscribe(_exempt_from_collection)
    watchdog = Watchdog(loop) if _logger.isEnabledFor(logging.DEBUG) else None
    try:
        if watchdog is not None:
            watchdog.start()
        announce(broker)
        await stopped.wait()
    finally:
        if watchdog is not None:
            watchdog.stop()
        broker.stop()


def _stop_signals() -> list[signal.Signals]:
    """Signals that stop a broker cleanly, as in Apache Kafka; SIGHUP only where it was not ignored at the start (nohup)."""
    found = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


def _exempt_from_collection(delta: Delta) -> None:
    """Exempt the logs of many new partitions from garbage collection, like all objects of the start.

    They are not part of cycles: when they are closed their memory is freed nevertheless. A collection over those of
    20,000 partitions takes 80 ms, during which no request is served.
    """
    if sum(len(topic.partitions) for topic in delta.changed) >= _MANY_PARTITIONS:
        gc.freeze()


def _allow_many_files() -> None:
    """Raise the limit of open files to the system's maximum: sockets and logs need them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems name a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class EphemeralDirectory:
    """A data directory that is removed when the broker stops."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ottla-"))

    def remove(self) -> None:
        """Take it from the disk."""
        shutil.rmtree(self.path, ignore_errors=True)
