"""ConsumerGroupDescribe, over a socket."""

import pytest

from ottla.protocol.errors import GROUP_ID_NOT_FOUND, INVALID_GROUP_ID, NONE
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import TopicPartitions

from .conftest import Topic, TopicFactory, Wire, versions
from .consumers import Consumer, configure, described_consumers, settle
from .members import NO_TOPICS, Member, new_group, stable

API = ConsumerGroupDescribeRequest


@pytest.mark.parametrize("version", versions(API))
def test_a_group_with_two_members(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    one, two = Consumer(broker, group_id), Consumer(broker, group_id, instance="i")
    one.join(topic.name, rack_id="r")
    two.join(topic.name)
    settle(broker, group_id, one, two)
    group = described_consumers(broker, group_id, version)
    assert (group.error_code, group.error_message, group.group_id) == (NONE, None, group_id)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
    assert (group.assignor_name, group.authorized_operations) == ("uniform", -(2**31))
    rows = {row.member_id: row for row in group.members}
    assert rows.keys() == {one.member_id, two.member_id}
    first, second = rows[one.member_id], rows[two.member_id]
    assert (first.instance_id, first.rack_id, second.instance_id, second.rack_id) == (None, "r", "i", None)
    for row, member in ((first, one), (second, two)):
        assert (row.member_epoch, row.client_id) == (3, "conformance")
        assert row.client_host.startswith("/")
        assert (row.subscribed_topic_names, row.subscribed_topic_regex) == ([topic.name], "")
        assert row.member_type == (1 if version >= 1 else -1)
        for assignment in (row.assignment, row.target_assignment):
            (part,) = assignment.topic_partitions
            assert (part.topic_id, part.topic_name) == (topic.id, topic.name)
            assert set(part.partitions) == member.partitions_of(topic)


def test_what_a_member_has_and_what_it_should_have(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    one, two = Consumer(broker, group_id), Consumer(broker, group_id)
    one.join(topic.name)
    two.join(topic.name)
    group = described_consumers(broker, group_id)
    assert group.group_state == "Reconciling"
    had = {
        row.member_id: (
            row.member_epoch,
            sum(len(part.partitions) for part in row.assignment.topic_partitions),
            sum(len(part.partitions) for part in row.target_assignment.topic_partitions),
        )
        for row in group.members
    }
    assert had == {one.member_id: (2, 2, 1), two.member_id: (3, 0, 1)}


def test_a_member_has_what_it_was_not_yet_seen_to_give_back(broker: Wire, make_topic: TopicFactory) -> None:
    topic, other, group_id = make_topic(2), make_topic(1), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    one, two = Consumer(broker, group_id), Consumer(broker, group_id)

    def held(member: Consumer) -> dict[str, set[int]]:
        (row,) = (row for row in described_consumers(broker, group_id).members if row.member_id == member.member_id)
        return {part.topic_name: set(part.partitions) for part in row.assignment.topic_partitions}

    one.join(topic.name, other.name)
    assert held(one) == {topic.name: {0, 1}, other.name: {0}}
    two.join(topic.name)
    (kept,) = one.beat().assignment.topic_partitions[0].partitions
    assert one.partitions_of(topic) == {kept}
    assert held(one) == {topic.name: {0, 1}, other.name: {0}}
    one.beat(
        subscribed_topic_names=[topic.name], topic_partitions=[TopicPartitions(topic_id=topic.id, partitions=[kept])]
    )
    assert held(one) == {topic.name: {kept}}
    settle(broker, group_id, one, two)
    assert held(two) == {topic.name: {1 - kept}}


@pytest.mark.parametrize("version", versions(API))
def test_groups_that_are_none(broker: Wire, topic: Topic, version: int) -> None:
    unknown, classic = new_group(broker), new_group(broker)
    stable(broker, Member(broker, classic))
    for group_id, code, message in (
        (unknown, GROUP_ID_NOT_FOUND, f"Group {unknown} not found."),
        (classic, GROUP_ID_NOT_FOUND, f"Group {classic} is not a consumer group."),
        ("", INVALID_GROUP_ID, None),
    ):
        group = described_consumers(broker, group_id, version)
        assert (group.error_code, group.error_message, group.group_id) == (code, message, group_id)
        assert (group.group_state, group.group_epoch, group.members) == ("", 0, [])


def test_no_groups(broker: Wire) -> None:
    answer = broker.send(ConsumerGroupDescribeRequest(group_ids=[], include_authorized_operations=True), 1)
    assert answer.groups == []


def test_one_group_twice_and_operations(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    Consumer(broker, group_id).join(topic.name)
    request = ConsumerGroupDescribeRequest(group_ids=[group_id, group_id], include_authorized_operations=True)
    answer = broker.send(request, 1)
    assert [group.group_id for group in answer.groups] == [group_id, group_id]
    assert {group.authorized_operations for group in answer.groups} == {0b1101_0100_1000}


def test_a_subscribed_regular_expression_is_described(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    member = Consumer(broker, group_id)
    member.join(subscribed_topic_names=None, subscribed_topic_regex=topic.name)
    (described,) = described_consumers(broker, group_id).members
    assert (described.subscribed_topic_names, described.subscribed_topic_regex) == ([], topic.name)


def test_member_types_distinguish_classic_members(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    classic = Member(broker, group_id)
    classic.join(protocols=[("range", NO_TOPICS)])
    Consumer(broker, group_id).join(topic.name)
    types = {row.member_id: row.member_type for row in described_consumers(broker, group_id).members}
    assert types.pop(classic.member_id) == 0
    assert list(types.values()) == [1]
