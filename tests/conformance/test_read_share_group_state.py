"""ReadShareGroupState, over a socket."""

from ottla.protocol.messages.read_share_group_state import PartitionData, ReadShareGroupStateRequest, ReadStateData

from .conftest import Topic, Wire
from .share_members import initialize, read, share_group, summary, write

API = ReadShareGroupStateRequest
OLDER = "The leader epoch in the request is older than the epoch on the broker."
FENCED: tuple[object, ...] = ("FENCED_LEADER_EPOCH", OLDER, 0, 0, [])


def test_older_leader_epochs_are_fenced(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    initialize(broker, group_id, topic.id, start_offset=9)
    assert read(broker, group_id, topic.id, leader_epoch=5) == ("NONE", None, 0, 9, [])
    assert summary(broker, group_id, topic.id).leader_epoch == 5
    assert read(broker, group_id, topic.id, leader_epoch=4) == FENCED
    assert read(broker, group_id, topic.id, leader_epoch=5).error == "NONE"
    assert write(broker, group_id, topic.id, leader_epoch=4)[0] == "FENCED_LEADER_EPOCH"
    assert write(broker, group_id, topic.id, leader_epoch=6)[0] == "NONE"  # which a write does not remember
    assert summary(broker, group_id, topic.id).leader_epoch == 5
    assert read(broker, group_id, topic.id, leader_epoch=6).error == "NONE"
    assert read(broker, group_id, topic.id, leader_epoch=5) == FENCED


def test_invalid_requests_are_refused(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    negative = "The {} cannot be a negative number."
    initialize(broker, group_id, topic.id)
    for partition, epoch, name in ((-1, -1, "partition id"), (0, -1, "leader epoch")):
        wrong = read(broker, group_id, topic.id, partition, epoch)
        assert wrong == ("INVALID_REQUEST", negative.format(name), 0, 0, [])
    for topic_id, partition in ((bytes(16), 0), (b"x" * 16, 0), (topic.id, 1)):
        wrong = read(broker, group_id, topic_id, partition)
        assert wrong[:2] == ("INVALID_REQUEST", "Read operation on uninitialized share partition not allowed.")


def test_nothing_to_do(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    whole = ReadStateData(topic_id=topic.id, partitions=[PartitionData(partition=0, leader_epoch=0)])
    empty = ReadStateData(topic_id=topic.id, partitions=[])
    for name, topics in (("", [whole]), (group_id, []), (group_id, [empty]), (group_id, [whole, empty])):
        assert broker.send(ReadShareGroupStateRequest(group_id=name, topics=topics), 0).results == []
