"""Fetch of followers: which replicas are accepted, what they see, and what a fetch commits."""

import pytest

from ottla.protocol.errors import name_of
from ottla.records.batch import build, records_of
from ottla.records.record import Record

from .conftest import Cluster, fetch, list_offset

CLASSIC, CURRENT = 14, 17
"""Versions with the replica id as a field, and in a tagged structure."""


def error(row: object) -> str:
    return name_of(row.error_code)  # type: ignore[attr-defined]


def offsets(row: object) -> list[int]:
    return [record.offset for record in records_of(bytes(row.records or b""))]  # type: ignore[attr-defined]


@pytest.mark.parametrize("at", [CLASSIC, CURRENT])
@pytest.mark.parametrize("replica", [3, 99])
def test_a_replica_that_is_not_assigned(cluster: Cluster, at: int, replica: int) -> None:
    topic = cluster.topic([1, 2])
    assert error(fetch(cluster[1], topic, 0, at, replica=replica)) == "NOT_LEADER_OR_FOLLOWER"
    assert error(fetch(cluster[1], topic, 0, at, replica=replica, current_leader_epoch=0)) == "UNKNOWN_LEADER_EPOCH"
    assert error(fetch(cluster[1], topic, 0, at, replica=replica, current_leader_epoch=1)) == "UNKNOWN_LEADER_EPOCH"


