"""This broker as a node of a cluster: its membership, its part as controller, and its registration."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.cluster.controller import Controller, ControllerConfig
from ottla.broker.cluster.directories import OwnDirectories
from ottla.broker.cluster.fencing import QuickFencing
from ottla.broker.cluster.membership import CannotJoin, Membership
from ottla.broker.cluster.offline_replicas import OfflineReplicas
from ottla.broker.cluster.peers import Peers
from ottla.broker.config import BrokerConfig
from ottla.broker.security.listener_configs import PLAINTEXT, Listener, inter_broker_listener
from ottla.environment import Address, Environment, Random
from ottla.log.directory import LogDirectory
from ottla.metadata.changes.elections import ElectionRules
from ottla.metadata.features import FEATURES, initial
from ottla.metadata.image import BrokerImage, Endpoint, TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.plans.cordons import CORDONED
from ottla.metadata.store import Change, MetadataStore, Snapshot, keys
from ottla.net.authentication import Credentials
from ottla.protocol.uuids import uuid_text
from ottla.replication.leader.isr_changes import IsrChanges
from ottla.replication.replicas import Replicas
from ottla.tasks.deferred import awaitable
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.broker")
_STORE_RETRY_MS: Final = 1000
"""Time between two attempts to reach the metadata store."""

_WILDCARDS: Final = frozenset(("", "0.0.0.0", "::"))
_SHARED_DEFAULTS: Final = ("num.partitions", "default.replication.factor", "min.insync.replicas")


class ClusterNode:
    """Membership and controller of this broker.

    rules  returns the settings for elections of a topic
    """

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        registration: BrokerImage,
        directories: Sequence[LogDirectory],
        store: MetadataStore,
        metadata: Metadata,
        replicas: Replicas,
        environment: Environment,
        tasks: Scheduler,
        rules: Callable[[TopicImage], ElectionRules],
        fences_quickly: bool,
        failed: Callable[[str], None],
    ) -> None:
        self._config = config
        self._directories = directories
        self._fences_quickly = fences_quickly
        values = config()
        own = OwnDirectories(
            directories,
            environment.files,
            metadata.image.registered.get(registration.node_id),
            is_partial=bool(replicas.missing),
        )
        self.membership = Membership(
            registration,
            incarnation=own.begin(environment.random.bytes16().hex()),
            directories=own,
            store=store,
            metadata=metadata,
            tasks=tasks,
            session_timeout_ms=values.integer("broker.session.timeout.ms"),
            failed=failed,
        )
        self.controller = Controller(
            config=ControllerConfig.of(values),
            node_id=registration.node_id,
            membership=self.membership,
            metadata=metadata,
            tasks=tasks,
            rules=rules,
            balances_leaders=lambda: config().flag("auto.leader.rebalance.enable"),
        )
        self.fencing = QuickFencing(
            registration.node_id,
            image=lambda: metadata.image,
            store=store,
            transport=environment.transport,
            clock=environment.clock,
            timers=environment.timers,
            session_timeout_ms=values.integer("broker.session.timeout.ms"),
        )
        self.isr_changes = IsrChanges(registration.node_id, metadata, tasks)
        self.offline_replicas = OfflineReplicas(registration.node_id, metadata, replicas, tasks, rules)

    async def join(self, load: Callable[[], None]) -> None:
        """Join the cluster, then take part in the election of a controller; see `Membership.join`. Raises CannotJoin."""
        await self.membership.join(load)
        for directory in self._directories:
            directory.broker_epoch = self.membership.epoch
        self.controller.begin()
        self.offline_replicas.begin()
        if self._fences_quickly:
            self.fencing.begin()

    async def leave(self, *, hands_over: bool) -> bool:
        """Leave the cluster, for a clean stop; `hands_over` is False if no other broker goes on."""
        self.controller.close()
        self.fencing.close()
        self.isr_changes.close()
        self.offline_replicas.close()
        return await self.membership.leave(hands_over=hands_over and self._config().flag("controlled.shutdown.enable"))

    def close(self) -> None:
        """Stop all timers, as when the process ends."""
        self.controller.close()
        self.fencing.close()
        self.isr_changes.close()
        self.offline_replicas.close()
        self.membership.close()


def connect(config: BrokerConfig, metadata: Metadata, environment: Environment, tasks: Scheduler) -> Peers:
    """Return the connections to the other brokers of the cluster. Raises InvalidConfig."""
    credentials: Credentials | None = None
    transport = environment.transport
    listener = inter_broker_listener(config, config.listeners)
    if listener is not None and listener.protocol != PLAINTEXT:
        from ottla.broker.security.peer_security import peer_credentials, peer_transport

        credentials = peer_credentials(config, listener, environment, tasks)
        transport = peer_transport(config, listener, transport)
    return Peers(
        config.node_id,
        image=lambda: metadata.image,
        environment=environment,
        tasks=tasks,
        credentials=credentials,
        transport=transport,
    )


def registration(
    config: BrokerConfig, bound: Sequence[tuple[Listener, Address]], directories: Sequence[LogDirectory]
) -> BrokerImage:
    """Return the registration of this broker. Raises CannotJoin for listeners that other brokers could not use."""
    advertised = {listener.name: listener for listener in config.advertised_listeners}
    endpoints = []
    for listener, (_, port) in bound:
        shown = advertised.get(listener.name)
        if shown is not None:
            endpoints.append(Endpoint(listener.name, shown.host, shown.port, listener.protocol))
        elif listener.host in _WILDCARDS:
            raise CannotJoin(
                f"listener {listener} is for all addresses: set advertised.listeners, so that clients and other brokers can "
                "connect"
            )
        else:
            endpoints.append(Endpoint(listener.name, listener.host, port, listener.protocol))
    inter_broker = inter_broker_listener(config, [listener for listener, _ in bound])
    if inter_broker is None:
        protocol = config.text("security.inter.broker.protocol")
        raise CannotJoin(f"no listener has the protocol {protocol} for other brokers: set inter.broker.listener.name")
    return BrokerImage(
        config.node_id,
        endpoints[0].host,
        endpoints[0].port,
        config.text("broker.rack"),
        endpoints=tuple(endpoints),
        directories=tuple(directory.id.hex() for directory in directories),
        defaults={name: config.static[name] for name in _SHARED_DEFAULTS if name in config.static},
        listener=inter_broker.name,
        features={feature.name: (feature.lowest, feature.highest) for feature in FEATURES},
        log_dirs=tuple(config.log_dirs),
        cordoned=tuple(config.items_of(CORDONED)),
    )


async def wait_until_reached(store: MetadataStore, tasks: Scheduler, wait_ms: int) -> None:
    """Wait up to `wait_ms` until the metadata store answers."""
    deadline_ms = tasks.clock.now_ms() + wait_ms
    snapshot = await awaitable(store.load(), tasks)
    if snapshot.error is not None:
        _logger.warning("%s; waiting up to %d s for the metadata store", snapshot.error, wait_ms // 1000)
    while snapshot.error is not None and (left_ms := deadline_ms - tasks.clock.now_ms()) > 0:
        await tasks.sleep(min(left_ms, _STORE_RETRY_MS))
        snapshot = await awaitable(store.load(), tasks)


async def load_or_create_cluster(
    store: MetadataStore, tasks: Scheduler, cluster_id: str | None, random: Random, min_insync_replicas: int
) -> Snapshot:
    """Load the metadata of a cluster, which is founded if the store is empty. Raises CannotJoin.

    cluster_id  id in the data directories, None if they are new: they found a cluster only then
    random      makes the id of a new cluster, and its secret
    """
    new_id = random.bytes16()
    while True:
        snapshot = await awaitable(store.load(), tasks)
        if snapshot.error is not None:
            raise CannotJoin(snapshot.error)
        stored = next((entry.value for entry in snapshot.entries if entry.key == keys.CLUSTER_ID), None)
        if stored is not None:
            known = stored.decode()
            if cluster_id not in (None, known):
                raise CannotJoin(
                    f"the data directories belong to cluster {cluster_id}, and the metadata store has cluster {known}: "
                    "give the right --cluster or another --data-dir"
                )
            if any(entry.key == keys.SECRET for entry in snapshot.entries):
                return snapshot
            # An earlier release has founded the cluster. Another broker may write the secret at the same time.
            change = Change({keys.SECRET: 0}, put={keys.SECRET: _new_secret(random)})
        elif cluster_id is not None:
            raise CannotJoin(
                f"the metadata store has no cluster, and the data directories belong to cluster {cluster_id}: the prefix is "
                "wrong, or the store has lost its data"
            )
        else:
            put = {
                keys.CLUSTER_ID: uuid_text(new_id).encode(),
                keys.SECRET: _new_secret(random),
                keys.METADATA_VERSION: str(keys.NEWEST_METADATA_VERSION).encode(),
                keys.BROKER_DEFAULTS: keys.compact({keys.MIN_ISR: str(min_insync_replicas)}),
                **keys.feature_levels(initial()),
            }
            # Another broker may found the cluster at the same time: then its id is loaded.
            change = Change({keys.CLUSTER_ID: 0}, put=put)
        outcome = await awaitable(store.change(change), tasks)
        if outcome.error is not None:
            raise CannotJoin(outcome.error)


def _new_secret(random: Random) -> bytes:
    return (random.bytes16() + random.bytes16()).hex().encode()
