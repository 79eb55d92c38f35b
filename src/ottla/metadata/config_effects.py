"""Broker configs that are accepted and shown by DescribeConfigs, but have no effect.

Most of them tune parts of Kafka that Ottla does not have: thread pools, purgatories, a metadata quorum, tiered storage. Those
of security and of replication will have an effect once Ottla has these features. At its start a broker logs one warning with
those that are set. The reasons are in docs/configs.md, whose script compares this list with the sources.
"""

from collections.abc import Iterable
from typing import Final

_PREFIXES: Final = (
    "add.partitions.to.txn.",
    "alter.log.dirs.replication.",
    "controller.performance.",
    "controller.quorum.",
    "delegation.token.",
    "group.streams.",
    "internal.metadata.",
    "kafka.metrics.",
    "listener.name.",
    "log.local.",
    "log.remote.",
    "metadata.log.max.",
    "metadata.log.segment.",
    "metadata.max.",
    "metrics.",
    "remote.",
    "replica.alter.",
    "replica.socket.receive.",
    "sasl.",
    "socket.connection.setup.",
    "ssl.",
)
_NAMES: Final = frozenset(
    (
        "alter.config.policy.class.name",
        "authorizer.class.name",
        "background.threads",
        "broker.heartbeat.interval.ms",
        "client.quota.callback.class",
        "config.providers",
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "controller.socket.timeout.ms",
        "cordoned.log.dirs",
        "create.topic.policy.class.name",
        "delete.records.purgatory.purge.interval.requests",
        "early.start.listeners",
        "fetch.max.bytes",
        "fetch.purgatory.purge.interval.requests",
        "follower.fetch.last.tiered.offset.enable",
        "group.coordinator.append.linger.ms",
        "group.coordinator.background.threads",
        "group.coordinator.cached.buffer.max.bytes",
        "group.coordinator.threads",
        "group.share.dlq.manager.class.name",
        "group.share.persister.class.name",
        "initial.broker.registration.timeout.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "log.dir.failure.timeout.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "max.connection.creation.rate",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.alter.log.dirs.threads",
        "offsets.load.buffer.size",
        "offsets.topic.compression.codec",
        "principal.builder.class",
        "producer.purgatory.purge.interval.requests",
        "queued.max.request.bytes",
        "queued.max.requests",
        "request.timeout.ms",
        "security.providers",
        "server.max.startup.time.ms",
        "share.coordinator.append.linger.ms",
        "share.coordinator.cached.buffer.max.bytes",
        "share.coordinator.load.buffer.size",
        "share.coordinator.state.topic.compression.codec",
        "share.coordinator.threads",
        "share.fetch.purgatory.purge.interval.requests",
        "socket.listen.backlog.size",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "transaction.state.log.load.buffer.size",
        "unclean.leader.election.interval.ms",
        "unstable.feature.versions.enable",
    )
)
OF_THE_AUTHORIZER: Final = ("super.users", "allow.everyone.if.no.acl.found")
"""Configs that Kafka's authorizer reads; they are not in the table of broker configs."""


def without_effect(names: Iterable[str]) -> list[str]:
    """Return the configs of `names` that have no effect in Ottla, sorted."""
    return sorted(name for name in names if name in _NAMES or name in OF_THE_AUTHORIZER or name.startswith(_PREFIXES))
