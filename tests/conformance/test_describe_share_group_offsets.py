"""DescribeShareGroupOffsets, over a socket."""

from ottla.protocol.errors import name_of
from ottla.protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsRequest

from .conftest import Topic, TopicFactory, Wire
from .consumers import Consumer
from .members import new_group
from .share_members import alter, offsets, places, read, share_group, write

API = DescribeShareGroupOffsetsRequest


def test_all_that_has_a_state(broker: Wire, make_topic: TopicFactory) -> None:
    topic, other, group_id = make_topic(3), make_topic(1), share_group(broker)
    topic.append(5)
    topic.append(7, partition=1)
    alter(broker, group_id, [(topic.name, {0: 2, 1: -1}), (other.name, {0: 0})])
    assert places(offsets(broker, group_id)) == {
        (topic.name, 0): (2, 3),
        (topic.name, 1): (-1, -1),
        (other.name, 0): (0, 0),
    }
    ids = {row.topic_name: row.topic_id for row in offsets(broker, group_id).topics}
    assert ids == {topic.name: topic.id, other.name: other.id}


def test_lag_counts_records_whose_delivery_is_not_complete(broker: Wire, topic: Topic) -> None:
    topic.append(10)
    group_id = share_group(broker)
    alter(broker, group_id, [(topic.name, {0: 0})])
    assert read(broker, group_id, topic.id, leader_epoch=3).error == "NONE"
    write(broker, group_id, topic.id, [(4, 6, 2, 1)], state_epoch=1, leader_epoch=3, start_offset=2, complete=3)
    group = offsets(broker, group_id)
    (part,) = group.topics[0].partitions
    assert (part.start_offset, part.leader_epoch, part.lag, part.error_code, part.error_message) == (2, 3, 5, 0, None)
    write(broker, group_id, topic.id, state_epoch=1, leader_epoch=3, start_offset=7)  # nobody says how many are through
    assert places(offsets(broker, group_id)) == {(topic.name, 0): (7, -1)}


def test_some_partitions(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), share_group(broker)
    alter(broker, group_id, [(topic.name, {0: 2})])
    group = offsets(broker, group_id, [(topic.name, [1, 0]), ("nope", [0])])
    assert places(group) == {(topic.name, 0): (2, -2), (topic.name, 1): (-1, -1), ("nope", 0): (-1, -1)}
    ids = {row.topic_name: row.topic_id for row in group.topics}
    assert ids == {topic.name: topic.id, "nope": bytes(16)}
    assert {(part.leader_epoch, part.error_code) for row in group.topics for part in row.partitions} == {(0, 0)}


def test_a_partition_that_the_topic_has_not(broker: Wire, topic: Topic, ottla_only: None) -> None:
    """Kafka 4.4 sometimes never answers."""
    group_id = share_group(broker)
    assert places(offsets(broker, group_id, [(topic.name, [7])])) == {(topic.name, 7): (-1, -1)}


def test_version_0_has_no_lag(broker: Wire, topic: Topic, ottla_only: None) -> None:
    """Kafka 4.4 cannot write version 0 when there is a lag, and never answers."""
    group_id = share_group(broker)
    alter(broker, group_id, [(topic.name, {0: 0})])
    (part,) = offsets(broker, group_id, version=0).topics[0].partitions
    assert (part.start_offset, part.lag) == (0, -1)


def test_groups_that_are_none(broker: Wire, topic: Topic) -> None:
    group_id, consumers = share_group(broker), new_group(broker)
    Consumer(broker, consumers).join(topic.name)
    for name in (group_id, consumers, ""):
        assert places(offsets(broker, name)) == {}
        assert places(offsets(broker, name, [])) == {}
    for name in (group_id, consumers):
        assert places(offsets(broker, name, [(topic.name, [0])])) == {(topic.name, 0): (-1, -1)}
    nobody = offsets(broker, "", [(topic.name, [0])])  # over which Kafka 4.4 stumbles
    assert name_of(nobody.error_code) == ("UNKNOWN_SERVER_ERROR" if broker.is_kafka else "INVALID_GROUP_ID")
