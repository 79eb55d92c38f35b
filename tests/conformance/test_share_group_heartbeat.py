"""ShareGroupHeartbeat, over a socket."""

import time
from typing import Any

import pytest

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .conftest import Topic, TopicFactory, Wire
from .consumers import Consumer, config_of, configure
from .members import new_group, wait_for
from .share_members import (
    Sharer,
    all_of,
    alter,
    beat_request,
    delete_offsets,
    described,
    initialize,
    offsets,
    places,
    settle,
    share_group,
    summary,
)
from .test_delete_groups import commit

API = ShareGroupHeartbeatRequest
REJOIN = "The member must abandon all its partitions and rejoin."


def group_of(wire: Wire) -> str:
    """A share group whose targets follow its epochs at once."""
    group_id = share_group(wire)
    configure(wire, group_id, share_assignment_interval_ms="0")
    return group_id


def error_of(answer: Any) -> tuple[str, str | None]:
    return name_of(answer.error_code), answer.error_message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, None),
        ({"member_id": "m" * 37}, None),
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"group_id": " "}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": []}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_an_invalid_heartbeat_is_refused(broker: Wire, fields: dict[str, Any], message: str | None) -> None:
    request = beat_request("g", "m", 0, subscribed_topic_names=["t"])
    for name, value in fields.items():
        setattr(request, name, value)
    answer = broker.send(request, 1)
    assert error_of(answer) == ("INVALID_REQUEST", message)
    assert (answer.member_id, answer.member_epoch, answer.assignment) == (None, 0, None)


def test_unknown_groups_and_members_are_refused(broker: Wire, topic: Topic) -> None:
    group_id = group_of(broker)
    stranger = Sharer(broker, group_id, "X")
    assert error_of(stranger.beat(1)) == ("GROUP_ID_NOT_FOUND", f"Share group {group_id} not found.")
    assert error_of(stranger.leave()) == ("GROUP_ID_NOT_FOUND", f"Group {group_id} not found.")
    Sharer(broker, group_id).join(topic.name)
    unknown = ("UNKNOWN_MEMBER_ID", f"Member X is not a member of group {group_id}.")
    assert error_of(stranger.beat(1)) == error_of(stranger.leave()) == unknown


