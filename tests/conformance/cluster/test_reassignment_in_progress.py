"""Reassignments to a broker that is stopped: they are in progress, are replaced and cancelled, and end when it is back."""

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.records.batch import build
from ottla.records.record import Record

from .brokers import Brokers
from .conftest import Cluster, partition_of
from .reassigning import DONE, Ongoing, Outcome, Shown, listed, reassign, shown, wait_for

NOT_IN_PROGRESS: Outcome = ("NO_REASSIGNMENT_IN_PROGRESS", None)


@pytest.fixture(scope="module")
def cluster(brokers: Brokers) -> Iterator[Cluster]:
    connected = Cluster(brokers)
    connected.stop(3)
    yield connected
    connected.start(3)
    connected.close()


def begin(cluster: Cluster, topic: str, *replicas: int) -> Ongoing:
    """Begin a reassignment of partition 0 that cannot end; return it as it is listed."""
    assert reassign(cluster, topic, (0, replicas)) == [DONE]
    cluster.wait(lambda: list(listed(cluster, topic)) == [(topic, 0)])
    return listed(cluster, topic)[topic, 0]


def test_adding_and_removing_replicas(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2], [1, 2]).name
    assert begin(cluster, topic, 1, 3) == Ongoing([1, 3, 2], [3], [2])
    assert shown(cluster, topic) == Shown(1, 0, [1, 3, 2], [1, 2])
    assert list(partition_of(cluster.described(topic), 0).offline_replicas) == [3]
    assert (topic, 0) in listed(cluster, None)
    assert list(listed(cluster, topic, [1, 0, 9], via=2)) == [(topic, 0)]
    assert reassign(cluster, topic, (0, None), (1, None)) == [DONE, NOT_IN_PROGRESS]
    wait_for(cluster, topic, Shown(1, 1, [1, 2], [1, 2]))
    assert reassign(cluster, topic, (0, None)) == [NOT_IN_PROGRESS]


def test_a_reassignment_replaces_another(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2]).name
    assert begin(cluster, topic, 1, 3) == Ongoing([1, 3, 2], [3], [2])
    assert begin(cluster, topic, 3, 2) == Ongoing([3, 2, 1], [3], [1])
    assert begin(cluster, topic, 3) == Ongoing([3, 1, 2], [3], [1, 2])
    assert shown(cluster, topic) == Shown(1, 0, [3, 1, 2], [1, 2])
    assert reassign(cluster, topic, (0, None)) == [DONE]
    wait_for(cluster, topic, Shown(1, 1, [1, 2], [1, 2]))


def test_the_replication_factor_is_that_of_the_target(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2]).name
    begin(cluster, topic, 3)
    refused = "INVALID_REPLICATION_FACTOR", "The replication factor is changed from 1 to 2"
    assert reassign(cluster, topic, (0, [1, 3]), may_change_factor=False) == [refused]
    assert reassign(cluster, topic, (0, [3]), may_change_factor=False) == [DONE]
    assert reassign(cluster, topic, (0, None)) == [DONE]


def test_a_target_out_of_sync_is_waited_for_although_it_is_no_new_replica(cluster: Cluster) -> None:
    topic = cluster.topic([1, 3, 2]).name
    cluster.wait_for_isr(topic, 1, 2)
    assert begin(cluster, topic, 1, 3) == Ongoing([1, 3, 2], [], [2])
    assert reassign(cluster, topic, (0, None)) == [DONE]
    wait_for(cluster, topic, Shown(1, 0, [1, 3, 2], [1, 2]))


def test_new_partitions_have_as_many_replicas_as_the_first_one_has_now(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2]).name
    begin(cluster, topic, 1, 3)
    request = CreatePartitionsRequest(timeout_ms=10_000, topics=[CreatePartitionsTopic(name=topic, count=2)])
    request.topics[0].assignments = None
    assert cluster[1].send(request, 3).results[0].error_code == NONE
    cluster.wait(lambda: len(cluster.described(topic).partitions) == 2)
    assert len(partition_of(cluster.described(topic), 1).replica_nodes) == 3


def test_min_insync_replicas_counts_new_replicas_from_the_beginning(cluster: Cluster) -> None:
    topic = cluster.topic([1], min_insync_replicas="2")
    assert topic.append(1) == 0
    begin(cluster, topic.name, 1, 3)
    records = build([Record(0, 1_700_000_000_000, None, b"v")])
    cluster.wait(lambda: name_of(topic.produce(records).error_code) == "NOT_ENOUGH_REPLICAS")
    assert reassign(cluster, topic.name, (0, None)) == [DONE]
    cluster.wait(lambda: name_of(topic.produce(records).error_code) == "NONE")


def test_the_present_replicas_end_a_reassignment(cluster: Cluster) -> None:
    """Apache Kafka 4.4 shows the new replica as added and removed, until the reassignment is cancelled."""
    topic = cluster.topic([1, 2]).name
    begin(cluster, topic, 3, 1, 2)
    assert reassign(cluster, topic, (0, [2, 1])) == [DONE]
    if cluster.is_kafka:
        assert listed(cluster, topic) == {(topic, 0): Ongoing([2, 1, 3], [3], [3])}
        assert reassign(cluster, topic, (0, None)) == [DONE]
    wait_for(cluster, topic, Shown(1, 1, [2, 1], [1, 2]))


def test_a_cancellation_restores_the_replicas_before_all_reassignments(cluster: Cluster) -> None:
    """Apache Kafka 4.4 keeps the replica that the reassignment before has added."""
    topic = cluster.topic([1]).name
    begin(cluster, topic, 3)
    assert begin(cluster, topic, 2, 3) == Ongoing([2, 3, 1], [2] if cluster.is_kafka else [2, 3], [1])
    assert reassign(cluster, topic, (0, None)) == [DONE]
    kept = [3, 1] if cluster.is_kafka else [1]
    cluster.wait(lambda: shown(cluster, topic).replicas == kept)


def test_a_replica_that_was_to_be_removed_may_stay(cluster: Cluster) -> None:
    """Apache Kafka 4.4 goes on to remove it."""
    topic = cluster.topic([1]).name
    begin(cluster, topic, 3)
    assert begin(cluster, topic, 3, 1) == Ongoing([3, 1], [3], [1] if cluster.is_kafka else [])
    assert reassign(cluster, topic, (0, None)) == [DONE]


def test_reassignments_go_on_when_the_broker_is_back(cluster: Cluster) -> None:
    moved, led, cancelled = cluster.topic([1, 2]), cluster.topic([1]), cluster.topic([1, 2])
    for topic in (moved, led, cancelled):
        topic.append(5)
    begin(cluster, moved.name, 1, 3)
    begin(cluster, led.name, 3)
    begin(cluster, cancelled.name, 3)
    assert reassign(cluster, cancelled.name, (0, None)) == [DONE]
    cluster.start(3)
    wait_for(cluster, moved.name, Shown(1, 1, [1, 3], [1, 3]))
    wait_for(cluster, led.name, Shown(3, 1, [3], [3]))
    wait_for(cluster, cancelled.name, Shown(1, 1, [1, 2], [1, 2]))
    cluster.stop(3)  # as the other tests of this module have it
