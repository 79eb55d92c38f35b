"""Placement of replicas over racks and brokers, as Kafka's StripedReplicaPlacer does it."""

import random
from collections import Counter

import pytest

from ottla.metadata.image import EMPTY, NO_LEADER, BrokerImage, Image, Liveness, TopicImage
from ottla.metadata.plans.placement import ReplicaPlacer, assigned
from ottla.metadata.plans.topics import RequestedTopic, TopicBatch, TopicPlans
from ottla.metadata.refusal import Refused
from ottla.protocol.errors import INVALID_REPLICATION_FACTOR


class Chance:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bytes16(self) -> bytes:
        return self._random.randbytes(16)

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)


def cluster(racks: dict[int, str | None], fenced: tuple[int, ...] = ()) -> Image:
    registered = {node: BrokerImage(node, "h", 9092, rack) for node, rack in racks.items()}
    return EMPTY._replace(registered=registered, brokers={n: b for n, b in registered.items() if n not in fenced})


@pytest.mark.parametrize("seed", range(20))
def test_leaders_and_replicas_are_spread_evenly(seed: int) -> None:
    placer = ReplicaPlacer(cluster(dict.fromkeys(range(5))), Chance(seed))
    placed = [placer.place(3) for _ in range(20)]
    assert Counter(partition.leader for partition in placed) == dict.fromkeys(range(5), 4)
    assert Counter(node for partition in placed for node in partition.replicas) == dict.fromkeys(range(5), 12)
    assert all(len(set(partition.replicas)) == 3 for partition in placed)
    assert all(partition.isr == partition.replicas for partition in placed)


@pytest.mark.parametrize("seed", range(20))
def test_a_partition_has_its_replicas_in_different_racks(seed: int) -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    placer = ReplicaPlacer(cluster(racks), Chance(seed))
    placed = [placer.place(3) for _ in range(18)]
    assert all({racks[node] for node in partition.replicas} == {"a", "b", "c"} for partition in placed)
    assert Counter(partition.leader for partition in placed) == dict.fromkeys(range(6), 3)


@pytest.mark.parametrize("seed", range(20))
def test_fenced_brokers_come_last_and_never_lead(seed: int) -> None:
    placer = ReplicaPlacer(cluster(dict.fromkeys(range(4)), fenced=(1, 2)), Chance(seed))
    for _ in range(8):
        partition = placer.place(3)
        assert partition.leader in (0, 3)
        assert set(partition.replicas[:2]) == {0, 3}
        assert set(partition.isr) == {0, 3}


def test_brokers_that_stop_get_no_leadership_and_are_in_no_isr() -> None:
    image = cluster(dict.fromkeys(range(3)))
    image = image._replace(live={node: Liveness("i", 1, 1, is_stopping=node == 1) for node in range(3)})
    assert image.active == {0, 2}
    placer = ReplicaPlacer(image, Chance(1))
    placed = [placer.place(3) for _ in range(6)]
    assert {partition.leader for partition in placed} == {0, 2}
    assert all(partition.replicas[2] == 1 and set(partition.isr) == {0, 2} for partition in placed)


def test_a_new_partition_without_a_live_replica_has_no_leader() -> None:
    partition = assigned([2, 1], {})
    assert (partition.isr, partition.leader, partition.replicas) == ((), NO_LEADER, (2, 1))


def test_topics_are_refused_while_all_brokers_are_fenced() -> None:
    """Kafka 4.x gives the same answer; the search for a live broker never ended."""
    image = cluster({1: None, 2: None}, fenced=(1, 2))
    plans = TopicPlans(lambda: image, Chance(1), lambda: 1, lambda: 1)
    with pytest.raises(Refused, match=r"1 time\(s\): All brokers are currently fenced") as refused:
        plans.plan(RequestedTopic("t", 3, 1, {}, {}), TopicBatch())
    assert refused.value.code == INVALID_REPLICATION_FACTOR
    topic = TopicImage("t", bytes(16), (assigned([1], image.registered),), {})
    with pytest.raises(Refused, match="All brokers are currently fenced"):
        plans.grow(topic, 2, None)
