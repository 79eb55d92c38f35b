"""Lifecycle of a broker: opens its directories, metadata and partitions, then its listeners, and closes them at a stop.

One file, because what a start opens, in its order, a stop and a failed start must close.

Everything that can fail for a reason outside of the program fails here, before the listeners open, as `CannotStart` with one
line that names the remedy.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.broker.broker import Broker
from ottla.broker.checkpoints import Checkpoints
from ottla.broker.config import BrokerConfig
from ottla.broker.flushing import Flusher
from ottla.broker.limits import ConnectionLimits, LimitConfigs
from ottla.broker.listener_configs import PLAINTEXT, Listener, inter_broker_listener, own_integers
from ottla.broker.maintenance import Maintenance
from ottla.broker.moving import Moves
from ottla.broker.other_brokers import NoOtherBrokers, OtherBrokers
from ottla.broker.pipeline import Pipeline
from ottla.broker.removals import Removals
from ottla.broker.sessions import FetchSessions
from ottla.broker.socket_server import SocketServer
from ottla.broker.storage import Storage
from ottla.broker.stored_configs import check_limits, usable_configs
from ottla.broker.throttling import Throttling, connection_quota, quota_window
from ottla.environment import Environment
from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory, UnusableDirectory
from ottla.log.log import StorageError
from ottla.metadata import changes
from ottla.metadata.alteration import BROKER
from ottla.metadata.configs import InvalidConfig, topic_configs
from ottla.metadata.features import too_new
from ottla.metadata.image import (
    INTERNAL_TOPICS,
    BrokerImage,
    Delta,
    TopicImage,
    UnknownFormat,
)
from ottla.metadata.metadata import Metadata
from ottla.metadata.refusal import ChangeResult
from ottla.metadata.store import MetadataStore, Snapshot
from ottla.metadata.store.sqlite_file import DamagedStore
from ottla.protocol import plan
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.replication.throttle import ReplicationThrottles
from ottla.security.quotas import Window
from ottla.tasks.answers import Steps, after
from ottla.tasks.deferred import Answer
from ottla.tasks.periodic import Periodic
from ottla.tasks.scheduler import Scheduler
from ottla.tasks.slices import Slices
from ottla.version import VERSION

if TYPE_CHECKING:
    from ottla.broker.cluster.applied_revision import AppliedRevision
    from ottla.broker.cluster.following import Following
    from ottla.broker.cluster.node import ClusterNode
    from ottla.broker.cluster.peers import Peers
    from ottla.broker.listener_security import ListenerSecurity
    from ottla.net.authentication import Credentials

_logger = logging.getLogger("ottla.broker")
_FETCH_SESSION_EVICTION_MS: Final = 120_000  # Kafka 4 has made min.incremental.fetch.session.eviction.ms a constant
_FLUSH_THREADS: Final = 4
"""Number of flushes of different files that run at a time; file systems join them in one commit of their journal."""


class CannotStart(Exception):
    """Failed start of a broker: the reason and its remedy, in one line."""


class BrokerServer:
    """One broker with its listeners.

    broker    its services, from `open` on
    pipeline  serves requests, from `open` on
    sockets   its listeners and connections, from `open` on
    flusher   runs flushes of logs
    store     metadata store of a cluster; None for a single broker
    tasks     the scheduler, which the store uses too; by default a new one
    node      its membership in a cluster; None for a single broker
    accepts_older_metadata  True: a start on a metadata store that was restored from a backup is not refused
    waits_for_store_ms      how long a start waits for a metadata store that does not answer
    fences_quickly  False: a broker whose process has ended is fenced at the end of its session only
    failed    called with the reason, in one line, when a broker of a cluster must stop
    """

    broker: Broker
    pipeline: Pipeline
    sockets: SocketServer
    _peers: "Peers"

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        store: MetadataStore | None = None,
        tasks: Scheduler | None = None,
    ) -> None:
        self._store = store
        self._config = config.with_node_id()
        self._environment = environment
        self.tasks = tasks or Scheduler(environment.clock, environment.timers, cpu_ns=environment.cpu_ns)
        workers = environment.workers
        self._background = workers.start("ottla-background")
        """Thread for work that waits for the disk and must keep its order: changes of the metadata, checkpoints."""
        self._removing = workers.start("ottla-removing")
        self.flusher = Flusher(workers.start("ottla-flush", _FLUSH_THREADS), self.tasks, environment.clock)
        self._removals = Removals(self.tasks, self._removing)
        self._storage = Storage(
            self._config,
            environment.random,
            environment.files,
            self._background if environment.files.durable else None,
            self.tasks,
        )
        self._limits = ConnectionLimits(_limits_of(self._config), quota_window(self._config))
        self._least_throttle_ms = 0
        self._ignored_configs: frozenset[str] = frozenset()
        """Reasons why configs in the metadata are ignored, so that each is logged once."""
        self._maintenance: Maintenance | None = None
        self._token_removal: Periodic | None = None
        self.node: ClusterNode | None = None
        self._following: Following | None = None
        self.failed: Callable[[str], None] | None = None
        self.fences_quickly = True
        self.accepts_older_metadata = False
        self.waits_for_store_ms = 0
        self._applied_revision: AppliedRevision | None = None
        self._begun_ms = 0
        self._is_closed = False

    def start(self) -> Answer[str | None]:
        """Open everything, then listen. Raises CannotStart after closing what was opened.

        The answer is None when the broker serves requests: a single broker does at once. A broker of a cluster may fail later;
        the answer is then the reason, in one line.
        """
        self._begun_ms = self._environment.clock.now_ms()
        self._report_configs()
        if self._store is not None:
            return self._start_in_cluster(self._store)
        self.open()
        try:
            self._listen()
        except BaseException:
            self._release()
            raise
        self._begin_maintenance()
        self._report_start()
        return None

    def _start_in_cluster(self, store: MetadataStore) -> Answer[str | None]:
        try:
            cluster_id = self._storage.open_directories()
        except (UnusableDirectory, StorageError) as cause:
            self._release()
            raise CannotStart(str(cause)) from None
        # A single broker starts without the modules of a cluster.
        from ottla.broker.cluster.node import found_cluster, load_when_reached

        min_isr = self._config.integer("min.insync.replicas")
        load = partial(found_cluster, store, cluster_id, self._environment.random, min_isr)
        wait_ms = self.waits_for_store_ms
        snapshot = load_when_reached(store, self.tasks, wait_ms, load) if wait_ms else load()

        def ended(reason: str | None) -> str | None:
            if reason is not None and not self._is_closed:
                self._release()
            return reason

        return after(after(snapshot, partial(self._join, store)), ended)

    def _join(self, store: MetadataStore, snapshot: Snapshot) -> Answer[str | None]:
        """Build the broker on the metadata of its cluster, and join it. The answer is the reason of a failure."""
        from ottla.broker.cluster.applied_revision import why_older
        from ottla.broker.cluster.membership import CannotJoin
        from ottla.broker.cluster.node import ClusterNode, registration

        if snapshot.error is not None or self._is_closed:
            return snapshot.error or "the broker was stopped"
        reason = why_older(self._environment.files, self._storage.directories[0].path, snapshot)
        if reason is not None and not self.accepts_older_metadata:
            return reason
        try:
            self._build(store, snapshot, None)
            reason = too_new(self.broker.image.features)
            if reason is not None:
                return reason
            self._storage.claim(self.broker.image.cluster_id)
            self.sockets.hold()
            self._listen()
            own = registration(self._config, self.broker.listeners.bound, self._storage.directories)
            self.node = node = ClusterNode(
                lambda: self.broker.config,
                own,
                self._storage.directories,
                store,
                self.broker.metadata,
                self.broker.replicas,
                self._environment,
                self.tasks,
                self.broker.election_rules,
                self.fences_quickly,
                self._fail,
            )
            self.broker.replicas.isr_changed = node.isr_changes.request
        except (UnusableDirectory, StorageError, UnknownFormat, CannotStart, CannotJoin, InvalidConfig) as cause:
            return str(cause)

        def joined(reason: str | None) -> str | None:
            if reason is None and not self._is_closed:
                self.sockets.release()
                if self._following is not None:
                    self._following.begin(self.broker.image, node.membership.epoch)
                self._keep_applied_revision()
                self._begin_maintenance()
                self._report_start()
            return reason

        def load() -> None:
            try:
                self._load_partitions()
            except (UnusableDirectory, StorageError) as cause:
                raise CannotJoin(str(cause)) from None

        return after(node.join(load), joined)

    def _fail(self, reason: str) -> None:
        _logger.error("%s", reason)
        if self.failed is not None:
            self.failed(reason)

    def _report_start(self) -> None:
        begun_ms = self._begun_ms
        _logger.info(
            "Ottla %s started in %d ms on %s: node %d of cluster %s, %d topics, listening on %s%s",
            VERSION,
            self._environment.clock.now_ms() - begun_ms,
            ", ".join(self._config.log_dirs),
            self.broker.node_id,
            self.broker.image.cluster_id,
            len(self.broker.image.topics),
            ", ".join(
                str(listener._replace(host=host, port=port)) for listener, (host, port) in self.broker.listeners.bound
            ),
            "" if plan.COMPILED else " (interpreted: slower than with compiled modules)",
        )

    def _report_configs(self) -> None:
        """Warn of configs without effect: of a file for another broker, or with a misspelt name."""
        if self._config.unknown:
            _logger.warning("unknown configs in the file are left out: %s", ", ".join(self._config.unknown))
        if self._config.idle:
            _logger.warning("these configs are set and have no effect in Ottla: %s", ", ".join(self._config.idle))

    def open(self) -> None:
        """Open storage and services without listening. Raises CannotStart after closing what was opened."""
        try:
            self._open()
        except (UnusableDirectory, StorageError, DamagedStore, UnknownFormat) as cause:
            self._release()
            raise CannotStart(str(cause)) from None
        except BaseException:
            self._release()
            raise

    def _open(self) -> None:
        store = self._storage.open()
        config = self._config
        self._build(store, store.load(), BrokerImage(config.node_id, "", -1, config.text("broker.rack")))
        self._load_partitions()

    def _build(self, store: MetadataStore, snapshot: Snapshot, single: BrokerImage | None) -> None:
        """Create the services of the broker, on the contents of its metadata store."""
        environment, config = self._environment, self._config
        metadata = Metadata(
            store,
            snapshot,
            environment.random,
            self.tasks,
            lambda: self.broker.config.integer("num.partitions"),
            lambda: self.broker.config.integer("default.replication.factor"),
            single,
            Slices(self.tasks).run,
            self._fail,
        )
        worker = self._background if environment.files.durable else None
        self._checkpoints = Checkpoints(self._storage.directories, worker, self.tasks)
        replicas = Replicas(
            config.node_id,
            self.tasks,
            self._storage.directories,
            self._log_config,
            self._discard,
            self.flusher.flush,
            self._checkpoints.write,
            environment.clock.now_ms,
            config.integer("replica.lag.time.max.ms"),
            self._storage.missing,
            in_cluster=single is None,
        )
        moves = Moves(replicas, self.tasks, self.flusher, self._assign_directory, self._remove)
        sessions = FetchSessions(
            config.integer("max.incremental.fetch.session.cache.slots"),
            _FETCH_SESSION_EVICTION_MS,
            environment.random,
            self.tasks,
        )
        self.broker = Broker(
            config,
            environment.clock,
            environment.random,
            self.tasks,
            metadata,
            replicas,
            moves,
            sessions,
            environment.resolve,
            self._connect(metadata) if single is None else NoOtherBrokers(),
            self._new_throttles(metadata),
        )
        self.pipeline = Pipeline(self.broker, environment.now_ns)
        names = "socket.request.max.bytes", "connections.max.idle.ms", "socket.send.buffer.bytes"
        request_bytes, idle_ms, send_buffer = map(config.integer, names)
        self.sockets = SocketServer(self.pipeline, environment, request_bytes, self._limits, idle_ms, send_buffer)
        self.broker.config_checks.append(check_limits)
        if config.text("authorizer.class.name"):
            self._set_up_authorization()
        self._apply_configs()
        self._apply_quotas()

    def _set_up_authorization(self) -> None:
        """Check the permissions of all requests from now on. Raises CannotStart."""
        from ottla.broker.authorization import Authorization

        try:
            authorization = Authorization(self._config.static)
        except InvalidConfig as cause:
            raise CannotStart(str(cause)) from None
        metadata = self.broker.metadata
        authorization.apply(metadata.image)
        metadata.subscribe(lambda delta: authorization.apply(delta.image))
        self.broker.authorization = authorization
        self.sockets.authorize = authorization.of

    def _connect(self, metadata: Metadata) -> OtherBrokers:
        """Return the connections to the other brokers of a cluster. Raises InvalidConfig."""
        from ottla.broker.cluster.peers import Peers

        credentials: Credentials | None = None
        transport = self._environment.transport
        listener = inter_broker_listener(self._config, self._config.listeners)
        if listener is not None and listener.protocol != PLAINTEXT:
            from ottla.broker.peer_security import peer_credentials, peer_transport

            credentials = peer_credentials(self._config, listener, self._environment, self.tasks)
            transport = peer_transport(self._config, listener, transport)
        self._peers = Peers(
            self._config.node_id, lambda: metadata.image, self._environment, self.tasks, credentials, transport
        )
        metadata.subscribe(self._peers.apply)
        return self._peers

    def _new_throttles(self, metadata: Metadata) -> ReplicationThrottles:
        config = self._config
        window = Window(
            config.integer("replication.quota.window.num"),
            config.integer("replication.quota.window.size.seconds") * 1000,
        )

        def configs(topic: str) -> Mapping[str, str]:
            known = metadata.image.topics.get(topic)
            return {} if known is None else known.configs

        return ReplicationThrottles(config.node_id, configs, window)

    def _load_partitions(self) -> None:
        """Open the partitions of this broker, and apply all later changes of the metadata."""
        metadata, replicas = self.broker.metadata, self.broker.replicas
        replicas.load(metadata.image)
        if any(directory.ends_below_checkpoint for directory in self._storage.directories):
            # Before anything is appended: after another crash, records that are not committed would be below the old
            # high watermarks, and a log that was cut would look damaged again.
            self._checkpoints.write_now()
        metadata.subscribe(replicas.apply)
        if self._store is not None:
            self._following = following = self._new_following()
            metadata.subscribe(following.apply)
        metadata.subscribe(self._provide_coordination)
        metadata.subscribe(self._reconfigure)
        if self._store is None:  # in a cluster `OfflineReplicas` does it, once this broker is live
            for partition in replicas.misassigned():
                self._assign_directory(partition, replicas.home_of(partition))
        if INTERNAL_TOPICS & metadata.image.topics.keys():
            _ = self.broker.coordination

    def _provide_coordination(self, delta: Delta) -> None:
        """Create the coordinators when this broker becomes leader of a partition of an internal topic: its timers run for open
        transactions and groups whose clients may never come here.
        """
        if self.broker.used_coordination is not None:
            return
        names = INTERNAL_TOPICS & {*delta.moved, *(topic.name for topic in delta.changed)}
        partitions = (placed for name in names for placed in delta.image.topics[name].partitions)
        if any(placed.leader == self.broker.node_id for placed in partitions):
            _ = self.broker.coordination  # it loads what the current image names

    def _new_following(self) -> "Following":
        from ottla.broker.cluster.following import Following

        broker = self.broker
        return Following(
            broker.node_id,
            broker.replicas,
            self._peers,
            self.tasks,
            broker.slices,
            lambda: broker.config,
            self._checkpoints.write,
            self.flusher.begin,
            broker.replication_throttles.follower,
        )

    def _listen(self) -> None:
        for listener in self._config.listeners:
            is_plain = listener.protocol == PLAINTEXT and ":" not in str(self._config["principal.builder.class"])
            security = None if is_plain else self._secure(listener)
            try:
                address = self.sockets.listen(listener.name, listener.host, listener.port, security)
            except OSError as cause:
                reason = cause.strerror or cause
                raise CannotStart(f"cannot listen on {listener.address}: {reason}") from None
            self.broker.listeners.bound.append((listener, address))

    def _secure(self, listener: Listener) -> "ListenerSecurity":
        """Return TLS and SASL of a listener. Raises CannotStart."""
        # A broker without secured listeners starts without these modules.
        from ottla.broker.listener_security import secure_listener

        try:
            return secure_listener(listener, self.broker, self._environment)
        except InvalidConfig as cause:
            raise CannotStart(str(cause)) from None

    def _begin_maintenance(self) -> None:
        config = self.broker.config
        self._maintenance = Maintenance(
            self._checkpoints.write,
            self._removals,
            self.broker.replicas,
            self._environment.clock,
            self.tasks,
            config.integer("log.initial.task.delay.ms"),
            config.integer("log.retention.check.interval.ms"),
            config.integer("log.cleaner.backoff.ms") if config.flag("log.cleaner.enable") else -1,
            (
                config.integer("producer.id.expiration.check.interval.ms"),
                lambda: self.broker.config.integer("producer.id.expiration.ms"),
            ),
            self.flusher,
            config.integer("replica.lag.time.max.ms") // 2,
            config.integer("replica.high.watermark.checkpoint.interval.ms"),
        )
        self._maintenance.begin()
        if config.text("delegation.token.secret.key"):
            self._begin_token_removal(config.integer("delegation.token.expiry.check.interval.ms"))

    def _keep_applied_revision(self) -> None:
        """Keep the newest applied revision in the data directory from now on."""
        from ottla.broker.cluster.applied_revision import AppliedRevision, Newest

        metadata, directory = self.broker.metadata, self._storage.directories[0].path
        self._applied_revision = AppliedRevision(
            self._environment.files,
            directory,
            lambda: Newest(metadata.image.revision, *metadata.newest),
            self._environment.timers,
        )
        self._applied_revision.begin()

    def _begin_token_removal(self, interval_ms: int) -> None:
        from ottla.broker.tokens import remove_expired

        self._token_removal = Periodic(
            "removal of expired delegation tokens",
            partial(remove_expired, self.broker),
            interval_ms,
            self._environment.timers,
        )
        self._token_removal.run_in(interval_ms)

    def stop(self, *, hands_over: bool = True) -> Answer[None]:
        """Stop accepting, then close every log cleanly, so that the next start scans no log.

        A broker of a cluster first lets the others take over what it leads, if it `hands_over`, and removes its sign of life;
        the answer comes when that is done, or a time-out has passed.
        """
        _logger.info("stopping")
        begun_ms = self._environment.clock.now_ms()
        self._is_closed = True
        if self.node is None:
            self._close_all(begun_ms)
            self.tasks.close()  # what is queued would find closed logs
            return None
        return after(self.node.leave(hands_over=hands_over), lambda _: self._close_all(begun_ms))

    def _close_all(self, begun_ms: int) -> None:
        self.sockets.close()
        if self._maintenance is not None:
            self._maintenance.close()
        if self._token_removal is not None:
            self._token_removal.close()
        if self._applied_revision is not None:
            self._applied_revision.close()
            self._applied_revision.write()
        if self._following is not None:
            self._following.close()
        self.broker.close()
        self._removals.close()
        self.flusher.close()
        self._removing.close(cancel=True)
        self._background.close()
        if self._maintenance is not None:
            self._maintenance.abandon_compaction()
        self._storage.close()
        if self._store is not None:
            self._store.close()
        _logger.info("stopped in %d ms", self._environment.clock.now_ms() - begun_ms)

    def kill(self) -> None:
        """Release all resources without a clean stop, as after a kill -9: no client is answered, nothing is written any more,
        state in memory is lost. The next start recovers the logs.
        """
        if hasattr(self, "sockets"):
            self.sockets.abandon()
        self._release()
        self.tasks.close()
        self._environment.files.close()

    def _release(self) -> None:
        self._is_closed = True
        if self._token_removal is not None:
            self._token_removal.close()
        if self._applied_revision is not None:
            self._applied_revision.close()
        if self.node is not None:
            self.node.close()
        if self._following is not None:
            self._following.close()
        if self._store is not None:
            self._store.close()
        if hasattr(self, "sockets"):
            self.sockets.close()
            self.broker.peers.close()
        self.flusher.close()
        self._removing.close(cancel=True)
        self._background.close()
        self._storage.release()

    def _apply_configs(self) -> None:
        """Apply the configs that the metadata has for this broker, over the start-up values; unusable ones are ignored."""
        broker, image = self.broker, self.broker.image
        broker.config, ignored = usable_configs(
            broker.config,
            for_all=image.configs_of(BROKER, ""),
            for_this=image.configs_of(BROKER, str(broker.node_id)),
        )
        for reason in ignored:
            if reason not in self._ignored_configs:
                _logger.error("ignoring a config in the metadata: %s", reason)
        self._ignored_configs = frozenset(ignored)
        self._limits.change(_limits_of(broker.config))
        throttles = broker.replication_throttles
        throttles.leader.limit = broker.config.integer("leader.replication.throttled.rate")
        throttles.follower.limit = broker.config.integer("follower.replication.throttled.rate")
        self.sockets.update_accepting()
        for security in self.sockets.secured:
            if security.certificates is not None:
                security.certificates.apply()

    def _apply_quotas(self) -> None:
        """Apply the quotas in the metadata; a broker without quotas checks none."""
        broker, quotas = self.broker, self.broker.image.quotas
        if quotas or self._least_throttle_ms:
            broker.throttling = broker.throttling or Throttling(broker.config, broker.clock)
            broker.throttling.take(quotas)
            broker.throttling.least_ms = self._least_throttle_ms
        else:
            broker.throttling = None
        self.sockets.connection_quota = connection_quota(
            broker.config, quotas, self.sockets.connection_quota, self._environment.resolve
        )

    def throttle_all(self, throttle_ms: int) -> None:
        """Throttle every connection by at least `throttle_ms` after each request, whatever the quotas; 0 ends it."""
        self._least_throttle_ms = throttle_ms
        self._apply_quotas()

    def _reconfigure(self, delta: Delta) -> Steps | None:
        broker = self.broker
        if delta.configured & {(BROKER, ""), (BROKER, str(broker.node_id))}:
            self._apply_configs()
            if self.node is not None:
                self.node.controller.configs_applied()
            return broker.replicas.reconfigure(delta.image)
        if delta.settings:
            self._apply_quotas()
            if delta.before.features != delta.image.features:
                return broker.replicas.reconfigure(delta.image)
        return None

    def _log_config(self, topic: TopicImage) -> LogConfig:
        """Return the log config of a topic."""
        return LogConfig.of(topic_configs(topic.configs, self.broker.config))

    def _assign_directory(self, partition: Partition, directory: LogDirectory) -> Answer[ChangeResult]:
        """Record in the metadata which log directory a partition is in."""
        metadata, node_id = self.broker.metadata, self.broker.node_id
        assignment = metadata.result_of(
            lambda image: changes.assign_directory(image, partition.topic_id, partition.index, node_id, directory.id)
        )
        return self.tasks.background(assignment, "assignment of a log directory")

    def _discard(self, home: LogDirectory, path: Path) -> None:
        """Remove a deleted partition's directory after a delay, in which running reads complete."""
        self._remove(home, path, self.broker.config.integer("log.segment.delete.delay.ms"))

    def _remove(self, home: LogDirectory, path: Path, delay_ms: int = 0) -> None:
        self._removals.later(partial(home.remove_discarded, path), delay_ms, in_background=True)


def _limits_of(config: BrokerConfig) -> LimitConfigs:
    listeners = config.listeners
    between = inter_broker_listener(config, listeners) if len(listeners) > 1 else None
    return LimitConfigs(
        config.integer("max.connections"),
        config.integer("max.connections.per.ip"),
        config.connections_per_ip,
        own_integers(config, "max.connections"),
        between.name if between is not None else None,
        config.integer("max.connection.creation.rate"),
        own_integers(config, "max.connection.creation.rate"),
    )
