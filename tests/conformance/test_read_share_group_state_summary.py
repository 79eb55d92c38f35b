"""ReadShareGroupStateSummary, over a socket."""

import pytest

from ottla.protocol.messages.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)

from .conftest import Topic, Wire, versions
from .share_members import UNKNOWN_TOPIC, initialize, read, share_group, summary, write

API = ReadShareGroupStateSummaryRequest


@pytest.mark.parametrize("version", versions(API))
def test_summary_has_the_epochs_and_the_start_offset(broker: Wire, topic: Topic, version: int) -> None:
    group_id = share_group(broker)
    assert summary(broker, group_id, topic.id, version=version) == ("NONE", None, 0, 0, -1, -1)
    initialize(broker, group_id, topic.id, state_epoch=2, start_offset=5)
    read(broker, group_id, topic.id, leader_epoch=1)
    write(broker, group_id, topic.id, [(6, 7, 2, 1)], state_epoch=2, leader_epoch=1, start_offset=5, complete=2)
    state = summary(broker, group_id, topic.id, version=version)
    assert state == ("NONE", None, 2, 1, 5, 2 if version >= 1 else -1)


def test_the_leader_epoch_is_not_looked_at(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id)
    read(broker, group_id, topic.id, leader_epoch=3)
    for epoch in (-1, 0, 9):
        assert summary(broker, group_id, topic.id, leader_epoch=epoch) == ("NONE", None, 0, 3, 0, 0)


def test_invalid_requests_are_refused(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    wrong = summary(broker, group_id, topic.id, -1)
    assert wrong == ("INVALID_REQUEST", "The partition id cannot be a negative number.", 0, 0, 0, -1)
    for topic_id, partition in ((bytes(16), 0), (b"x" * 16, 0), (topic.id, 1)):
        wrong = summary(broker, group_id, topic_id, partition)
        assert wrong == ("UNKNOWN_TOPIC_OR_PARTITION", UNKNOWN_TOPIC, 0, 0, 0, -1)


def test_nothing_to_do(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    whole = ReadStateSummaryData(topic_id=topic.id, partitions=[PartitionData(partition=0, leader_epoch=0)])
    empty = ReadStateSummaryData(topic_id=topic.id, partitions=[])
    for name, topics in (("", [whole]), (group_id, []), (group_id, [empty]), (group_id, [whole, empty])):
        assert broker.send(ReadShareGroupStateSummaryRequest(group_id=name, topics=topics), 1).results == []
