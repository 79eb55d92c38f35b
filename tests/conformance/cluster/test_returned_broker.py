"""A broker that was stopped, and is started again."""

import uuid

from ottla.protocol.errors import name_of
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

from .conftest import Cluster, create, partition_of


def test_a_returned_broker_leads_again_after_a_preferred_election(cluster: Cluster) -> None:
    topic = cluster.topic([3, 1, 2])
    cluster.stop(3)
    assert partition_of(cluster.described(topic.name), 0).leader_id == 1
    cluster.start(3)
    cluster.wait_for_isr(topic.name, 1, 2, 3)
    partitions = TopicPartitions(topic=topic.name, partitions=[0])
    request = ElectLeadersRequest(election_type=0, topic_partitions=[partitions], timeout_ms=10_000)
    (result,) = cluster[1].send(request, 2).replica_election_results
    (row,) = result.partition_result
    assert (name_of(row.error_code), row.error_message) == ("NONE", None)
    cluster.wait(lambda: partition_of(cluster.described(topic.name), 0).leader_id == 3)
    assert partition_of(cluster.described(topic.name), 0).leader_epoch == 2


def test_a_partition_with_one_replica_has_a_leader_again(cluster: Cluster) -> None:
    topic = cluster.topic([3])
    topic.append(3)
    cluster.stop(3)
    cluster.wait(lambda: partition_of(cluster.described(topic.name), 0).leader_id == -1)
    cluster.start(3)
    cluster.wait(lambda: partition_of(cluster.described(topic.name), 0).leader_id == 3)
    row = partition_of(cluster.described(topic.name), 0)
    assert (row.leader_epoch, list(row.isr_nodes), list(row.offline_replicas)) == (2, [3], [])


def test_a_partition_whose_replicas_stop_in_turn_is_led_by_the_last(cluster: Cluster) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    assert create(cluster[1], name, [[3, 2]], min_insync_replicas="1").error_code == 0
    cluster.wait_for_isr(name, 2, 3)
    cluster.stop(3)
    cluster.wait(lambda: partition_of(cluster.described(name), 0).leader_id == 2)
    row = partition_of(cluster.described(name), 0)
    assert (row.leader_epoch, list(row.isr_nodes), list(row.offline_replicas)) == (1, [2], [3])
    cluster.start(3)
    cluster.wait_for_isr(name, 2, 3)
    assert partition_of(cluster.described(name), 0).leader_id == 2
