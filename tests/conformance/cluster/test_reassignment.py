"""AlterPartitionReassignments and ListPartitionReassignments with three brokers that are all up."""

import time

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

from .conftest import Cluster, fetch, list_offset
from .reassigning import DONE, Shown, listed, reassign, shown, wait_for

INVALID = "INVALID_REPLICA_ASSIGNMENT"
UNREGISTERED = "The manual partition assignment includes broker {}, but no such broker is registered."


@pytest.mark.parametrize("version", [0, 1])
def test_replicas_that_a_partition_cannot_have(cluster: Cluster, version: int) -> None:
    topic = cluster.topic([1, 2]).name
    for replicas, text in (
        ([], "The manual partition assignment includes an empty replica list."),
        ([2, 1, 2], "The manual partition assignment includes the broker 2 more than once."),
        ([77], UNREGISTERED.format(77)),
        ([1, -5], UNREGISTERED.format(-5)),
        ([1, 77, 77], UNREGISTERED.format(77)),
    ):
        assert reassign(cluster, topic, (0, replicas), version=version) == [(INVALID, text)]
    assert shown(cluster, topic) == Shown(1, 0, [1, 2], [1, 2])


def test_each_partition_has_its_own_outcome(cluster: Cluster) -> None:
    topic = cluster.topic([1], [1]).name
    outcomes = reassign(cluster, topic, (0, [2]), (9, [2]), (1, []), (1, None))
    assert outcomes == [
        DONE,
        ("UNKNOWN_TOPIC_OR_PARTITION", f"Unable to find partition {topic}:9."),
        (INVALID, "The manual partition assignment includes an empty replica list."),
        ("NO_REASSIGNMENT_IN_PROGRESS", None),
    ]
    wait_for(cluster, topic, Shown(2, 1, [2], [2]))
    unknown = ("UNKNOWN_TOPIC_OR_PARTITION", "Unable to find a topic named no-such.")
    assert reassign(cluster, "no-such", (0, [1]), (0, None)) == [unknown, unknown]


def test_the_last_of_two_reassignments_in_a_request_counts(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2]).name
    assert reassign(cluster, topic, (0, [1, 3]), (0, [2, 3])) == [DONE, DONE]
    wait_for(cluster, topic, Shown(2, 1, [2, 3], [2, 3]))


def test_an_empty_request(cluster: Cluster) -> None:
    answer = cluster[1].send(AlterPartitionReassignmentsRequest(topics=[]), 1)
    assert (answer.error_code, answer.error_message, answer.responses) == (0, "", [])


@pytest.mark.parametrize("via", [1, 2, 3])
def test_several_moves(cluster: Cluster, via: int) -> None:
    """The leader epoch increases when a replica leaves, or the leader changes, and never else."""
    topic = cluster.topic([1, 2])
    assert topic.append(3, timestamp=time.time_ns() // 1_000_000) == 0
    for replicas, expected in (
        ([1, 2], Shown(1, 0, [1, 2], [1, 2])),
        ([2, 1], Shown(1, 0, [2, 1], [1, 2])),
        ([2, 1, 3], Shown(1, 0, [2, 1, 3], [1, 2, 3])),
        ([3, 1, 2], Shown(1, 0, [3, 1, 2], [1, 2, 3])),
        ([3, 1], Shown(1, 1, [3, 1], [1, 3])),
        ([3, 2], Shown(3, 2, [3, 2], [2, 3])),
        ([1], Shown(1, 3, [1], [1])),
        ([2, 3], Shown(2, 4, [2, 3], [2, 3])),
    ):
        assert reassign(cluster, topic.name, (0, replicas), via=via) == [DONE]
        wait_for(cluster, topic.name, expected)
        leader = expected.leader
        cluster.wait(lambda leader=leader: list_offset(cluster[leader], topic.name, -1) == (0, 3))  # type: ignore[misc]
        topic.wire = cluster[leader]
        row = fetch(cluster[leader], topic, 0)
        assert (name_of(row.error_code), len(row.records) > 0) == ("NONE", True)
    assert topic.append(1) == 3
    cluster.wait(lambda: list_offset(cluster[1], topic.name, -1)[0] != 0)
    assert name_of(list_offset(cluster[1], topic.name, -1)[0]) == "NOT_LEADER_OR_FOLLOWER"


def test_the_replication_factor_may_be_kept(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2]).name
    for replicas, count in (([1], 1), ([1, 2, 3], 3)):
        refused = "INVALID_REPLICATION_FACTOR", f"The replication factor is changed from 2 to {count}"
        assert reassign(cluster, topic, (0, replicas), may_change_factor=False) == [refused]
    twice = "The manual partition assignment includes the broker 2 more than once."
    assert reassign(cluster, topic, (0, [1, 2, 2]), may_change_factor=False) == [(INVALID, twice)]
    assert reassign(cluster, topic, (0, [2, 3]), may_change_factor=False) == [DONE]
    wait_for(cluster, topic, Shown(2, 1, [2, 3], [2, 3]))


def test_nothing_is_listed_at_rest(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2], [3, 1]).name
    assert listed(cluster, topic, [0, 1, 9]) == listed(cluster, "no-such") == {}
    assert (topic, 0) not in listed(cluster, None)


def test_the_preferred_leader_is_the_first_of_the_new_replicas(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2]).name
    assert reassign(cluster, topic, (0, [3, 1])) == [DONE]
    wait_for(cluster, topic, Shown(1, 1, [3, 1], [1, 3]))
    row = TopicPartitions(topic=topic, partitions=[0])
    request = ElectLeadersRequest(election_type=0, topic_partitions=[row], timeout_ms=10_000)
    answer = cluster[1].send(request, 2)
    assert name_of(answer.replica_election_results[0].partition_result[0].error_code) == "NONE"
    wait_for(cluster, topic, Shown(3, 2, [3, 1], [1, 3]))
