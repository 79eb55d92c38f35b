"""Eligible leader replicas: the value that states of partitions should have, and what turning the feature on requires."""

from collections.abc import Mapping

import pytest

from ottla.metadata.configs import BrokerValues
from ottla.metadata.configs.alteration import BROKER, DELETE, SET, Edit, check_set
from ottla.metadata.features import finalized, initial
from ottla.metadata.image import EMPTY, Image, PartitionImage, TopicImage
from ottla.metadata.image.deltas import advanced, loaded
from ottla.metadata.image.stored import stored
from ottla.metadata.plans.eligibility import FEATURE, has_elr, min_isr_of, required_configs
from ottla.metadata.refusal import Refused
from ottla.metadata.store import Entry, Snapshot, keys

_ON = {FEATURE: 1}


def image(configs: Mapping[str, Mapping[str, str]], features: Mapping[str, int] = _ON) -> Image:
    """Return an image with configs of brokers, by node id as text or "" for all."""
    return EMPTY._replace(configs={(BROKER, name): texts for name, texts in configs.items()}, features=features)


def test_new_clusters_have_the_feature_and_those_of_earlier_releases_have_not() -> None:
    assert has_elr(image({}, initial()))
    assert not has_elr(image({}, {}))
    assert FEATURE not in dict(finalized({}))
    assert initial({})[FEATURE] == 1
    assert initial({FEATURE: 0})[FEATURE] == 0


def test_the_value_is_that_of_the_topic_or_of_the_cluster() -> None:
    shared = {"": {keys.MIN_ISR: "2"}}
    assert min_isr_of(image(shared), {}) == 2
    assert min_isr_of(image(shared), {keys.MIN_ISR: "3"}) == 3
    assert min_isr_of(image({}), {}) == 1
    assert min_isr_of(image(shared, {}), {keys.MIN_ISR: "3"}) == 0, "without the feature no state has a value"


def test_the_feature_requires_one_value_for_all_brokers() -> None:
    before = image({"1": {keys.MIN_ISR: "1", "log.retention.ms": "7"}, "2": {keys.MIN_ISR: "1"}}, {})
    assert required_configs(before, 2) == {"": {keys.MIN_ISR: "2"}, "1": {"log.retention.ms": "7"}, "2": {}}
    kept = image({"": {keys.MIN_ISR: "3", "log.retention.ms": "7"}, "1": {"log.retention.ms": "8"}}, {})
    assert required_configs(kept, 2) == {}


@pytest.mark.parametrize(
    ("name", "current", "texts", "edit", "is_refused"),
    [
        ("1", {}, {keys.MIN_ISR: "1"}, Edit(keys.MIN_ISR, SET, "1"), True),
        ("1", {}, {}, Edit(keys.MIN_ISR, DELETE, None), True),
        ("", {keys.MIN_ISR: "2"}, {}, Edit(keys.MIN_ISR, DELETE, None), True),
        ("", {keys.MIN_ISR: "2"}, {"log.retention.ms": "7"}, Edit("log.retention.ms", SET, "7"), True),
        ("", {keys.MIN_ISR: "2"}, {keys.MIN_ISR: "1"}, Edit(keys.MIN_ISR, SET, "1"), False),
        ("1", {keys.MIN_ISR: "2"}, {}, Edit("log.retention.ms", DELETE, None), False),
    ],
)
def test_configs_are_refused_only_with_the_feature(
    name: str, current: dict[str, str], texts: dict[str, str], edit: Edit, is_refused: bool
) -> None:
    values = BrokerValues({})
    check_set(BROKER, name, current, texts, [edit], values, has_elr=False)
    if is_refused:
        with pytest.raises(Refused, match="while ELR is enabled"):
            check_set(BROKER, name, current, texts, [edit], values, has_elr=True)
    else:
        check_set(BROKER, name, current, texts, [edit], values, has_elr=True)


def test_partitions_of_a_new_topic_have_its_value_without_a_key() -> None:
    partitions = tuple(PartitionImage.new((1, 2), 2) for _ in range(3))
    topic = TopicImage("t", bytes(range(16)), partitions, {}, min_isr=2)
    entries = stored(topic)
    assert list(entries) == ["/topics/t"]
    before = loaded(Snapshot([Entry(key, value, 1, 1) for key, value in entries.items()], 1))
    assert before.topics["t"] == topic
    # A changed config does not change the states.
    changed = topic._replace(configs={keys.MIN_ISR: "1"})
    after = advanced(before, 2, [Entry("/topics/t", changed.encoded(), 2, 1)]).image
    assert [partition.min_isr for partition in after.topics["t"].partitions] == [2, 2, 2]
    other = topic.with_partition(1, partitions[1]._replace(min_isr=1, epoch=1))
    assert list(stored(other)) == ["/topics/t", keys.partition_key(topic.id, 1)]
