"""Throttles of replicas that are added, on the side of their leader and on their own (KIP-73)."""

import time
from collections.abc import Iterator, Mapping

import pytest

from ottla import Admin, ConfigChange, ConfigOperation, ConfigResource, ResourceType
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Topic

from .conftest import Cluster
from .reassigning import DONE, Shown, listed, reassign, shown, wait_for

SIDES = ("leader", "follower")
BATCHES = 6
HELD_S = 3


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers="{}:{}".format(*cluster.addresses[1])) as connected:
        yield connected


def limit(admin: Admin, side: str, nodes: tuple[int, ...], rate: int | None) -> None:
    """Set or remove the rate of some brokers."""
    name = f"{side}.replication.throttled.rate"
    change = ConfigChange(name, operation=ConfigOperation.DELETE) if rate is None else ConfigChange(name, str(rate))
    changes: Mapping[ConfigResource, list[ConfigChange]] = {
        ConfigResource(ResourceType.BROKER, str(node)): [change] for node in nodes
    }
    admin.incremental_alter_configs(changes).check()


def create_filled_topic(cluster: Cluster, **configs: str) -> Topic:
    """Return a topic on broker 1 with some megabytes."""
    topic = cluster.topic([1], [1], min_insync_replicas="1", **configs)
    for partition in (0, 1):
        for _ in range(BATCHES):
            batch = build([Record(0, time.time_ns() // 1_000_000, None, b"x" * 900_000)])
            assert topic.produce(batch, partition=partition).error_code == 0
    return topic


@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_replica_is_added_slowly(cluster: Cluster, admin: Admin, side: str) -> None:
    """Of two partitions that are added at the same time only the throttled one is held back."""
    nodes = (1,) if side == "leader" else (2,)
    throttled = create_filled_topic(cluster, **{f"{side}_replication_throttled_replicas": f"0:{nodes[0]}"})
    limit(admin, side, nodes, 1000)
    try:
        assert reassign(cluster, throttled.name, (0, [1, 2]), (1, [1, 2])) == [DONE, DONE]
        cluster.wait(lambda: (throttled.name, 1) not in listed(cluster, throttled.name, [1]))
        time.sleep(HELD_S)  # that nothing happens can only be seen by waiting
        assert (throttled.name, 0) in listed(cluster, throttled.name)
        assert shown(cluster, throttled.name) == Shown(1, 0, [1, 2], [1])
        assert throttled.append(1) == BATCHES, "producers do not wait for the new replica"
    finally:
        limit(admin, side, nodes, None)
    wait_for(cluster, throttled.name, Shown(1, 0, [1, 2], [1, 2]))


@pytest.mark.parametrize("side", SIDES)
def test_all_replicas_of_a_topic_can_be_throttled(cluster: Cluster, admin: Admin, side: str) -> None:
    throttled = create_filled_topic(cluster, **{f"{side}_replication_throttled_replicas": "*"})
    limit(admin, side, (1, 2, 3), 1000)
    try:
        assert reassign(cluster, throttled.name, (0, [2, 3])) == [DONE]
        time.sleep(HELD_S)
        assert (throttled.name, 0) in listed(cluster, throttled.name)
        limit(admin, side, (1, 2, 3), 1 << 30)
        wait_for(cluster, throttled.name, Shown(2, 1, [2, 3], [2, 3]))
    finally:
        limit(admin, side, (1, 2, 3), None)
