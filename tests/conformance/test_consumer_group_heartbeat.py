"""ConsumerGroupHeartbeat, over a socket."""

import time
from typing import Any

import pytest

from ottla.protocol.errors import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    INVALID_REGULAR_EXPRESSION,
    INVALID_REQUEST,
    NONE,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_ASSIGNOR,
    name_of,
)
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

from .conftest import Topic, TopicFactory, Wire, versions
from .consumers import Consumer, configure, described_consumers, heartbeat_request, interval_of, joining, settle
from .members import new_group, wait_for

API = ConsumerGroupHeartbeatRequest


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"topic_partitions": [TopicPartitions(topic_id=bytes(16), partitions=[0])]},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_an_invalid_heartbeat_is_refused(broker: Wire, fields: dict[str, Any], message: str) -> None:
    request = joining(fields.pop("group_id", "g"), "t")
    for name, value in fields.items():
        setattr(request, name, value)
    answer = broker.send(request, 1)
    assert (answer.error_code, answer.error_message) == (INVALID_REQUEST, message)
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)


def test_a_static_member_must_say_who_it_is_when_it_leaves(broker: Wire) -> None:
    answer = broker.send(heartbeat_request("g", "", -2), 0)
    assert (answer.error_code, answer.error_message) == (INVALID_REQUEST, "InstanceId can't be null.")


