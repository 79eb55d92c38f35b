"""InitializeShareGroupState, over a socket."""

import pytest

from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)

from .conftest import Topic, TopicFactory, Wire
from .share_members import UNKNOWN_TOPIC, initialize, read, share_group, summary, write

API = InitializeShareGroupStateRequest
DONE = ("NONE", None)


def test_a_share_partition_begins(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    assert initialize(broker, group_id, topic.id, state_epoch=3, start_offset=7) == DONE
    assert summary(broker, group_id, topic.id) == ("NONE", None, 3, 0, 7, 0)
    assert read(broker, group_id, topic.id) == ("NONE", None, 3, 7, [])


@pytest.mark.parametrize(("start_offset", "complete"), [(-1, -1), (-5, 0), (1_000_000, 0)])
def test_any_start_offset_is_taken(broker: Wire, topic: Topic, start_offset: int, complete: int) -> None:
    group_id = share_group(broker)
    assert initialize(broker, group_id, topic.id, start_offset=start_offset) == DONE
    assert summary(broker, group_id, topic.id) == ("NONE", None, 0, 0, start_offset, complete)


def test_beginning_again_forgets_all_but_the_epochs(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id, state_epoch=3)
    assert read(broker, group_id, topic.id, leader_epoch=5).error == "NONE"
    write(broker, group_id, topic.id, [(0, 9, 2, 1)], state_epoch=3, leader_epoch=5, start_offset=0, complete=10)
    assert initialize(broker, group_id, topic.id, state_epoch=3) == DONE
    assert summary(broker, group_id, topic.id) == ("NONE", None, 3, 0, 0, 0)
    fenced = "The coordinator rejected the request because the state epoch did not match."
    assert initialize(broker, group_id, topic.id, state_epoch=2) == ("FENCED_STATE_EPOCH", fenced)
    assert initialize(broker, group_id, topic.id, state_epoch=4, start_offset=1) == DONE
    assert read(broker, group_id, topic.id, leader_epoch=4).error == "FENCED_LEADER_EPOCH"
    assert read(broker, group_id, topic.id, leader_epoch=5) == ("NONE", None, 4, 1, [])


def test_invalid_requests_are_refused(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    negative = "The {} cannot be a negative number."
    assert initialize(broker, group_id, topic.id, -1, -1) == ("INVALID_REQUEST", negative.format("partition id"))
    assert initialize(broker, group_id, topic.id, 0, -1) == ("INVALID_REQUEST", negative.format("state epoch"))
    assert initialize(broker, group_id, bytes(16)) == ("UNKNOWN_TOPIC_OR_PARTITION", UNKNOWN_TOPIC)
    assert initialize(broker, group_id, topic.id, 1) == ("UNKNOWN_TOPIC_OR_PARTITION", UNKNOWN_TOPIC)


def test_several_at_once(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), share_group(broker)
    parts = [PartitionData(partition=index, state_epoch=0, start_offset=index) for index in (1, 7, 0, 1)]
    topics = [
        InitializeStateData(topic_id=topic.id, partitions=parts),
        InitializeStateData(topic_id=b"x" * 16, partitions=parts[:1]),
    ]
    answer = broker.send(InitializeShareGroupStateRequest(group_id=group_id, topics=topics), 0)
    codes = {(row.topic_id, part.partition): part.error_code for row in answer.results for part in row.partitions}
    assert codes == {(topic.id, 0): 0, (topic.id, 1): 0, (topic.id, 7): 3, (b"x" * 16, 1): 3}
    assert [len(row.partitions) for row in answer.results if row.topic_id == topic.id] == [3]


def test_nothing_to_do(broker: Wire, topic: Topic) -> None:
    part = PartitionData(partition=0, state_epoch=0, start_offset=0)
    whole = InitializeStateData(topic_id=topic.id, partitions=[part])
    empty = InitializeStateData(topic_id=topic.id, partitions=[])
    group_id = share_group(broker)
    for name, topics in (("", [whole]), (group_id, []), (group_id, [empty])):
        assert broker.send(InitializeShareGroupStateRequest(group_id=name, topics=topics), 0).results == []
    assert summary(broker, group_id, topic.id).start_offset == -1
    answer = broker.send(InitializeShareGroupStateRequest(group_id=group_id, topics=[whole, empty]), 0)
    assert [len(row.partitions) for row in answer.results] == [1]
