"""Levels of features that all brokers of a cluster support."""

import pytest

from ottla.metadata.features import FEATURES, UPGRADE, LevelUpdate, too_new, unsupported, updated
from ottla.metadata.refusal import Refused

OWN = {feature.name: (feature.lowest, feature.highest) for feature in FEATURES}


def test_a_level_is_refused_while_a_registered_broker_does_not_support_it() -> None:
    older = {**OWN, "share.version": (0, 1)}
    update = [LevelUpdate("share.version", 2, UPGRADE)]
    assert updated({"share.version": 1}, update, 1, {1: OWN, 2: OWN}) == {"share.version": 2}
    with pytest.raises(Refused, match=r"Invalid update version 2 .* Broker 2 only supports versions 0-1"):
        updated({"share.version": 1}, update, 1, {1: OWN, 2: older})


def test_a_broker_without_registered_levels_supports_those_of_the_first_releases() -> None:
    assert unsupported("share.version", 2, {1: {}}) is None
    assert unsupported("streams.version", 1, {1: {}, 2: OWN}) == "Broker 1 does not support this feature."
    assert unsupported("streams.version", 0, {1: {}}) is None


def test_a_broker_does_not_join_a_cluster_with_a_level_that_it_does_not_support() -> None:
    assert too_new({feature.name: feature.highest for feature in FEATURES}) is None
    text = "the cluster has level 3 of share.version, and this release supports levels 0 to 2: upgrade it"
    assert too_new({"share.version": 3}) == text