def test_odd_heartbeats_are_accepted(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    member = Consumer(broker, group_id)
    member.join(topic.name)
    strange = [TopicPartitions(topic_id=b"x" * 16, partitions=[5]), TopicPartitions(topic_id=topic.id, partitions=[-1])]
    assert member.beat(topic_partitions=strange).error_code == NONE
    assert member.beat(rack_id="another").error_code == NONE
    assert described_consumers(broker, group_id).group_epoch == 2
    assert member.beat(subscribed_topic_names=["", topic.name, topic.name, "bad/name!"]).error_code == NONE
    (described,) = described_consumers(broker, group_id).members
    assert sorted(described.subscribed_topic_names) == ["", "bad/name!", topic.name]
    assert member.beat_with_partitions().member_epoch == 3
    member.beat(subscribed_topic_names=[])
    settle(broker, group_id, member)
    assert (member.epoch, member.assigned) == (4, {})
    assert member.join(topic.name, member_id=member.member_id).member_epoch == 5
    assert member.partitions_of(topic) == {0, 1}
    assert broker.send(joining(group_id, topic.name, member_id="x" * 300), 1).error_code == NONE


def test_a_regular_expression_matches_the_brokers_own_topics_too(broker: Wire) -> None:
    group_id = new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    member = Consumer(broker, group_id)
    member.join(subscribed_topic_names=None, subscribed_topic_regex="__consumer_.*")
    settle(broker, group_id, member, until=lambda: bool(member.assigned))
    (described,) = described_consumers(broker, group_id).members
    assert {part.topic_name for part in described.assignment.topic_partitions} == {"__consumer_offsets"}


def test_an_assignor_that_is_not_there(broker: Wire) -> None:
    answer = broker.send(joining("g", "t", server_assignor="best"), 1)
    assert answer.error_code == UNSUPPORTED_ASSIGNOR
    assert answer.error_message == "ServerAssignor best is not supported. Supported assignors: uniform, range."


@pytest.mark.parametrize("version", versions(API))
def test_the_first_member_gets_everything(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic, member = make_topic(3), Consumer(broker, new_group(broker))
    answer = member.join(topic.name, version=version)
    assert (answer.error_code, answer.member_id) == (NONE, member.member_id)
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (2, interval_of(broker, 5_000))
    assert member.partitions_of(topic) == {0, 1, 2}
    again = member.beat(version)
    assert (again.error_code, again.member_epoch, again.assignment) == (NONE, 2, None)


def test_version_0_gives_a_member_its_id(broker: Wire, topic: Topic) -> None:
    answer = broker.send(joining(new_group(broker), topic.name, member_id=""), 0)
    assert answer.error_code == NONE
    assert len(answer.member_id) == 22


def test_a_full_heartbeat_is_answered_with_the_assignment(broker: Wire, topic: Topic) -> None:
    member = Consumer(broker, new_group(broker))
    member.join(topic.name)
    answer = member.beat(rebalance_timeout_ms=10_000, subscribed_topic_names=[topic.name], topic_partitions=[])
    assert answer.assignment is not None
    assert member.partitions_of(topic) == {0}


def test_an_unknown_group_and_an_unknown_member(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    for epoch, message in (
        (1, f"Consumer group {group_id} not found."),
        (-1, f"Group {group_id} not found."),
    ):
        answer = broker.send(heartbeat_request(group_id, "m", epoch), 1)
        assert (answer.error_code, answer.error_message) == (GROUP_ID_NOT_FOUND, message)
    Consumer(broker, group_id).join(topic.name)
    for epoch in (1, -1):
        answer = broker.send(heartbeat_request(group_id, "m", epoch), 1)
        assert (answer.error_code, answer.error_message) == (
            UNKNOWN_MEMBER_ID,
            f"Member m is not a member of group {group_id}.",
        )


def test_another_epoch_is_fenced(broker: Wire, topic: Topic) -> None:
    member = Consumer(broker, new_group(broker))
    member.join(topic.name)
    for epoch, how in ((3, "greater"), (1, "smaller")):
        answer = member.beat(member_epoch=epoch)
        assert answer.error_code == FENCED_MEMBER_EPOCH
        assert answer.error_message == (
            f"The consumer group member has a {how} member epoch ({epoch}) than the one known by the group coordinator "
            "(2). The member must abandon all its partitions and rejoin."
        )
    assert member.beat().error_code == NONE


def test_an_answer_that_was_lost_is_given_again(broker: Wire, make_topic: TopicFactory) -> None:
    first, second, group_id = make_topic(2), make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    member = Consumer(broker, group_id)
    member.join(first.name)
    owned = [TopicPartitions(topic_id=first.id, partitions=[0, 1])]
    member.beat(subscribed_topic_names=[first.name, second.name], topic_partitions=owned)
    assert (member.epoch, member.assigned) == (3, {first.id: {0, 1}, second.id: {0, 1}})
    again = member.beat(member_epoch=2, topic_partitions=owned)
    assert (again.error_code, again.member_epoch, again.assignment) == (NONE, 3, None)
    unsaid = member.beat(member_epoch=2)
    assert unsaid.error_code == FENCED_MEMBER_EPOCH
    assert unsaid.error_message == (
        "The consumer group member has a smaller member epoch (2) than the one known by the group coordinator "
        "(3). The member must abandon all its partitions and rejoin."
    )


def test_partitions_go_over_when_they_were_given_back(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(4), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    first, second = Consumer(broker, group_id), Consumer(broker, group_id)
    first.join(topic.name)
    answer = second.join(topic.name)
    assert (answer.member_epoch, second.assigned) == (3, {})
    assert described_consumers(broker, group_id).group_state == "Reconciling"
    revocation = first.beat(topic_partitions=[TopicPartitions(topic_id=topic.id, partitions=[0, 1, 2, 3])])
    assert (revocation.member_epoch, len(first.partitions_of(topic))) == (2, 2)
    assert second.beat().assignment is None
    assert first.beat().member_epoch == 2
    assert first.beat_with_partitions().member_epoch == 3
    assert second.beat().assignment is not None
    assert first.partitions_of(topic) | second.partitions_of(topic) == {0, 1, 2, 3}
    assert described_consumers(broker, group_id).group_state == "Stable"


def test_partitions_of_a_member_that_leaves_are_reassigned(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(4), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    first, second = Consumer(broker, group_id), Consumer(broker, group_id)
    first.join(topic.name)
    second.join(topic.name)
    settle(broker, group_id, first, second)
    answer = second.leave()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (NONE, second.member_id, -1)
    first.beat()
    assert (first.epoch, first.partitions_of(topic)) == (4, {0, 1, 2, 3})
    assert first.leave().error_code == NONE
    group = described_consumers(broker, group_id)
    assert (group.group_state, group.group_epoch, group.members) == ("Empty", 5, [])


def test_a_new_target_waits_for_the_interval(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="2000")
    first, second = Consumer(broker, group_id), Consumer(broker, group_id)
    first.join(topic.name)
    begun = time.monotonic()
    assert second.join(topic.name).member_epoch == 2
    group = described_consumers(broker, group_id)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Assigning", 3, 2)
    wait_for(lambda: second.beat().member_epoch == 3)
    assert time.monotonic() - begun > 1.5
    settle(broker, group_id, first, second)
    assert len(second.partitions_of(topic)) == 1


def test_a_topic_that_comes_later(broker: Wire, topic: Topic, make_topic: TopicFactory) -> None:
    group_id = new_group(broker)
    member = Consumer(broker, group_id)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    answer = member.join("not-yet-there-" + group_id)
    assert (answer.error_code, answer.member_epoch, member.assigned) == (NONE, 2, {})


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_assignors(broker: Wire, make_topic: TopicFactory, assignor: str) -> None:
    one, other, group_id = make_topic(3), make_topic(3), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    members = [Consumer(broker, group_id) for _ in range(2)]
    for member in members:
        member.join(one.name, other.name, server_assignor=assignor)
    group = settle(broker, group_id, *members)
    assert group.assignor_name == assignor
    shares = sorted([len(consumer.partitions_of(one)), len(consumer.partitions_of(other))] for consumer in members)
    if assignor == "range":
        assert shares == [[1, 1], [2, 2]]
    else:
        assert [sum(share) for share in shares] == [3, 3]


def test_a_static_member_comes_back_to_what_it_had(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(4), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    other, before = Consumer(broker, group_id), Consumer(broker, group_id, instance="i")
    other.join(topic.name)
    before.join(topic.name)
    settle(broker, group_id, other, before)
    after = Consumer(broker, group_id, instance="i")
    early = after.join(topic.name)
    assert early.error_code == UNRELEASED_INSTANCE_ID
    assert early.error_message == (
        f"Static member {after.member_id} with instance id i cannot join the group because the instance id is owned by "
        f"{before.member_id} member."
    )
    left = before.leave(-2)
    assert (left.error_code, left.member_id, left.member_epoch) == (NONE, before.member_id, -2)
    away = described_consumers(broker, group_id)
    assert {row.member_epoch for row in away.members} == {3, -2}
    assert after.join(topic.name).member_epoch == 3
    assert after.assigned == before.assigned
    group = described_consumers(broker, group_id)
    assert (group.group_state, group.group_epoch) == ("Stable", 3)
    fenced = before.beat()
    assert (fenced.error_code, fenced.error_message) == (
        FENCED_INSTANCE_ID,
        f"Static member {before.member_id} with instance id i was fenced by member {after.member_id}.",
    )
    stranger = after.beat(instance_id="j")
    assert (stranger.error_code, stranger.error_message) == (UNKNOWN_MEMBER_ID, "Instance id j is unknown.")


def test_a_member_that_takes_another_instance_id_gives_up_the_first_one(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    member, other = Consumer(broker, group_id, instance="i"), Consumer(broker, group_id, instance="i")
    member.join(topic.name)
    member.instance = "j"
    assert member.join(topic.name).error_code == NONE
    unknown = other.beat(member_epoch=1)
    assert (unknown.error_code, unknown.error_message) == (UNKNOWN_MEMBER_ID, "Instance id i is unknown.")
    assert other.join(topic.name).error_code == NONE


@pytest.mark.parametrize("regex", ["t-[", "(?!a)b", "(a)\\1", "*", "a{2,1}"])
def test_an_invalid_regular_expression_is_refused(broker: Wire, regex: str) -> None:
    request = joining(new_group(broker), subscribed_topic_names=None, subscribed_topic_regex=regex)
    answer = broker.send(request, 1)
    assert answer.error_code == INVALID_REGULAR_EXPRESSION
    assert answer.error_message.startswith(f"SubscribedTopicRegex `{regex}` is not a valid regular expression: ")


def test_a_regular_expression_is_resolved_by_the_broker(broker: Wire, make_topic: TopicFactory) -> None:
    one, two, group_id = make_topic(1), make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    member = Consumer(broker, group_id)
    regex = f"({one.name}|{two.name})"
    answer = member.join(subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert (answer.error_code, answer.member_epoch, member.assigned) == (NONE, 1, {})
    settle(broker, group_id, member, until=lambda: bool(member.assigned))
    assert (member.epoch, member.assigned) == (2, {one.id: {0}, two.id: {0, 1}})
    whole = described_consumers(broker, group_id).members[0]
    assert (whole.subscribed_topic_names, whole.subscribed_topic_regex) == ([], regex)
    member.beat(subscribed_topic_regex="", subscribed_topic_names=[one.name])
    settle(broker, group_id, member)
    assert member.assigned == {one.id: {0}}


def test_a_part_of_a_name_does_not_match(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    member = Consumer(broker, group_id)
    regex = f"{topic.name[:-1]}|nothing"
    member.join(subscribed_topic_names=[topic.name], subscribed_topic_regex=regex)
    settle(broker, group_id, member)
    assert member.assigned == {topic.id: {0}}


def test_a_member_that_does_not_give_back_is_fenced(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    slow, quick = Consumer(broker, group_id), Consumer(broker, group_id)
    slow.join(topic.name, rebalance_timeout_ms=500)
    quick.join(topic.name)
    assert slow.beat().member_epoch == 2
    wait_for(lambda: slow.beat().error_code == UNKNOWN_MEMBER_ID)
    settle(broker, group_id, quick)
    assert quick.partitions_of(topic) == {0, 1}


def test_group_configs_are_obeyed(broker: Wire, topic: Topic) -> None:
    group_id = new_group(broker)
    configure(broker, group_id, consumer_heartbeat_interval_ms="7000")
    member = Consumer(broker, group_id)
    assert member.join(topic.name).heartbeat_interval_ms == interval_of(broker, 7_000)
    configure(broker, group_id, consumer_heartbeat_interval_ms="8000")
    wait_for(lambda: member.beat().heartbeat_interval_ms == interval_of(broker, 8_000))


def test_partitions_that_are_added_are_assigned(broker: Wire, make_topic: TopicFactory) -> None:
    from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

    topic, group_id = make_topic(1), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    member = Consumer(broker, group_id)
    member.join(topic.name)
    more = CreatePartitionsTopic(name=topic.name, count=3, assignments=None)
    answer = broker.send(CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 3)
    assert name_of(answer.results[0].error_code) == "NONE"
    settle(broker, group_id, member, until=lambda: member.partitions_of(topic) == {0, 1, 2})
    assert member.epoch == 3
