"""Internal topics: number of partitions, replication factor and configs."""

from typing import Final

from ottla.broker.config import BrokerConfig

_REPLICATION_FACTORS: Final = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)


def replication_factors(config: BrokerConfig, brokers: int) -> dict[str, str]:
    """Return the replication factors of internal topics in a cluster that never has more than `brokers` brokers."""
    return {name: str(min(config.integer(name), brokers)) for name in _REPLICATION_FACTORS}


def internal_topic(name: str, config: BrokerConfig) -> tuple[int, int, dict[str, str]]:
    """Return number of partitions, replication factor and config overrides of an internal topic, like Kafka's."""
    if name == "__consumer_offsets":
        return (
            config.integer("offsets.topic.num.partitions"),
            config.integer("offsets.topic.replication.factor"),
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.integer("offsets.topic.segment.bytes")),
            },
        )
    if name == "__transaction_state":
        return (
            config.integer("transaction.state.log.num.partitions"),
            config.integer("transaction.state.log.replication.factor"),
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.integer("transaction.state.log.min.isr")),
                "segment.bytes": str(config.integer("transaction.state.log.segment.bytes")),
                "unclean.leader.election.enable": "false",
            },
        )
    return (
        config.integer("share.coordinator.state.topic.num.partitions"),
        config.integer("share.coordinator.state.topic.replication.factor"),
        {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(config.integer("share.coordinator.state.topic.min.isr")),
            "retention.ms": "-1",
            "segment.bytes": str(config.integer("share.coordinator.state.topic.segment.bytes")),
        },
    )