def test_one_member_joins_gets_its_partitions_and_leaves(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(3), group_of(broker)
    member = Sharer(broker, group_id)
    answer = member.join(topic.name, "nope")
    assert (error_of(answer), answer.member_id, answer.member_epoch) == (("NONE", None), member.member_id, 2)
    assert answer.assignment.topic_partitions == []  # nobody has a state of them yet
    settle(all_of(topic, 3), member)
    assert member.epoch == 3
    assert summary(broker, group_id, topic.id, 2) == ("NONE", None, 2, 0, -1, -1)
    quiet = member.beat()
    assert (error_of(quiet), quiet.member_epoch, quiet.assignment) == (("NONE", None), 3, None)
    assert quiet.heartbeat_interval_ms == 5000
    again = member.beat(subscribed_topic_names=[topic.name, "nope"])
    assert (again.member_epoch, len(again.assignment.topic_partitions)) == (3, 1)
    left = member.leave()
    assert (error_of(left), left.member_epoch, left.heartbeat_interval_ms) == (("NONE", None), -1, 0)
    group = described(broker, group_id)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Empty", 4, 4)
    assert places(offsets(broker, group_id)).keys() == {(topic.name, index) for index in range(3)}


def test_epochs(broker: Wire, topic: Topic) -> None:
    group_id = group_of(broker)
    member = Sharer(broker, group_id)
    member.join(topic.name)
    fenced = (
        "FENCED_MEMBER_EPOCH",
        (
            "The share group member has a smaller member epoch (1) than the one known by the group coordinator (2), "
            f"and it does not match the previous member epoch (0). {REJOIN}"
        ),
    )
    assert error_of(member.beat(1)) == fenced
    settle(all_of(topic, 1), member)
    fenced = (
        "FENCED_MEMBER_EPOCH",
        (
            "The share group member has a greater member epoch (4) than the one known by the group coordinator (3). "
            f"{REJOIN}"
        ),
    )
    assert error_of(member.beat(4)) == fenced
    lost = member.beat(2)  # the answer with epoch 3 was lost
    assert (error_of(lost), lost.member_epoch, lost.assignment) == (("NONE", None), 3, None)
    rejoined = member.join(topic.name)
    assert (error_of(rejoined), rejoined.member_epoch) == (("NONE", None), 3)
    assert [row.partitions for row in rejoined.assignment.topic_partitions] == [[0]]


def test_partitions_are_dealt_out_evenly_and_stay(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(5), group_of(broker)
    first, second, third = (Sharer(broker, group_id) for _ in range(3))
    first.join(topic.name)
    settle(all_of(topic, 5), first)
    second.join(topic.name)
    settle(all_of(topic, 5), first, second)
    assert sorted(len(member.partitions_of(topic)) for member in (first, second)) == [2, 3]
    before = first.partitions_of(topic), second.partitions_of(topic)
    third.join(topic.name)
    settle(all_of(topic, 5), first, second, third)
    assert sorted(len(member.partitions_of(topic)) for member in (first, second, third)) == [1, 2, 2]
    assert first.partitions_of(topic) <= before[0]
    assert second.partitions_of(topic) <= before[1]
    third.leave()
    settle(all_of(topic, 5), first, second)


@pytest.mark.parametrize(("partitions", "members"), [(1, 3), (2, 3), (2, 4), (3, 4), (3, 7)])
def test_more_members_than_partitions_share_them(
    broker: Wire, make_topic: TopicFactory, partitions: int, members: int
) -> None:
    topic, group_id = make_topic(partitions), group_of(broker)
    group = [Sharer(broker, group_id) for _ in range(members)]
    for member in group:
        member.join(topic.name)
    per_partition = -(-members // partitions)
    settle(all_of(topic, partitions, per_partition), *group)
    sizes = [len(member.partitions_of(topic)) for member in group]
    assert (sum(sizes), max(sizes) - min(sizes) <= 1) == (partitions * per_partition, True)


def test_topics_are_balanced_one_by_one_where_members_read_others(broker: Wire, make_topic: TopicFactory) -> None:
    one, other, group_id = make_topic(4), make_topic(4), group_of(broker)
    first, second, both = (Sharer(broker, group_id) for _ in range(3))
    first.join(one.name)
    second.join(other.name)
    both.join(one.name, other.name)
    settle(all_of(one, 4) | all_of(other, 4), first, second, both)
    assert [len(member.partitions_of(one)) for member in (first, second, both)] == [2, 0, 2]
    assert [len(member.partitions_of(other)) for member in (first, second, both)] == [0, 2, 2]


def test_another_subscription(broker: Wire, make_topic: TopicFactory) -> None:
    one, other, group_id = make_topic(2), make_topic(1), group_of(broker)
    member = Sharer(broker, group_id)
    member.join(one.name)
    settle(all_of(one, 2), member)
    answer = member.beat(subscribed_topic_names=[other.name])
    assert (answer.member_epoch, answer.assignment.topic_partitions) == (4, [])
    settle(all_of(other, 1), member)
    assert member.beat(subscribed_topic_names=[]).member_epoch == 6
    settle({}, member)


def test_partitions_that_are_added_begin_at_their_beginning(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(1), group_of(broker)
    member = Sharer(broker, group_id)
    member.join(topic.name)
    settle(all_of(topic, 1), member)
    row = CreatePartitionsTopic(name=topic.name, count=3, assignments=None)
    more = CreatePartitionsRequest(topics=[row], timeout_ms=10_000)
    assert broker.send(more, 3).results[0].error_code == NONE
    settle(all_of(topic, 3), member)
    assert [summary(broker, group_id, topic.id, index).start_offset for index in range(3)] == [-1, 0, 0]


def test_a_topic_that_goes_and_comes_back_is_another_one(broker: Wire, make_topic: TopicFactory) -> None:
    topic, stays, group_id = make_topic(2), make_topic(1), group_of(broker)
    member = Sharer(broker, group_id)
    member.join(topic.name, stays.name)
    settle(all_of(topic, 2) | all_of(stays, 1), member)
    assert broker.send(DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=10_000), 5).responses[0].error_code == 0
    settle(all_of(stays, 1), member)
    wait_for(lambda: places(offsets(broker, group_id)).keys() == {(stays.name, 0)})
    again = make_topic(1, name=topic.name)
    settle(all_of(again, 1) | all_of(stays, 1), member)
    assert again.id != topic.id


def test_a_deleted_topic_leaves_the_assignment_before_the_next_target(broker: Wire, make_topic: TopicFactory) -> None:
    """The epoch follows when share.assignment.interval.ms is over."""
    group_id = share_group(broker)
    configure(broker, group_id, share_assignment_interval_ms="0")
    stays, goes = make_topic(2), make_topic(2)
    member = Sharer(broker, group_id)
    member.join(stays.name, goes.name)
    settle(all_of(stays, 2) | all_of(goes, 2), member)
    configure(broker, group_id, share_assignment_interval_ms="15000")
    before = member.epoch
    broker.send(DeleteTopicsRequest(topic_names=[goes.name], timeout_ms=5000), 5)
    settle(all_of(stays, 2), member)
    assert (member.epoch, member.beat().assignment) == (before, None)
    configure(broker, group_id, share_assignment_interval_ms="0")
    wait_for(lambda: member.beat().member_epoch == before + 1)
    assert member.assigned == {stays.id: {0, 1}}


def test_a_new_target_waits_for_the_assignment_interval(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), share_group(broker)
    configure(broker, group_id, share_assignment_interval_ms="0")
    first, second = Sharer(broker, group_id), Sharer(broker, group_id)
    first.join(topic.name)
    settle(all_of(topic, 2), first)
    configure(broker, group_id, share_assignment_interval_ms="15000")
    wait_for(lambda: config_of(broker, group_id, "share.assignment.interval.ms") == "15000")
    epoch = first.epoch
    assert second.join(topic.name).member_epoch == epoch
    for member in (first, second, first):
        answer = member.beat()
        assert (answer.member_epoch, answer.assignment) == (epoch, None)
    assert described(broker, group_id).group_epoch == epoch + 1
    configure(broker, group_id, share_assignment_interval_ms="0")
    settle(all_of(topic, 2), first, second)


def test_the_heartbeat_interval_is_a_config_of_the_group(broker: Wire, topic: Topic) -> None:
    group_id = group_of(broker)
    configure(broker, group_id, share_heartbeat_interval_ms="7000")
    member = Sharer(broker, group_id)
    member.join(topic.name)
    settle(all_of(topic, 1), member)
    assert member.beat().heartbeat_interval_ms == 7000
    configure(broker, group_id, share_heartbeat_interval_ms="9000")
    wait_for(lambda: member.beat().heartbeat_interval_ms == 9000)


def test_groups_of_other_types(broker: Wire, topic: Topic) -> None:
    simple, consumers = new_group(broker), new_group(broker)
    commit(broker, simple, topic)
    Consumer(broker, consumers).join(topic.name)
    for group_id in (simple, consumers):
        member = Sharer(broker, group_id)
        wrong = ("GROUP_ID_NOT_FOUND", f"Group {group_id} is not a share group.")
        assert error_of(member.join(topic.name)) == error_of(member.beat(1)) == error_of(member.leave()) == wrong
        group = described(broker, group_id)
        assert (name_of(group.error_code), group.error_message) == wrong


def test_share_version_0_turns_share_groups_off(broker: Wire, topic: Topic) -> None:
    """The APIs stay advertised; only the share coordinator's own go on."""

    def set_level(level: int, kind: int) -> None:
        update = FeatureUpdateKey(feature="share.version", max_version_level=level, upgrade_type=kind)
        answer = broker.send(UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update]), 1)
        assert answer.error_code == NONE
        wait_for(lambda: (error_of(Sharer(broker, group_id).beat(1))[0] == "UNSUPPORTED_VERSION") == (level == 0))

    group_id = share_group(broker)
    set_level(0, 2)
    try:
        for member_id in ("", "m"):
            assert error_of(Sharer(broker, group_id, member_id).join(topic.name)) == ("UNSUPPORTED_VERSION", None)
        answer = broker.send(
            ShareGroupDescribeRequest(group_ids=[group_id, ""], include_authorized_operations=False), 1
        )
        assert [name_of(row.error_code) for row in answer.groups] == ["UNSUPPORTED_VERSION"] * 2
        refused = ("UNSUPPORTED_VERSION", "The version of API is not supported.")
        assert error_of(alter(broker, "", [])) == error_of(delete_offsets(broker, group_id, topic.name)) == refused
        group = offsets(broker, group_id)
        assert (name_of(group.error_code), group.error_message) == ("UNSUPPORTED_VERSION", None)
        assert initialize(broker, group_id, topic.id) == ("NONE", None)
        keys = broker.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4).api_keys
        assert {76, 77, 83, 84, 85, 86, 87, 90, 91, 92} <= {row.api_key for row in keys}
    finally:
        set_level(2, 1)


