"""DeleteShareGroupState, over a socket."""

from ottla.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteStateData,
    PartitionData,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest

from .conftest import Topic, Wire
from .members import wait_for
from .share_members import UNKNOWN_TOPIC, delete, initialize, read, share_group, summary

API = DeleteShareGroupStateRequest
DONE = ("NONE", None)


def test_a_deleted_state_is_forgotten(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    assert delete(broker, group_id, topic.id) == DONE
    initialize(broker, group_id, topic.id, state_epoch=4, start_offset=3)
    read(broker, group_id, topic.id, leader_epoch=2)
    assert delete(broker, group_id, topic.id) == DONE
    assert summary(broker, group_id, topic.id) == ("NONE", None, 0, 0, -1, -1)
    assert read(broker, group_id, topic.id, leader_epoch=2).error == "INVALID_REQUEST"
    assert delete(broker, group_id, topic.id) == DONE
    assert initialize(broker, group_id, topic.id, state_epoch=1) == DONE
    assert read(broker, group_id, topic.id, leader_epoch=0) == ("NONE", None, 1, 0, [])


def test_invalid_requests_are_refused(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    assert delete(broker, group_id, topic.id, -1) == (
        "INVALID_REQUEST",
        "The partition id cannot be a negative number.",
    )
    for topic_id, partition in ((bytes(16), 0), (b"x" * 16, 0), (topic.id, 1)):
        assert delete(broker, group_id, topic_id, partition) == ("UNKNOWN_TOPIC_OR_PARTITION", UNKNOWN_TOPIC)


def test_nothing_to_do(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    whole = DeleteStateData(topic_id=topic.id, partitions=[PartitionData(partition=0)])
    empty = DeleteStateData(topic_id=topic.id, partitions=[])
    for name, topics in (("", [whole]), (group_id, []), (group_id, [empty]), (group_id, [whole, empty])):
        assert broker.send(DeleteShareGroupStateRequest(group_id=name, topics=topics), 0).results == []


def test_the_state_of_a_deleted_topic_is_deleted(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id)
    assert broker.send(DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=10_000), 5).responses[0].error_code == 0
    wait_for(lambda: summary(broker, group_id, topic.id).error == "UNKNOWN_TOPIC_OR_PARTITION")
    wait_for(lambda: read(broker, group_id, topic.id).error == "INVALID_REQUEST")
