"""Lifecycle of a broker: what is built, in which order, who acts on a change of the metadata, and what an end closes.

    build      directories, metadata, services, listeners; in a cluster the registration
    follow     the listeners of the metadata, complete before the first change is applied
    load       the partitions
    serve      requests, and maintenance

Each part puts its end on one stack when it is built; a stop, a failed start and a kill unwind it. Everything that can fail for
a reason outside of the program fails here, before requests are served, as `CannotStart` with one line that names the remedy.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.broker.broker import Broker
from ottla.broker.cluster.other_brokers import NoOtherBrokers
from ottla.broker.config import BrokerConfig
from ottla.broker.connections.limits import ConnectionLimits, LimitConfigs
from ottla.broker.connections.socket_server import SocketServer
from ottla.broker.reconfiguration import Reconfiguration
from ottla.broker.requests.fetch_session import FetchSessions
from ottla.broker.requests.pipeline import Pipeline
from ottla.broker.requests.schema_validation import SchemaValidation
from ottla.broker.requests.throttling import quota_window, replication_throttles
from ottla.broker.starting import CannotStart, open_listeners, report_configs, report_start
from ottla.broker.storage import Storage
from ottla.broker.stored_configs import check_limits
from ottla.broker.upkeep.checkpoints import Checkpoints
from ottla.broker.upkeep.flushing import Flusher
from ottla.broker.upkeep.maintenance import Maintenance, MaintenanceConfig
from ottla.broker.upkeep.moves import Moves
from ottla.broker.upkeep.removals import Removals
from ottla.environment import Environment
from ottla.log.config import LogConfig
from ottla.log.directory import LogDirectory, UnusableDirectory
from ottla.log.log import StorageError
from ottla.metadata import changes
from ottla.metadata.configs import DEFAULT_TASK_ASSIGNOR, TASK_ASSIGNORS, InvalidConfig, topic_configs
from ottla.metadata.features import too_new
from ottla.metadata.image import INTERNAL_TOPICS, BrokerImage, Delta, TopicImage, UnknownFormat
from ottla.metadata.metadata import Listener as MetadataListener
from ottla.metadata.metadata import Metadata
from ottla.metadata.plans.cordons import CORDONED
from ottla.metadata.refusal import ChangeResult
from ottla.metadata.store import MetadataStore, Snapshot
from ottla.metadata.store.sqlite_file import DamagedStore
from ottla.replication.partition import Partition
from ottla.replication.replicas import Replicas
from ottla.tasks.deferred import Answer
from ottla.tasks.scheduler import Scheduler

if TYPE_CHECKING:
    from ottla.broker.authorization import Authorization
    from ottla.broker.cluster.following import Following
    from ottla.broker.cluster.node import ClusterNode
    from ottla.broker.cluster.peers import Peers
    from ottla.coordinators.groups.streams.assignors import Assign

__all__ = ["BrokerServer", "CannotStart"]

_logger = logging.getLogger("ottla.broker")
_FETCH_SESSION_EVICTION_MS: Final = 120_000  # Kafka 4 has made min.incremental.fetch.session.eviction.ms a constant
_FLUSH_THREADS: Final = 4
"""Number of flushes of different files that run at a time; file systems join them in one commit of their journal."""
_EXPECTED: Final = (UnusableDirectory, StorageError, DamagedStore, UnknownFormat, InvalidConfig)
"""Reasons of a failed start that are outside of the program."""


class BrokerServer:
    """One broker with its listeners.

    broker    its services, from `open` on
    pipeline  serves requests, from `open` on
    sockets   its listeners and connections, from `open` on
    reconfiguration  applies what the metadata says of its configs and quotas, from `open` on
    flusher   runs flushes of logs
    store     metadata store of a cluster; None for a single broker
    tasks     the scheduler, which the store uses too; by default a new one
    node      its membership in a cluster; None for a single broker
    observer  sees each change of the metadata after all others have acted on it: metrics
    accepts_older_metadata  True: a start on a metadata store that was restored from a backup is not refused
    waits_for_store_ms      how long a start waits for a metadata store that does not answer
    fences_quickly  False: a broker whose process has ended is fenced at the end of its session only
    failed    called with the reason, in one line, when a broker of a cluster must stop
    """

    broker: Broker
    pipeline: Pipeline
    sockets: SocketServer
    reconfiguration: Reconfiguration
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
        self.node: ClusterNode | None = None
        self.observer: MetadataListener | None = None
        self._authorization: Authorization | None = None
        self._following: Following | None = None
        self._maintenance: Maintenance | None = None
        self.failed: Callable[[str], None] | None = None
        self.fences_quickly = True
        self.accepts_older_metadata = False
        self.waits_for_store_ms = 0
        self._is_closed = self._is_clean = False
        workers, files = environment.workers, environment.files
        self._background = workers.start("ottla-background")
        """Thread for work that waits for the disk and must keep its order: changes of the metadata, checkpoints."""
        self._removing = workers.start("ottla-removing")
        self.flusher = Flusher(workers.start("ottla-flush", _FLUSH_THREADS), self.tasks, environment.clock)
        self._removals = Removals(self.tasks, self._removing)
        worker = self._background if files.durable else None
        self._storage = Storage(self._config, environment.random, files, worker, self.tasks)
        self._checkpoints = Checkpoints(self._storage.directories, worker, self.tasks)
        self._limits = ConnectionLimits(LimitConfigs.of(self._config), quota_window(self._config))
        self._ends = ExitStack()
        """Ends of the parts, called in the opposite order: directories are in use until no thread writes."""
        if store is not None:
            self._ends.callback(store.close)
        self._ends.callback(self._end_storage)
        self._ends.callback(self._background.close)
        self._ends.callback(self._removing.close, cancel=True)
        self._ends.callback(self.flusher.close)
        self._ends.callback(lambda: self._removals.close() if self._is_clean else None)

    # -- start --

    def start(self) -> Answer[None]:
        """Open everything, then listen; answered when the broker serves requests: a single broker does at once.

        Raises CannotStart after closing what was opened; the answer of a broker of a cluster may fail with it.
        """
        task = self.tasks.start(self._start(), "the start of the broker")
        return task.result() if task.done else task

    async def _start(self) -> None:
        begun_ms = self._environment.clock.now_ms()
        report_configs(self._config)
        try:
            if self._store is None:
                self.open()
                open_listeners(self._config, self.broker, self.sockets, self._environment)
            else:
                await self._join(self._store)
        except (Exception, KeyboardInterrupt) as cause:
            self._release()
            if isinstance(cause, _EXPECTED):
                raise CannotStart(str(cause)) from None
            if self._store is None or isinstance(cause, CannotStart):
                raise
            # A single broker raises a bug to its caller; here the caller may have returned.
            self.tasks.on_error("the start of the broker", cause)
            raise CannotStart("an unexpected error occurred, which is in the log") from None
        self._begin_maintenance()
        report_start(self.broker, self._config.log_dirs, self._environment.clock.now_ms() - begun_ms)

    def open(self) -> None:
        """Open storage and services of a single broker, without listening."""
        store = self._storage.open()
        config = self._config
        own = BrokerImage(
            config.node_id,
            "",
            -1,
            config.text("broker.rack"),
            log_dirs=tuple(config.log_dirs),
            cordoned=tuple(config.items_of(CORDONED)),
        )
        self._build(store, store.load(), own)
        self.broker.metadata.follow(*self._listeners())
        self._load_partitions()
        replicas = self.broker.replicas
        for partition in replicas.misassigned():  # in a cluster `OfflineReplicas` does it, once this broker is live
            self._assign_directory(partition, replicas.home_of(partition))

    async def _join(self, store: MetadataStore) -> None:
        """Build the broker on the metadata of its cluster, and join it. Raises CannotStart and what is `_EXPECTED`."""
        # A single broker starts without the modules of a cluster.
        from ottla.broker.cluster.applied_revision import why_older
        from ottla.broker.cluster.node import load_or_create_cluster, wait_until_reached

        environment = self._environment
        cluster_id = self._storage.open_directories()
        if self.waits_for_store_ms:
            await wait_until_reached(store, self.tasks, self.waits_for_store_ms)
        min_isr = self._config.integer("min.insync.replicas")
        snapshot = await load_or_create_cluster(store, self.tasks, cluster_id, environment.random, min_isr)
        self._check_goes_on()
        reason = why_older(environment.files, self._storage.directories[0].path, snapshot)
        if reason is not None and not self.accepts_older_metadata:
            raise CannotStart(reason)
        self._build(store, snapshot, None)
        reason = too_new(self.broker.image.features)
        if reason is not None:
            raise CannotStart(reason)
        self._storage.claim(self.broker.image.cluster_id)
        self.sockets.hold()
        open_listeners(self._config, self.broker, self.sockets, self._environment)
        self.node = node = self._new_node(store)
        self._following = following = self._new_following()
        self.broker.metadata.follow(*self._listeners())
        await node.join(self._load_partitions)
        self._check_goes_on()
        self.sockets.release()
        following.begin(self.broker.image, node.membership.epoch)
        self._keep_applied_revision()

    def _check_goes_on(self) -> None:
        """Raise CannotStart if the broker was stopped while its start waited."""
        if self._is_closed:
            raise CannotStart("the broker was stopped")

    # -- who acts on a change of the metadata --

    def _listeners(self) -> tuple[MetadataListener, ...]:
        """Return the listeners of the metadata in their order, which is that of their dependencies: a log is open before it
        is fetched into or coordinates, configs apply before an election with them.

        What does not exist in every broker, or from the start on, is looked up at each change.
        """
        broker = self.broker
        return (
            _present(lambda: None if self.node is None else self._peers.apply),
            _present(lambda: None if self._authorization is None else self._authorization.act_on),
            _present(lambda: None if self.node is None else self.node.membership.applied_revisions.apply),
            _present(lambda: None if self.node is None else self.node.membership.apply),
            _present(lambda: None if self.node is None else self.node.controller.apply),
            _present(lambda: None if self.node is None or not self.fences_quickly else self.node.fencing.apply),
            broker.replicas.apply,
            _present(lambda: None if self._following is None else self._following.apply),
            self.reconfiguration.apply,
            self._elect_with_new_configs,
            self._coordinate,
            _present(lambda: None if (shared := broker.used_share_partitions) is None else shared.apply),
            _present(lambda: None if self.node is None else self.node.offline_replicas.apply),
            _present(lambda: None if self.node is None else self.node.membership.act_on_shutdown),
            _present(lambda: self.observer),
        )

    def _elect_with_new_configs(self, delta: Delta) -> None:
        """Let the controller look again at partitions without a leader: unclean elections may be allowed now."""
        if self.node is not None and self.reconfiguration.concerns(delta):
            self.node.controller.configs_applied()

    def _coordinate(self, delta: Delta) -> None:
        """Pass a change to the coordinators."""
        coordination = self.broker.used_coordination
        if coordination is not None:
            coordination.apply(delta)
        else:
            self._provide_coordination(delta)

    def _provide_coordination(self, delta: Delta) -> None:
        """Create the coordinators when this broker becomes leader of a partition of an internal topic: its timers run for open
        transactions and groups whose clients may never come here.
        """
        names = INTERNAL_TOPICS & {*delta.moved, *(topic.name for topic in delta.changed)}
        partitions = (placed for name in names for placed in delta.image.topics[name].partitions)
        if self.broker.replicas.is_loaded and any(placed.leader == self.broker.node_id for placed in partitions):
            _ = self.broker.coordination  # it loads what the current image names

    # -- parts --

    def _load_task_assignors(self) -> "Mapping[str, Assign | None] | None":
        """Return the assignors of streams groups by name, and add their names to the configs; None for the default."""
        if self._config.items_of(TASK_ASSIGNORS) == [DEFAULT_TASK_ASSIGNOR]:
            return None
        from ottla.broker.coordination.task_assignors import load_task_assignors

        loaded = load_task_assignors(self._config)
        self._config = self._config.with_assignor_names(loaded.names)
        return loaded.by_name

    def _build(self, store: MetadataStore, snapshot: Snapshot, single: BrokerImage | None) -> None:
        """Create the services of the broker, on the contents of its metadata store."""
        task_assignors = self._load_task_assignors()
        environment, config = self._environment, self._config
        metadata = Metadata(
            store,
            snapshot,
            random=environment.random,
            tasks=self.tasks,
            default_partitions=lambda: self.broker.config.integer("num.partitions"),
            default_replicas=lambda: self.broker.config.integer("default.replication.factor"),
            single=single,
            failed=self._fail,
        )
        schema_validation = SchemaValidation(
            lambda: self.broker.config, environment.workers, environment.clock, self.tasks
        )
        replicas = self._new_replicas(schema_validation, in_cluster=single is None)
        slots = config.integer("max.incremental.fetch.session.cache.slots")
        self.broker = Broker(
            config,
            clock=environment.clock,
            random=environment.random,
            tasks=self.tasks,
            large_work=environment.large_work,
            metadata=metadata,
            replicas=replicas,
            moves=Moves(replicas, self.tasks, self.flusher, self._assign_directory, self._remove),
            sessions=FetchSessions(slots, _FETCH_SESSION_EVICTION_MS, environment.random, self.tasks),
            resolve=environment.resolve,
            peers=self._connect(metadata) if single is None else NoOtherBrokers(),
            replication_throttles=replication_throttles(config, metadata),
            schema_validation=schema_validation,
            task_assignors=task_assignors,
        )
        self._ends.callback(self.broker.close)
        self.pipeline = Pipeline(self.broker, environment.now_ns)
        names = "socket.request.max.bytes", "connections.max.idle.ms", "socket.send.buffer.bytes"
        request_bytes, idle_ms, send_buffer = map(config.integer, names)
        self.sockets = SocketServer(self.pipeline, environment, request_bytes, self._limits, idle_ms, send_buffer)
        self._ends.callback(self.sockets.close)
        self.broker.config_checks.append(check_limits)
        if config.text("authorizer.class.name"):
            self._set_up_authorization()
        self.reconfiguration = Reconfiguration(
            self.broker, self.sockets, limits=self._limits, resolve=environment.resolve
        )

    def _new_replicas(self, schema_validation: SchemaValidation, *, in_cluster: bool) -> Replicas:
        def config_of(topic: TopicImage) -> LogConfig:
            values = topic_configs(topic.configs, self.broker.config)
            return LogConfig.of(values, schema_validation.rules_of(topic.name, topic.configs))

        return Replicas(
            node_id=self._config.node_id,
            tasks=self.tasks,
            directories=self._storage.directories,
            configs=config_of,
            discard=self._discard,
            flush=self.flusher.flush,
            checkpoint=self._checkpoints.write,
            now_ms=self._environment.clock.now_ms,
            max_lag_ms=self._config.integer("replica.lag.time.max.ms"),
            missing=self._storage.missing,
            in_cluster=in_cluster,
        )

    def _connect(self, metadata: Metadata) -> "Peers":
        """Return the connections to the other brokers of a cluster. Raises InvalidConfig."""
        from ottla.broker.cluster.node import connect

        self._peers = connect(self._config, metadata, self._environment, self.tasks)
        return self._peers

    def _set_up_authorization(self) -> None:
        """Check the permissions of all requests from now on. Raises InvalidConfig."""
        from ottla.broker.authorization import Authorization

        self._authorization = authorization = Authorization(self._config.static)
        authorization.apply(self.broker.image)
        self.broker.authorization = authorization
        self.sockets.authorize = authorization.of

    def _new_node(self, store: MetadataStore) -> "ClusterNode":
        from ottla.broker.cluster.node import ClusterNode, registration

        node = ClusterNode(
            config=lambda: self.broker.config,
            registration=registration(self._config, self.broker.listeners.bound, self._storage.directories),
            directories=self._storage.directories,
            store=store,
            metadata=self.broker.metadata,
            replicas=self.broker.replicas,
            environment=self._environment,
            tasks=self.tasks,
            rules=self.broker.election_rules,
            fences_quickly=self.fences_quickly,
            failed=self._fail,
        )
        self._ends.callback(node.close)
        self.broker.replicas.isr_changed = node.isr_changes.request
        return node

    def _new_following(self) -> "Following":
        from ottla.broker.cluster.following import Following

        broker = self.broker
        following = Following(
            node_id=broker.node_id,
            replicas=broker.replicas,
            peers=self._peers,
            tasks=self.tasks,
            config=lambda: broker.config,
            checkpoint=self._checkpoints.write,
            run_flush=self.flusher.begin,
            throttle=broker.replication_throttles.follower,
        )
        self._ends.callback(following.close)
        return following

    def _load_partitions(self) -> None:
        """Open the partitions of this broker, and the coordinators. Raises UnusableDirectory, StorageError."""
        metadata, replicas = self.broker.metadata, self.broker.replicas
        replicas.load(metadata.image)
        if any(directory.ends_below_checkpoint for directory in self._storage.directories):
            # Before anything is appended: after another crash, records that are not committed would be below the old
            # high watermarks, and a log that was cut would look damaged again.
            self._checkpoints.write_now()
        if INTERNAL_TOPICS & metadata.image.topics.keys():
            _ = self.broker.coordination

    def _begin_maintenance(self) -> None:
        config = self.broker.config
        self._maintenance = maintenance = Maintenance(
            config=MaintenanceConfig.of(config),
            write_checkpoints=self._checkpoints.write,
            removals=self._removals,
            replicas=self.broker.replicas,
            clock=self._environment.clock,
            tasks=self.tasks,
            producer_expiration_ms=lambda: self.broker.config.integer("producer.id.expiration.ms"),
            flusher=self.flusher,
        )
        maintenance.begin()
        self._ends.callback(maintenance.close)
        if config.text("delegation.token.secret.key"):
            from ottla.broker.security.tokens import begin_removal

            self._ends.callback(begin_removal(self.broker).close)

    def _keep_applied_revision(self) -> None:
        """Keep the newest applied revision in the data directory from now on."""
        from ottla.broker.cluster.applied_revision import AppliedRevision, newest_of

        directory = self._storage.directories[0].path
        newest = partial(newest_of, self.broker.metadata)
        revision = AppliedRevision(self._environment.files, directory, newest, self._background, self.tasks)
        revision.begin()
        self._ends.callback(lambda: revision.write_last() if self._is_clean else None)
        self._ends.callback(revision.close)

    # -- callbacks of the parts --

    def _fail(self, reason: str) -> None:
        _logger.error("%s", reason)
        if self.failed is not None:
            self.failed(reason)

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

    # -- end --

    def stop(self, *, hands_over: bool = True) -> Answer[None]:
        """Stop accepting, then close every log cleanly, so that the next start scans no log.

        A broker of a cluster first lets the others take over what it leads, if it `hands_over`, and removes its sign of life;
        the answer comes when that is done, or a time-out has passed.
        """
        return self.tasks.run(self._stop(hands_over=hands_over), "the stop of the broker")

    async def _stop(self, *, hands_over: bool) -> None:
        _logger.info("stopping")
        begun_ms = self._environment.clock.now_ms()
        self._is_closed = True
        if self.node is not None:
            await self.node.leave(hands_over=hands_over)
        self._is_clean = True
        self._ends.close()
        if self.node is None:
            self.tasks.close()  # what is queued would find closed logs
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
        """Close everything without a clean stop."""
        self._is_closed = True
        self._ends.close()

    def _end_storage(self) -> None:
        """Close the directories, once no thread writes to them."""
        if not self._is_clean:
            self._storage.release()
            return
        if self._maintenance is not None:
            self._maintenance.abandon_compaction()
        self._storage.close()


def _present(part: Callable[[], MetadataListener | None]) -> MetadataListener:
    """Return a listener of the metadata for a part that may not exist, or not yet."""

    def act(delta: Delta) -> Answer[object]:
        listener = part()
        return None if listener is None else listener(delta)

    return act