def test_events_raise_the_group_epoch(broker: Wire, make_topic: TopicFactory) -> None:
    """Each event raises the epoch as in Apache Kafka, and nothing else does: a topic that members begin to share counts
    once for the subscription and once when its state is there.
    """
    group_id = group_of(broker)
    one, two, late = make_topic(2), make_topic(), f"late-{group_id}"
    first = Sharer(broker, group_id)
    members = [first]
    seen: list[tuple[str, int]] = []

    def note(event: str, epoch: int) -> None:
        """The epoch that the group comes to, and in which it stays."""

        def is_reached() -> bool:
            for member in members:
                member.beat()
            return bool(described(broker, group_id).group_epoch >= epoch)

        wait_for(is_reached)
        for _ in range(10):
            time.sleep(0.02)
            is_reached()
        seen.append((event, described(broker, group_id).group_epoch))

    def join_another() -> None:
        members.append(Sharer(broker, group_id))
        members[-1].join(one.name)

    expected = []
    for event, epoch, act in (
        ("joins with two topics", 3, lambda: first.join(one.name, two.name)),
        ("names a missing topic", 4, lambda: first.beat(subscribed_topic_names=[one.name, late])),
        ("that is created", 6, lambda: make_topic(1, late)),
        ("and grows", 8, lambda: grow(broker, late, 3)),
        ("another joins", 9, join_another),
        ("a topic is deleted that none subscribes to", 9, lambda: delete_topics(broker, two.name)),
        ("and one that is", 10, lambda: delete_topics(broker, late)),
        ("joins again with its id", 10, lambda: first.join(one.name, late)),
        ("the other leaves", 11, lambda: members.pop().leave()),
    ):
        act()
        note(event, epoch)
        expected.append((event, epoch))
    assert seen == expected


def grow(wire: Wire, name: str, count: int) -> None:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    wire.send(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 3)


def delete_topics(wire: Wire, name: str) -> None:
    wire.send(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
