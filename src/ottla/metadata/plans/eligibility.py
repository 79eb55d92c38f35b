"""Eligible leader replicas (KIP-966): the feature, and the min.insync.replicas that states of partitions should have.

The state of a partition has the min.insync.replicas in force: leader and controller use that value, not their own view of the
config. Where the two differ the leader writes the state again. So a changed config, or another level of the feature, reaches
each partition in one change of its state, and a partition without a leader once it has one.

With the feature every topic has the same min.insync.replicas on all brokers: there is a value for all brokers, which cannot be
removed, and no value for one broker.
"""

from collections.abc import Mapping
from typing import Final

from ottla.metadata.configs import InvalidConfig, Scope, config, parse
from ottla.metadata.configs.alteration import BROKER
from ottla.metadata.features import feature_level
from ottla.metadata.image import Image
from ottla.metadata.store import keys

FEATURE: Final = "eligible.leader.replicas.version"


def has_elr(image: Image) -> bool:
    """Return True if the feature is on."""
    return feature_level(image.features, FEATURE) > 0


def min_isr_of(image: Image, configs: Mapping[str, str]) -> int:
    """Return the `min_isr` that partitions of a topic with these configs should have; 0 while the feature is off."""
    if not has_elr(image):
        return 0
    for texts in (configs, image.configs_of(BROKER, "")):
        try:
            value = parse(config(Scope.TOPIC, keys.MIN_ISR), texts[keys.MIN_ISR])
        except (KeyError, InvalidConfig):  # not set; or stored by an earlier version: without effect everywhere
            continue
        assert isinstance(value, int)
        return value
    return 1


def required_configs(image: Image, static_min_isr: int) -> dict[str, Mapping[str, str]]:
    """Return the configs of brokers, by node id as text or "" for all, that must change before the feature is turned on.

    static_min_isr  value for all brokers, if none is set
    """
    changed: dict[str, Mapping[str, str]] = {}
    for_all = image.configs_of(BROKER, "")
    if keys.MIN_ISR not in for_all:
        changed[""] = {**for_all, keys.MIN_ISR: str(static_min_isr)}
    for (kind, name), texts in image.configs.items():
        if kind == BROKER and name and keys.MIN_ISR in texts:
            changed[name] = {key: text for key, text in texts.items() if key != keys.MIN_ISR}
    return changed