def test_a_broker_epoch_of_an_earlier_registration(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    assert error(fetch(cluster[1], topic, 0, replica=2, broker_epoch=0)) == "NOT_LEADER_OR_FOLLOWER"
    assert error(fetch(cluster[1], topic, 0, replica=2, broker_epoch=-1)) == "NONE"


@pytest.mark.parametrize("at", [CLASSIC, CURRENT])
def test_a_follower_reads_up_to_the_log_end(cluster: Cluster, at: int) -> None:
    """Two of three replicas exist: with min.insync.replicas 3 nothing is committed."""
    topic = cluster.topic([1, 2, 3], min_insync_replicas="3")
    cluster.stop(3)
    try:
        cluster.wait_for_isr(topic.name, 1, 2)
        assert topic.produce(batch(2), acks=1).error_code == 0
        row = fetch(cluster[1], topic, 0, at, replica=2)
        assert (error(row), row.high_watermark, row.last_stable_offset) == ("NONE", 0, 0)
        assert offsets(row) == [0, 1]
        row = fetch(cluster[1], topic, 0, at)
        assert (error(row), row.high_watermark, offsets(row)) == ("NONE", 0, [])
        # A consumer at the leader, above the high watermark.
        row = fetch(cluster[1], topic, 1, at)
        assert (error(row), row.high_watermark, offsets(row)) == ("NONE", 0, [])
        assert error(fetch(cluster[1], topic, 3, at)) == "OFFSET_OUT_OF_RANGE"
        # A debugging replica reads what a consumer reads.
        row = fetch(cluster[1], topic, 0, at, replica=-2)
        assert (error(row), row.high_watermark, offsets(row)) == ("NONE", 0, [])
        # The other replica, which has both records by now.
        cluster.wait(lambda: list_offset(cluster[2], topic.name, -1, replica=-2) == (0, 2))
        row = fetch(cluster[2], topic, 0, at)
        assert (error(row), row.high_watermark, offsets(row)) == ("NONE", 0, [])
        row = fetch(cluster[2], topic, 2, at)
        assert (error(row), row.high_watermark, offsets(row)) == ("NONE", 0, [])
        assert error(fetch(cluster[2], topic, 3, at)) == "OFFSET_OUT_OF_RANGE"
        row = fetch(cluster[2], topic, 0, at, replica=-2)
        assert (error(row), offsets(row)) == ("NONE", [])
        assert list_offset(cluster[1], topic.name, -1) == (0, 0)
        assert list_offset(cluster[1], topic.name, -1, replica=2) == (0, 2)
        assert list_offset(cluster[1], topic.name, -1, replica=-2) == (0, 2)
        # The position that replica 2 has, in place of the one above: an Ottla that is idle does not repeat it.
        assert error(fetch(cluster[1], topic, 2, at, replica=2)) == "NONE"
    finally:
        cluster.start(3)
    cluster.wait_for_isr(topic.name, 1, 2, 3)
    cluster.wait(lambda: list_offset(cluster[1], topic.name, -1) == (0, 2))


def batch(count: int) -> bytes:
    return build([Record(i, 1_700_000_000_000 + i, b"k%d" % i, b"v%d" % i) for i in range(count)])


def test_a_log_that_diverges(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    topic.append(3)
    for last_epoch, offset, expected in [
        (0, 3, ("NONE", -1, -1)),  # agrees
        (0, 5, ("NONE", 0, 3)),  # the epoch ends earlier here
        (1, 3, ("OFFSET_OUT_OF_RANGE", -1, -1)),  # newer than any
        (7, 2, ("OFFSET_OUT_OF_RANGE", -1, -1)),
    ]:
        row = fetch(cluster[1], topic, offset, replica=2, last_fetched_epoch=last_epoch)
        actual = (error(row), row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
        assert actual == expected, (last_epoch, offset)


def test_offsets_outside_of_the_log(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    topic.append(3)
    assert error(fetch(cluster[1], topic, 4, replica=2)) == "OFFSET_OUT_OF_RANGE"
    assert error(fetch(cluster[1], topic, 4)) == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize("at", [CLASSIC, CURRENT])
def test_leader_epochs_at_the_leader_and_at_a_follower(cluster: Cluster, at: int) -> None:
    topic = cluster.topic([1, 2, 3])
    cluster.stop(1)
    try:
        cluster.wait(lambda: cluster.described(topic.name, 2).partitions[0].leader_id == 2)
        epoch = cluster.described(topic.name, 2).partitions[0].leader_epoch
        assert epoch == 1
        for node_id in (2, 3):
            cluster.wait(lambda node_id=node_id: error(fetch(cluster[node_id], topic, 0, at)) == "NONE")  # type: ignore[misc]
            for asked, expected in [(0, "FENCED_LEADER_EPOCH"), (1, "NONE"), (2, "UNKNOWN_LEADER_EPOCH")]:
                row = fetch(cluster[node_id], topic, 0, at, current_leader_epoch=asked)
                assert error(row) == expected, (node_id, asked)
    finally:
        cluster.start(1)
        cluster.wait_for_isr(topic.name, 1, 2, 3)


@pytest.mark.parametrize("at", [10, 11, 12, CURRENT])
def test_a_consumer_at_a_follower(cluster: Cluster, at: int) -> None:
    topic = cluster.topic([1, 2])
    topic.append(2)
    row = fetch(cluster[2], topic, 0, at)
    if at < 11:
        assert error(row) == "NOT_LEADER_OR_FOLLOWER"
        return
    cluster.wait(lambda: fetch(cluster[2], topic, 0, at).high_watermark == 2)
    row = fetch(cluster[2], topic, 0, at)
    assert (error(row), offsets(row), row.preferred_read_replica) == ("NONE", [0, 1], -1)
    assert error(fetch(cluster[2], topic, 3, at)) == "OFFSET_OUT_OF_RANGE"
    assert error(fetch(cluster[3], topic, 0, at)) == "NOT_LEADER_OR_FOLLOWER"


def test_a_follower_at_a_follower(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2, 3])
    row = fetch(cluster[2], topic, 0, replica=3)
    assert (error(row), row.current_leader.leader_id, row.current_leader.leader_epoch) == (
        "NOT_LEADER_OR_FOLLOWER",
        1,
        0,
    )


def test_the_replica_in_the_rack_of_a_consumer(cluster: Cluster) -> None:
    topic = cluster.topic([1, 2])
    topic.append(2)
    cluster.wait(lambda: fetch(cluster[1], topic, 0, rack="RACK2").preferred_read_replica == 2)
    row = fetch(cluster[1], topic, 0, rack="RACK2")
    assert (error(row), offsets(row), row.high_watermark) == ("NONE", [], 2)
    for rack in ("RACK1", "RACK3", "elsewhere"):
        row = fetch(cluster[1], topic, 0, rack=rack)
        assert (error(row), offsets(row), row.preferred_read_replica) == ("NONE", [0, 1], -1), rack
    # The follower serves the consumer, and names no other replica.
    cluster.wait(lambda: fetch(cluster[2], topic, 0, rack="RACK2").high_watermark == 2)
    row = fetch(cluster[2], topic, 0, rack="RACK1")
    assert (error(row), offsets(row), row.preferred_read_replica) == ("NONE", [0, 1], -1)
    # Beyond the log end of the leader, and of the follower.
    assert error(fetch(cluster[1], topic, 3, rack="RACK2")) == "OFFSET_OUT_OF_RANGE"
    assert fetch(cluster[1], topic, 2, rack="RACK2").preferred_read_replica == 2
    assert fetch(cluster[1], topic, 0, 10).preferred_read_replica == -1
