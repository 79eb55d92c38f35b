"""Broker configs that are accepted and shown by DescribeConfigs, but have no effect.

Most of them tune parts of Kafka that Ottla does not have: thread pools, purgatories, a metadata quorum, tiered storage,
Kerberos, providers of Java. At its start a broker logs one warning with those that are set. The reasons are in
docs/configs.md, whose script compares this list with the sources.
"""

from collections.abc import Iterable
from typing import Final

_PREFIXES: Final = (
    "alter.log.dirs.replication.",
    "controller.performance.",
    "controller.quorum.",
    "internal.metadata.",
    "kafka.metrics.",
    "log.local.",
    "log.remote.",
    "metadata.log.max.",
    "metadata.log.segment.",
    "metadata.max.",
    "metrics.",
    "remote.",
    "replica.alter.",
    "replica.socket.receive.",
    "sasl.kerberos.",
    "sasl.login.",
    "sasl.oauthbearer.assertion.",
    "sasl.oauthbearer.client.",
    "sasl.oauthbearer.header.",
    "sasl.oauthbearer.jwks.endpoint.retry.",
    "sasl.oauthbearer.jwt.",
    "socket.connection.setup.",
)
_NAMES: Final = frozenset(
    (
        "alter.config.policy.class.name",
        "background.threads",
        "broker.heartbeat.interval.ms",
        "client.quota.callback.class",
        "controller.socket.timeout.ms",
        "create.topic.policy.class.name",
        "delete.records.purgatory.purge.interval.requests",
        "early.start.listeners",
        "fetch.purgatory.purge.interval.requests",
        "follower.fetch.last.tiered.offset.enable",
        "group.coordinator.append.linger.ms",
        "group.coordinator.background.threads",
        "group.coordinator.cached.buffer.max.bytes",
        "group.coordinator.threads",
        "group.share.dlq.manager.class.name",
        "group.share.persister.class.name",
        "group.streams.assignor.offload.enable",
        "group.streams.num.warmup.replicas",
        "initial.broker.registration.timeout.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "log.dir.failure.timeout.ms",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
        "metric.reporters",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.alter.log.dirs.threads",
        "offsets.load.buffer.size",
        "offsets.topic.compression.codec",
        "producer.purgatory.purge.interval.requests",
        "queued.max.request.bytes",
        "queued.max.requests",
        "sasl.client.callback.handler.class",
        "sasl.mechanism.controller.protocol",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
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
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "transaction.state.log.load.buffer.size",
        "unclean.leader.election.interval.ms",
        "unstable.feature.versions.enable",
    )
)
LISTENER_PREFIX: Final = "listener.name."
"""Beginning of configs that only one listener has."""
OF_THE_AUTHORIZER: Final = ("super.users", "allow.everyone.if.no.acl.found")
"""Configs that Kafka's authorizer reads; they are not in the table of broker configs."""


def without_effect(names: Iterable[str]) -> list[str]:
    """Return the configs of `names` that have no effect in Ottla, sorted; also with the prefix of a listener or mechanism."""
    return sorted(name for name in names if any(map(_has_no_effect, _without_prefixes(name))))


def _has_no_effect(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)


def _without_prefixes(name: str) -> list[str]:
    """Return a name, and what follows the prefixes of a listener and of a SASL mechanism."""
    if not name.startswith(LISTENER_PREFIX):
        return [name]
    of_listener = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    return [of_listener, of_listener.partition(".")[2]]
