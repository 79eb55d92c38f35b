"""Fetches of followers: a position counts, or the follower gets an error."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.broker.test_log_directories import Machine

from ottla.protocol.errors import NONE, UNKNOWN_LEADER_EPOCH
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.tasks.deferred import Deferred


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with Machine(tmp_path) as machine:
        machine.create("t", 1)
        yield machine


def fetch_of(replica_id: int) -> FetchRequest:
    partitions = [FetchPartition(partition=0, current_leader_epoch=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic="t", partitions=partitions)]
    return FetchRequest(replica_id=replica_id, max_wait_ms=500, min_bytes=1, topics=topics)


def test_a_follower_whose_position_is_refused_gets_the_error_at_once(machine: Machine) -> None:
    """The leader may take up its leadership after the request, and before it looks for records: without an error the follower
    would not name the partition again, and the leader would never know its position."""
    answer = machine.serve(fetch_of(2), 11)
    assert isinstance(answer, FetchResponse)
    assert answer.error_code == NONE
    (topic,) = answer.responses
    assert [row.error_code for row in topic.partitions] == [UNKNOWN_LEADER_EPOCH]


def test_a_consumer_waits_for_records(machine: Machine) -> None:
    assert isinstance(machine.serve(fetch_of(-1), 11), Deferred)
