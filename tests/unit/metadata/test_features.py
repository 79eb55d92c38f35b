"""Levels of features that all brokers of a cluster support."""

import pytest

from ottla.metadata.features import FEATURES, UPGRADE, LevelUpdate, finalized, initial, too_new, unsupported, updated
from ottla.metadata.plans.eligibility import FEATURE as ELR
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


@pytest.mark.parametrize("features", [{}, {name: levels for name, levels in OWN.items() if name != ELR}])
def test_a_feature_is_refused_while_a_registered_broker_lacks_it(features: dict[str, tuple[int, int]]) -> None:
    update = [LevelUpdate(ELR, 1, UPGRADE)]
    with pytest.raises(Refused, match=rf"Invalid update version 1 for feature {ELR}\. Broker 2 does not support"):
        updated({}, update, 1, {1: OWN, 2: features})
    assert updated({}, [LevelUpdate(ELR, 0, UPGRADE)], 1, {1: OWN, 2: features}) == {ELR: 0}
    assert updated({}, update, 1, {1: OWN, 2: OWN}) == {ELR: 1}


def test_a_new_cluster_stores_all_levels_and_one_without_levels_has_those_of_the_first_release() -> None:
    first = {"metadata.version": 33, "group.version": 1, "share.version": 2, "transaction.version": 2}
    assert initial() == {**first, "kraft.version": 0, ELR: 1, "streams.version": 1}
    assert dict(finalized({})) == first


def test_a_broker_does_not_join_a_cluster_with_a_level_that_it_does_not_support() -> None:
    assert too_new({feature.name: feature.highest for feature in FEATURES}) is None
    text = "the cluster has level 3 of share.version, and this release supports levels 0 to 2: upgrade it"
    assert too_new({"share.version": 3}) == text
    text = "the cluster uses future.version, which this release does not have: upgrade it"
    assert too_new({**initial(), "future.version": 1}) == text
    assert too_new({**initial(), "future.version": 0}) is None
