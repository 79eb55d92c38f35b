"""Requests while one of three brokers is stopped: metadata, produce, elections, creation of topics, unregistration."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.records.batch import build
from ottla.records.record import Record
from tests.conformance.conftest import Topic

from .brokers import NODES, Brokers
from .conftest import Cluster, create, fetch, partition_of

NAMES = {
    "moved": [[3, 1, 2], [1, 2, 3]],
    "single": [[3]],
    "strict": [[1, 2, 3]],
    "pair": [[3, 1]],
}


@pytest.fixture(scope="module")
def topics() -> dict[str, Topic]:
    return {}


@pytest.fixture(scope="module")
def cluster(brokers: Brokers, topics: dict[str, Topic]) -> Iterator[Cluster]:
    """The cluster while broker 3 is stopped, with topics that have replicas on it."""
    connected = Cluster(brokers)
    for kind, assignment in NAMES.items():
        topics[kind] = connected.topic(*assignment, **({"min_insync_replicas": "3"} if kind == "strict" else {}))
    connected.stop(3)
    yield connected
    connected.start(3)
    connected.close()


def elect(cluster: Cluster, kind: int, topic: str, *indexes: int) -> list[tuple[str, str | None]]:
    """Return (error, message) of the partitions."""
    row = TopicPartitions(topic=topic, partitions=list(indexes))
    request = ElectLeadersRequest(election_type=kind, topic_partitions=[row], timeout_ms=10_000)
    answer = cluster[1].send(request, 2)
    assert answer.error_code == 0
    (result,) = answer.replica_election_results
    outcomes = {
        partition.partition_id: (name_of(partition.error_code), partition.error_message)
        for partition in result.partition_result
    }
    return [outcomes[index] for index in indexes]


def shown(row: Any) -> tuple[str, int, int, list[int], list[int], list[int]]:
    return (
        name_of(row.error_code),
        row.leader_id,
        row.leader_epoch,
        list(row.replica_nodes),
        list(row.isr_nodes),
        list(row.offline_replicas),
    )


def test_metadata(cluster: Cluster, topics: dict[str, Topic]) -> None:
    for node_id in (1, 2):
        assert cluster.listed(node_id) == [1, 2]
        moved = cluster.described(topics["moved"].name, node_id)
        assert shown(partition_of(moved, 0)) == ("NONE", 1, 1, [3, 1, 2], [1, 2], [3])
        assert shown(partition_of(moved, 1))[:2] == ("NONE", 1)
        assert shown(partition_of(moved, 1))[3:] == ([1, 2, 3], [1, 2], [3])
        single = cluster.described(topics["single"].name, node_id)
        isr = [] if cluster.has_eligible_replicas else [3]
        assert shown(partition_of(single, 0)) == ("LEADER_NOT_AVAILABLE", -1, 1, [3], isr, [3])


def test_partitions_described_while_a_broker_is_stopped(cluster: Cluster, topics: dict[str, Topic]) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topics["single"].name)])
    (row,) = cluster[1].send(request, 0).topics[0].partitions
    isr = [] if cluster.has_eligible_replicas else [3]
    assert shown(row) == ("NONE", -1, 1, [3], isr, [3])


@pytest.mark.parametrize(("version", "epoch"), [(15, -1), (16, 1), (17, 1)])
def test_a_fetch_of_a_partition_without_a_leader(
    cluster: Cluster, topics: dict[str, Topic], version: int, epoch: int
) -> None:
    row = fetch(cluster[1], topics["single"], 0, version)
    assert name_of(row.error_code) == "NOT_LEADER_OR_FOLLOWER"
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (-1, epoch)


def test_acks_all_below_min_insync_replicas(cluster: Cluster, topics: dict[str, Topic]) -> None:
    strict = topics["strict"]
    strict.wire = cluster[1]
    records = build([Record(0, 1_700_000_000_000, None, b"v")])
    cluster.wait_for_isr(strict.name, 1, 2)
    refused = strict.produce(records)
    assert (name_of(refused.error_code), refused.base_offset, refused.error_message) == (
        "NOT_ENOUGH_REPLICAS",
        -1,
        None,
    )
    assert refused.log_start_offset == 0
    accepted = strict.produce(records, acks=1)
    assert (name_of(accepted.error_code), accepted.base_offset) == ("NONE", 0)
    assert name_of(strict.produce(records).error_code) == "NOT_ENOUGH_REPLICAS"


def test_elections(cluster: Cluster, topics: dict[str, Topic]) -> None:
    not_needed = ("ELECTION_NOT_NEEDED", "Leader election not needed for topic partition.")
    moved, single = topics["moved"].name, topics["single"].name
    not_available = ("PREFERRED_LEADER_NOT_AVAILABLE", "The preferred leader was not available.")
    assert elect(cluster, 0, moved, 0, 1) == [not_available, not_needed]
    assert elect(cluster, 1, moved, 0, 1) == [not_needed, not_needed]
    none_eligible = (
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "Eligible topic partition leaders are not available.",
    )
    assert elect(cluster, 0, single, 0) == [not_available]
    assert elect(cluster, 1, single, 0) == [none_eligible]


def test_a_manual_assignment_to_a_stopped_broker(cluster: Cluster) -> None:
    created = create(cluster[1], f"t-{uuid.uuid4().hex[:12]}", [[3]])
    assert (name_of(created.error_code), created.error_message) == (
        "INVALID_REPLICA_ASSIGNMENT",
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown.",
    )
    name = f"t-{uuid.uuid4().hex[:12]}"
    created = create(cluster[1], name, [[3, 2]])
    assert (name_of(created.error_code), created.error_message) == ("NONE", None)
    cluster.wait(lambda: name_of(cluster.described(name).error_code) == "NONE")
    cluster.wait(lambda: partition_of(cluster.described(name), 0).leader_id == 2)
    assert shown(partition_of(cluster.described(name), 0)) == ("NONE", 2, 0, [3, 2], [2], [3])
    created = create(cluster[1], f"t-{uuid.uuid4().hex[:12]}", [[1, 9]])
    assert (name_of(created.error_code), created.error_message) == (
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    )


def test_a_replication_factor_above_the_number_of_brokers(cluster: Cluster) -> None:
    topic = CreatableTopic(name=f"t-{uuid.uuid4().hex[:12]}", num_partitions=2, replication_factor=4)
    created = cluster[1].send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0]
    assert (name_of(created.error_code), created.error_message) == (
        "INVALID_REPLICATION_FACTOR",
        "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because only "
        "3 broker(s) are registered or some brokers have all their log directories cordoned.",
    )


def test_replicas_on_a_stopped_broker(cluster: Cluster) -> None:
    """The stopped broker is still registered: it gets replicas, which are offline."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    topic = CreatableTopic(name=name, num_partitions=3, replication_factor=3)
    created = cluster[1].send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0]
    assert (name_of(created.error_code), created.replication_factor) == ("NONE", 3)
    cluster.wait(lambda: name_of(cluster.described(name).error_code) == "NONE")
    for row in cluster.described(name).partitions:
        assert sorted(row.replica_nodes) == list(NODES)
        assert row.leader_id == next(node_id for node_id in row.replica_nodes if node_id != 3)
        assert (sorted(row.isr_nodes), list(row.offline_replicas)) == ([1, 2], [3])


def test_an_unknown_broker_is_not_unregistered(cluster: Cluster) -> None:
    answer = cluster[1].send(UnregisterBrokerRequest(broker_id=77), 0)
    assert (name_of(answer.error_code), answer.error_message) == (
        "BROKER_ID_NOT_REGISTERED",
        "Broker ID 77 is not currently registered",
    )
