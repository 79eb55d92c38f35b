"""Group types that a broker serves, by feature levels and group.coordinator.rebalance.protocols."""

from collections.abc import Mapping

from ottla.broker.config import BrokerConfig
from ottla.metadata.features import feature_level


def serves_consumer_groups(config: BrokerConfig, features: Mapping[str, int]) -> bool:
    """Return whether group.coordinator.rebalance.protocols contains "consumer" and group.version is not 0."""
    return "consumer" in config["group.coordinator.rebalance.protocols"] and features.get("group.version", 1) > 0


def serves_streams_groups(config: BrokerConfig, features: Mapping[str, int]) -> bool:
    """Return whether group.coordinator.rebalance.protocols contains "streams" and streams.version is not 0."""
    has_protocol = "streams" in config["group.coordinator.rebalance.protocols"]
    return has_protocol and feature_level(features, "streams.version") > 0


def serves_share_groups(features: Mapping[str, int]) -> bool:
    """Return whether share.version is not 0."""
    return feature_level(features, "share.version") > 0
