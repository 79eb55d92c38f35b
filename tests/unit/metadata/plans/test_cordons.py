"""Brokers without a log directory for new partitions (KIP-1066)."""

import json

import pytest
from tests.unit.metadata.plans.test_placement import Chance

from ottla.metadata.configs.alteration import BROKER
from ottla.metadata.image import EMPTY, BrokerImage, Image
from ottla.metadata.plans.cordons import CORDONED, cordoned_brokers
from ottla.metadata.plans.placement import ReplicaPlacer

KEY = "/brokers/1"


def image(static: tuple[str, ...] = (), dynamic: str | None = None, log_dirs: tuple[str, ...] = ("/a", "/b")) -> Image:
    registered = {
        1: BrokerImage(1, "h", 9092, None, log_dirs=log_dirs, cordoned=static),
        2: BrokerImage(2, "h", 1, None),
    }
    configs = {} if dynamic is None else {(BROKER, "1"): {CORDONED: dynamic}}
    return EMPTY._replace(registered=registered, brokers=registered, configs=configs)


@pytest.mark.parametrize("value", ["*", "/a,/b", "/b, /a"])
def test_a_broker_is_cordoned_if_all_its_directories_are(value: str) -> None:
    entries = tuple(entry.strip() for entry in value.split(","))
    assert cordoned_brokers(image(static=entries)) == {1}
    assert cordoned_brokers(image(dynamic=value)) == {1}


@pytest.mark.parametrize("value", ["", "/a"])
def test_a_broker_with_a_directory_for_new_partitions_is_not_cordoned(value: str) -> None:
    assert cordoned_brokers(image(dynamic=value)) == frozenset()


def test_a_dynamic_value_replaces_that_of_the_start() -> None:
    assert cordoned_brokers(image(static=("*",), dynamic="")) == frozenset()
    assert cordoned_brokers(image(static=("/a",), dynamic="*")) == {1}


def test_a_value_that_names_a_directory_of_earlier_is_without_effect() -> None:
    assert cordoned_brokers(image(dynamic="/a,/b", log_dirs=("/a",))) == frozenset()


def test_a_broker_of_an_earlier_release_is_cordoned_by_a_star_only() -> None:
    assert cordoned_brokers(image(dynamic="/a", log_dirs=())) == frozenset()
    assert cordoned_brokers(image(log_dirs=())) == frozenset()
    assert cordoned_brokers(image(dynamic="*", log_dirs=())) == {1}


def test_a_registration_keeps_directories_and_cordons() -> None:
    broker = BrokerImage(1, "", -1, None, log_dirs=("/a", "/b"), cordoned=("/a",))
    assert BrokerImage.decoded(KEY, 1, broker.encoded(), 0) == broker


def test_a_registration_of_an_earlier_release_names_no_directories() -> None:
    fields = json.loads(BrokerImage(1, "", -1, None).encoded())
    del fields["log_dirs"], fields["cordoned"]
    broker = BrokerImage.decoded(KEY, 1, json.dumps(fields).encode(), 0)
    assert (broker.log_dirs, broker.cordoned, broker.unknown) == ((), (), {})


@pytest.mark.parametrize("seed", range(20))
def test_no_replica_is_placed_on_a_cordoned_broker(seed: int) -> None:
    registered = {node: BrokerImage(node, "h", 9092, str(node % 2)) for node in range(5)}
    placer = ReplicaPlacer(EMPTY._replace(registered=registered, brokers=registered), Chance(seed), frozenset({0, 3}))
    placed = [placer.place(3) for _ in range(9)]
    assert all(set(partition.replicas) == {1, 2, 4} == set(partition.isr) for partition in placed)
