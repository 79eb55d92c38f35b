"""Admin: consumer groups of both protocols, and their offsets."""

import pytest

from ottla import Admin, KafkaError, TopicPartition
from ottla.client.groups import OffsetAndMetadata
from ottla.coordinators.groups.classic.embedded import encode_assignment
from tests.conformance.conftest import Topic, TopicFactory, Wire
from tests.conformance.consumers import Consumer, configure, settle
from tests.conformance.members import NO_TOPICS, Member, new_group

from .conftest import fresh


@pytest.fixture
def subject(wire: Wire) -> Topic:
    """A topic with two partitions, by name and id."""
    return TopicFactory(wire)(2)


def test_a_classic_group(admin: Admin, wire: Wire, subject: Topic) -> None:
    group_id = new_group(wire)
    member = Member(wire, group_id, instance="i1")
    member.join()
    member.sync({member.member_id: encode_assignment({subject.name: [0, 1]}, NO_TOPICS)})
    group = admin.describe_consumer_groups([group_id])[group_id]
    assert (group.type, group.state, group.protocol_type, group.assignor) == ("classic", "Stable", "consumer", "range")
    (described,) = group.members
    assert (described.member_id, described.group_instance_id, described.client_id) == (
        member.member_id,
        "i1",
        "conformance",
    )
    assert described.assignment == (TopicPartition(subject.name, 0), TopicPartition(subject.name, 1))
    assert described.member_epoch is None
    assert group.coordinator[0] == admin.describe_cluster().nodes[0].id
    assert admin.describe_classic_groups([group_id])[group_id] == group
    listed = admin.list_groups(types=["classic"])[group_id]
    assert (listed.protocol_type, listed.type) == ("consumer", "classic")
    assert admin.delete_groups([group_id]).errors[group_id].name == "NON_EMPTY_GROUP"
    removed = admin.remove_members_from_consumer_group(group_id, ["i1", "i2"])
    assert removed.successes == {"i1": None}
    assert removed.errors["i2"].name == "UNKNOWN_MEMBER_ID"
    assert admin.describe_consumer_groups([group_id])[group_id].state == "Empty"
    admin.delete_groups([group_id]).check()
    gone = admin.describe_consumer_groups([group_id]).errors[group_id]
    assert gone.name == "GROUP_ID_NOT_FOUND"


def test_a_group_of_the_new_protocol(admin: Admin, wire: Wire, subject: Topic) -> None:
    group_id = new_group(wire)
    configure(wire, group_id, consumer_heartbeat_interval_ms="5000")
    member = Consumer(wire, group_id)
    member.join(subject.name)
    settle(wire, group_id, member, until=lambda: member.partitions_of(subject) == {0, 1})
    group = admin.describe_consumer_groups([group_id])[group_id]
    assert (group.type, group.state, group.assignor) == ("consumer", "Stable", "uniform")
    assert group.group_epoch == group.assignment_epoch
    (described,) = group.members
    assert described.member_id == member.member_id
    assert described.assignment == (TopicPartition(subject.name, 0), TopicPartition(subject.name, 1))
    assert described.target_assignment == described.assignment
    assert (described.subscription, described.upgraded) == (frozenset({subject.name}), True)
    assert list(admin.remove_members_from_consumer_group(group_id)) == [member.member_id]
    assert admin.describe_consumer_groups([group_id])[group_id].members == ()


def test_offsets_of_a_group(admin: Admin, topic: str) -> None:
    group_id = fresh("g")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    moved = admin.alter_consumer_group_offsets(
        group_id, {first: 3, second: OffsetAndMetadata(5, "note", 0), TopicPartition(topic, 9): 1}
    )
    assert moved.successes == {first: None, second: None}
    assert moved.errors[TopicPartition(topic, 9)].name == "UNKNOWN_TOPIC_OR_PARTITION"
    all_of_it = {first: OffsetAndMetadata(3), second: OffsetAndMetadata(5, "note", 0)}
    assert admin.list_consumer_group_offsets([group_id])[group_id] == all_of_it
    assert admin.list_consumer_group_offsets({group_id: [second]}, require_stable=True)[group_id] == {
        second: all_of_it[second]
    }
    assert admin.list_groups()[group_id].state == "Empty"
    deleted = admin.delete_consumer_group_offsets(group_id, [first])
    assert deleted.check().successes == {first: None}
    assert admin.list_consumer_group_offsets([group_id])[group_id] == {second: all_of_it[second]}


def test_members_keep_their_offsets(admin: Admin, wire: Wire, topic: str) -> None:
    group_id = new_group(wire)
    member = Member(wire, group_id)
    member.join()
    member.sync({member.member_id: b""})
    place = TopicPartition(topic, 0)
    assert admin.alter_consumer_group_offsets(group_id, {place: 1}).errors[place].name == "UNKNOWN_MEMBER_ID"
    member.leave()


def test_offsets_of_no_group(admin: Admin, topic: str) -> None:
    with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_group_offsets(fresh("g"), [TopicPartition(topic, 0)])
    nobody = fresh("g")
    assert admin.list_consumer_group_offsets([nobody])[nobody] == {}
    assert list(admin.remove_members_from_consumer_group(new_empty(admin, topic))) == []


def new_empty(admin: Admin, topic: str) -> str:
    """A group that only keeps an offset."""
    name = fresh("g")
    admin.alter_consumer_group_offsets(name, {TopicPartition(topic, 0): 0}).check()
    return name
