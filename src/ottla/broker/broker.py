"""The services of a broker that its handlers use.

Nothing here starts or stops anything: `lifecycle.py` builds a Broker on open storage, subscribes it to the metadata and
closes it. Services that not every broker needs (coordinators, share partitions, telemetry) are imported and created at their
first use.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ottla.broker.cluster.other_brokers import OtherBrokers
from ottla.broker.config import BrokerConfig
from ottla.broker.coordination.producer_ids import ProducerIds
from ottla.broker.requests.delayed import Expirations
from ottla.broker.requests.fetch_session import FetchSessions
from ottla.broker.requests.schema_validation import SchemaValidation
from ottla.broker.requests.throttling import Throttling
from ottla.broker.requests.topic_creation import TopicCreation
from ottla.broker.security.listeners import BoundListeners
from ottla.broker.upkeep.moves import Moves
from ottla.environment import Address, Clock, Random, Timers
from ottla.environment.timer_queues import TimerQueues
from ottla.metadata.changes.elections import ElectionRules
from ottla.metadata.configs import topic_configs
from ottla.metadata.features import feature_level
from ottla.metadata.image import NO_LEADER, BrokerImage, Image, TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.plans.eligibility import min_isr_of
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import LEADER_NOT_AVAILABLE
from ottla.replication.replicas import PartitionView, Replicas
from ottla.replication.throttle import ReplicationThrottles
from ottla.tasks.deferred import Answer
from ottla.tasks.scheduler import Scheduler
from ottla.tasks.turns import Turns

if TYPE_CHECKING:
    from ottla.broker.authorization import Authorization
    from ottla.broker.coordination.coordinators import Coordination
    from ottla.broker.coordination.streams_topics import StreamsTopics
    from ottla.broker.coordination.topology_descriptions import TopologyDescriptionPlugin
    from ottla.broker.metrics.telemetry import Telemetry
    from ottla.broker.share_partitions.partitions import SharePartitions
    from ottla.coordinators.groups.streams.assignors import Assign
    from ottla.coordinators.runtime import Runtime
    from ottla.protocol.connection import EncodedResponse
    from ottla.security.delegation_tokens import TokenIndex


class Broker:
    """The set of services of one broker.

    config        the current configs: the start-up values with later alterations
    metadata    the metadata image, and changes to it
    replicas      the partitions that this broker hosts
    topics        creation of topics, also on first use
    moves         moves of partitions between log directories
    listeners     where the broker listens, and the addresses that clients learn
    throttling    quotas and their usage; None while there are no quotas
    replication_throttles  limits of what is sent and fetched for replicas that move
    sessions      fetch sessions
    resolve       returns the IP address of a host, None if it has none
    tasks         the scheduler: everything that waits in this broker
    large_work    surrounds the work on a large request, see `Environment`
    peers         requests to other brokers of the cluster
    config_preparations  what must be read before the checks of new configs of this broker
    config_checks  checks of new configs of this broker by what they would change; they raise InvalidConfig
    authorization  the authorizer; None if every client may do everything
    timeouts      timers of requests that wait
    expirations   counters of requests that timed out
    large_checks  checks of batches that are large when decompressed, one after the other
    schema_validation  schemas that topics accept
    task_assignors  assignors of streams groups by name; None for "sticky" only
    token_index   delegation tokens by their secrets; None before the first request about tokens
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        random: Random,
        tasks: Scheduler,
        large_work: Callable[[], AbstractContextManager[object]],
        metadata: Metadata,
        replicas: Replicas,
        moves: Moves,
        sessions: FetchSessions,
        resolve: Callable[[str], str | None],
        peers: OtherBrokers,
        replication_throttles: ReplicationThrottles,
        schema_validation: SchemaValidation,
        task_assignors: "Mapping[str, Assign | None] | None",
    ) -> None:
        self.config = config
        self.task_assignors = task_assignors
        self.node_id = config.node_id
        self.clock = clock
        self.random = random
        self.tasks = tasks
        self.large_work = large_work
        self.timeouts: Timers = TimerQueues(tasks, clock)
        self.large_checks = Turns(tasks)
        self.expirations = Expirations()
        self.encoded_metadata: tuple[tuple[object, ...], EncodedResponse] | None = None
        self.config_preparations: list[Callable[[BrokerConfig], Answer[None]]] = []
        self.config_checks: list[Callable[[BrokerConfig], None]] = []
        self.metadata = metadata
        self.replicas = replicas
        self.moves = moves
        self.sessions = sessions
        self.resolve = resolve
        self.peers = peers
        self.replication_throttles = replication_throttles
        self.schema_validation = schema_validation
        self.token_index: TokenIndex | None = None
        self.listeners = BoundListeners(lambda: self.config)
        self.topics = TopicCreation(metadata, replicas, lambda: self.config, tasks)
        self.producer_ids = ProducerIds(metadata.producer_id_block, tasks)
        self.authorization: Authorization | None = None
        self.throttling: Throttling | None = None
        self._coordination: Coordination | None = None
        self._share_partitions: SharePartitions | None = None
        self._description_plugin: TopologyDescriptionPlugin | None = None
        self._streams_topics: StreamsTopics | None = None
        self._telemetry: Telemetry | None = None

    @property
    def image(self) -> Image:
        """The current metadata image."""
        return self.metadata.image

    def address_of(self, node: BrokerImage, context: RequestContext) -> Address | None:
        """Return the address of a broker for the sender of a request: that of the listener which it connected to.

        None if the broker does not have this listener. For a single broker without advertised.listeners it is the name in
        `listeners`, or the address that the sender connected to.
        """
        if not node.endpoints:
            return self.listeners.advertised_address(context.address)
        endpoint = node.endpoint(context.listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def view(self, topic: TopicImage, index: int) -> PartitionView:
        """Return the state of a partition as reported to clients; without its leader while this broker has just lost the
        connection to it, so that clients ask again soon.
        """
        view = self.replicas.view(topic, index)
        if view.leader in self.peers.lost:
            return view._replace(error_code=LEADER_NOT_AVAILABLE, leader=NO_LEADER)
        return view

    def reachable(self, context: RequestContext) -> Collection[int]:
        """Return the node ids of the live brokers that have the listener which the sender of a request connected to."""
        brokers = self.image.brokers
        if all(not node.endpoints or node.endpoint(context.listener) is not None for node in brokers.values()):
            return brokers
        return [node_id for node_id, node in brokers.items() if node.endpoint(context.listener) is not None]

    def election_rules(self, topic: TopicImage) -> ElectionRules:
        """Return the settings for elections of a topic."""
        configs = topic_configs(topic.configs, self.config)
        return ElectionRules(min_isr_of(self.image, topic.configs), configs.flag("unclean.leader.election.enable"))

    @property
    def controller_id(self) -> int:
        """Node id of the controller, or of this broker while there is no controller: old clients wait for one otherwise."""
        controller_id = self.image.controller_id
        return controller_id if controller_id in self.image.brokers else self.node_id

    @property
    def coordination(self) -> "Coordination":
        """The coordinators, imported and loaded at first use: a broker without groups starts without them."""
        if self._coordination is None:
            from ottla.broker.coordination.coordinators import Coordination

            self._coordination = Coordination(
                node_id=self.node_id,
                values=self.config,
                clock=self.clock,
                random=self.random,
                tasks=self.tasks,
                replicas=self.replicas,
                transaction_version=lambda: feature_level(self.image.features, "transaction.version"),
                new_producer_id=self.producer_ids.take,
                provide_topic=self.topics.provide_internal,
                peers=self.peers,
                task_assignors=self.task_assignors,
            )
            self._coordination.load(self.image)
        return self._coordination

    @property
    def groups(self) -> "Runtime[Any]":
        """The group coordinator."""
        return self.coordination.groups

    @property
    def share_partitions(self) -> "SharePartitions":
        """The share partitions, created at first use."""
        if self._share_partitions is None:
            from ottla.broker.share_partitions.dead_letters import DeadLetterWriter
            from ottla.broker.share_partitions.partitions import SharePartitions

            config, clock, tasks = lambda: self.config, self.clock, self.tasks
            dead_letters = DeadLetterWriter(
                config=config,
                clock=clock,
                tasks=tasks,
                metadata=self.metadata,
                replicas=self.replicas,
                create_topic=self.topics.create,
                peers=self.peers,
            )

            self._share_partitions = SharePartitions(
                config=config,
                clock=clock,
                tasks=tasks,
                metadata=self.metadata,
                replicas=self.replicas,
                coordination=self.coordination,
                dead_letters=dead_letters,
            )
        return self._share_partitions

    @property
    def description_plugin(self) -> "TopologyDescriptionPlugin | None":
        """The plug-in that stores descriptions of topologies, None without one."""
        if self._description_plugin is None and self.config.text("group.streams.topology.description.plugin.class"):
            from ottla.broker.coordination.topology_descriptions import description_plugin

            self._description_plugin = description_plugin(self.config)
        return self._description_plugin

    @property
    def streams_topics(self) -> "StreamsTopics":
        """The creation of internal topics for streams groups, created at first use."""
        if self._streams_topics is None:
            from ottla.broker.coordination.streams_topics import StreamsTopics

            self._streams_topics = StreamsTopics(self.topics, lambda: self.throttling, self.tasks)
        return self._streams_topics

    @property
    def telemetry(self) -> "Telemetry":
        """The metrics of clients, created at first use."""
        if self._telemetry is None:
            from ottla.broker.metrics.telemetry import Telemetry

            self._telemetry = Telemetry(self.config.integer("telemetry.max.bytes"), self.random)
        return self._telemetry

    @property
    def used_coordination(self) -> "Coordination | None":
        """The coordinators, if anything has used them."""
        return self._coordination

    @property
    def used_share_partitions(self) -> "SharePartitions | None":
        """The share partitions, if anything has used them."""
        return self._share_partitions

    def close(self) -> None:
        """Cancel the timers of all services; afterwards no service writes anything."""
        if self._share_partitions is not None:
            self._share_partitions.close()
        if self._coordination is not None:
            self._coordination.close()
        self.peers.close()
        self.schema_validation.close()
        self.tasks.end_pieces()
        self.moves.close()
