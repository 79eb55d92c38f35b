"""AlterShareGroupOffsets, over a socket."""

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest

from .conftest import Topic, TopicFactory, Wire
from .consumers import Consumer, configure
from .members import new_group
from .share_members import (
    UNKNOWN_TOPIC,
    Sharer,
    all_of,
    alter,
    altered,
    delete_offsets,
    described,
    offsets,
    places,
    read,
    settle,
    share_group,
    summary,
    write,
)

API = AlterShareGroupOffsetsRequest
DONE = ("NONE", None)
UNKNOWN = ("UNKNOWN_TOPIC_OR_PARTITION", UNKNOWN_TOPIC)


def test_an_unknown_group_is_made(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), share_group(broker)
    topic.append(5)
    assert altered(alter(broker, group_id, [(topic.name, {0: 3})])) == {(topic.name, 0): DONE}
    group = described(broker, group_id)
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.members) == ("Empty", 1, 1, [])
    assert summary(broker, group_id, topic.id) == ("NONE", None, 1, 0, 3, 0)
    assert places(offsets(broker, group_id)) == {(topic.name, 0): (3, 2)}


def test_no_group_is_created_without_a_known_topic(broker: Wire) -> None:
    group_id = share_group(broker)
    assert altered(alter(broker, group_id, [])) == {}
    assert altered(alter(broker, group_id, [("nope", {0: 1})])) == {("nope", 0): UNKNOWN}
    assert name_of(described(broker, group_id).error_code) == "GROUP_ID_NOT_FOUND"


def test_a_group_is_created_by_a_known_topic_with_an_unknown_partition(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    assert altered(alter(broker, group_id, [(topic.name, {5: 1})])) == {(topic.name, 5): UNKNOWN}
    group = described(broker, group_id)
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.members) == ("Empty", 1, 1, [])
    assert places(offsets(broker, group_id)) == {}
    answer = delete_offsets(broker, group_id, topic.name)
    assert (name_of(answer.error_code), answer.responses[0].error_message) == (
        "NONE",
        "There is no offset information to delete.",
    )


def test_good_partitions_of_a_request_are_altered(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), share_group(broker)
    answer = alter(broker, group_id, [(topic.name, {0: 3, 5: 1}), ("nope", {0: 0})])
    assert altered(answer) == {(topic.name, 0): DONE, (topic.name, 5): UNKNOWN, ("nope", 0): UNKNOWN}
    ids = {row.topic_name: row.topic_id for row in answer.responses}
    assert ids == {topic.name: topic.id, "nope": bytes(16)}
    assert places(offsets(broker, group_id)).keys() == {(topic.name, 0)}


def test_a_partition_below_0(broker: Wire, topic: Topic, ottla_only: None) -> None:
    """Kafka 4.4 answers UNKNOWN_SERVER_ERROR for the request as a whole, and can never delete the group again."""
    group_id = share_group(broker)
    answer = alter(broker, group_id, [(topic.name, {-1: 0, 0: 1})])
    assert altered(answer) == {(topic.name, -1): UNKNOWN, (topic.name, 0): DONE}


@pytest.mark.parametrize(("offset", "lag"), [(0, 5), (5, 0), (100, -95), (-1, -1), (-7, 12)])
def test_any_offset_is_taken(broker: Wire, topic: Topic, offset: int, lag: int) -> None:
    topic.append(5)
    group_id = share_group(broker)
    assert altered(alter(broker, group_id, [(topic.name, {0: offset})])) == {(topic.name, 0): DONE}
    assert places(offsets(broker, group_id)) == {(topic.name, 0): (offset, lag)}


def test_the_last_offset_of_a_partition_named_twice_counts(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    answer = alter(broker, group_id, [(topic.name, {0: 3}), (topic.name, {0: 2})])
    assert [len(row.partitions) for row in answer.responses] == [2]
    assert summary(broker, group_id, topic.id).start_offset == 2


def test_altering_offsets_of_an_empty_group_resets_its_state(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), share_group(broker)
    configure(broker, group_id, share_assignment_interval_ms="0")
    member = Sharer(broker, group_id)
    member.join(topic.name)
    settle(all_of(topic, 2), member)
    assert read(broker, group_id, topic.id).state_epoch == 2
    for partition in (0, 1):
        assert write(broker, group_id, topic.id, [(0, 9, 2, 1)], partition=partition, state_epoch=2) == DONE
    member.leave()
    assert altered(alter(broker, group_id, [(topic.name, {0: 4})])) == {(topic.name, 0): DONE}
    assert summary(broker, group_id, topic.id) == ("NONE", None, 4, 0, 4, 0)
    assert read(broker, group_id, topic.id).batches == []
    assert read(broker, group_id, topic.id, 1) == ("NONE", None, 2, -1, [(0, 9, 2, 1)])
    group = described(broker, group_id)
    assert (group.group_epoch, group.assignment_epoch) == (4, 4)
    assert write(broker, group_id, topic.id, [(0, 9, 2, 1)], state_epoch=2)[0] == "FENCED_STATE_EPOCH"
    # The same once more: a group that goes on reading at 4 has nothing acknowledged before it.
    assert write(broker, group_id, topic.id, [(4, 9, 2, 1)], state_epoch=4) == DONE
    assert altered(alter(broker, group_id, [(topic.name, {0: 4})])) == {(topic.name, 0): DONE}
    assert read(broker, group_id, topic.id).batches == []


def test_a_group_with_members_is_refused(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    Sharer(broker, group_id).join(topic.name)
    for topics in ([], [("nope", {0: 0})], [(topic.name, {0: 1})]):
        answer = alter(broker, group_id, topics)
        assert (name_of(answer.error_code), answer.error_message) == ("NON_EMPTY_GROUP", "The group is not empty.")
        assert answer.responses == []


def test_groups_that_are_none(broker: Wire, topic: Topic) -> None:
    answer = alter(broker, "", [(topic.name, {0: 1})])
    assert (name_of(answer.error_code), answer.error_message) == ("INVALID_GROUP_ID", "The group id is invalid.")
    group_id = new_group(broker)
    Consumer(broker, group_id).join(topic.name)
    answer = alter(broker, group_id, [(topic.name, {0: 1})])
    assert (name_of(answer.error_code), answer.error_message) == (
        "GROUP_ID_NOT_FOUND",
        f"Group {group_id} is not a share group.",
    )
    assert answer.responses == []
