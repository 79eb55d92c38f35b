"""ShareGroupDescribe, and share groups among others: ListGroups, DescribeGroups and what other protocols are told."""

from typing import Any

import pytest

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages import offset_commit, offset_delete
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest

from .conftest import Topic, TopicFactory, Wire
from .consumers import configure, heartbeat_request, joining
from .members import heartbeat, join_request
from .share_members import Sharer, all_of, described, settle, share_group
from .transactions import TransactionalProducer, retry_while_busy

API = ShareGroupDescribeRequest


def test_epochs_and_members(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), share_group(broker)
    configure(broker, group_id, share_assignment_interval_ms="0")
    member = Sharer(broker, group_id)
    member.join(topic.name, "nope", rack_id="r1")
    settle(all_of(topic, 2), member)
    group = described(broker, group_id)
    assert (name_of(group.error_code), group.error_message, group.group_id) == ("NONE", None, group_id)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
    assert (group.assignor_name, group.authorized_operations) == ("simple", -(2**31))
    (row,) = group.members
    assert (row.member_id, row.rack_id, row.member_epoch) == (member.member_id, "r1", 3)
    assert (row.client_id, sorted(row.subscribed_topic_names)) == ("conformance", sorted([topic.name, "nope"]))
    (assigned,) = row.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name, assigned.partitions) == (topic.id, topic.name, [0, 1])


def test_operations_when_asked_for(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    Sharer(broker, group_id).join(topic.name)
    request = ShareGroupDescribeRequest(group_ids=[group_id, "nope"], include_authorized_operations=True)
    operations = {group.group_id: group.authorized_operations for group in broker.send(request, 1).groups}
    assert operations == {group_id: 0b1101_0100_1000, "nope": -(2**31)}


def test_groups_that_are_not_there(broker: Wire) -> None:
    group_id = share_group(broker)
    unknown, empty = described(broker, group_id), described(broker, "")
    assert (name_of(unknown.error_code), unknown.error_message) == (
        "GROUP_ID_NOT_FOUND",
        f"Group {group_id} not found.",
    )
    assert (name_of(empty.error_code), empty.error_message) == ("INVALID_GROUP_ID", None)
    assert broker.send(ShareGroupDescribeRequest(group_ids=[], include_authorized_operations=False), 1).groups == []


def test_it_is_listed(broker: Wire, topic: Topic) -> None:
    group_id = share_group(broker)
    member = Sharer(broker, group_id)
    member.join(topic.name)

    def listed(version: int = 5, **filters: Any) -> list[tuple[str, str, str]]:
        groups = broker.send(ListGroupsRequest(**filters), version).groups
        return [
            (group.protocol_type, group.group_state, group.group_type) for group in groups if group.group_id == group_id
        ]

    assert listed() == listed(types_filter=["share"]) == [("share", "Stable", "share")]
    assert listed(types_filter=["Share"], states_filter=["stable"]) == [("share", "Stable", "share")]
    assert listed(types_filter=["consumer", "classic"]) == listed(states_filter=["Empty"]) == []
    assert listed(4) == [("share", "Stable", "")]
    member.leave()
    assert listed(states_filter=["Empty"]) == [("share", "Empty", "share")]


@pytest.mark.parametrize("stays", [True, False], ids=["with a member", "empty"])
def test_other_protocols_are_refused_by_a_share_group(broker: Wire, topic: Topic, stays: bool) -> None:
    group_id = share_group(broker)
    member = Sharer(broker, group_id, "A")
    member.join(topic.name)
    if not stays:
        member.leave()
    not_consumer = ("GROUP_ID_NOT_FOUND", f"Group {group_id} is not a consumer group.")
    requests: list[ConsumerGroupHeartbeatRequest] = [
        joining(group_id, topic.name),
        heartbeat_request(group_id, "A", 1),
        heartbeat_request(group_id, "A", -1),
    ]
    for request in requests:
        answer = broker.send(request, 1)
        assert (name_of(answer.error_code), answer.error_message) == not_consumer
    asked = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    group = broker.send(asked, 1).groups[0]
    assert (name_of(group.error_code), group.error_message) == not_consumer
    group = broker.send(DescribeGroupsRequest(groups=[group_id], include_authorized_operations=False), 6).groups[0]
    assert (group.group_state, group.error_message) == ("Dead", f"Group {group_id} is not a classic group.")
    for version in (3, 9):
        joined = broker.send(join_request(group_id, version), version)
        assert name_of(joined.error_code) == "INCONSISTENT_GROUP_PROTOCOL"
    impatient = broker.send(join_request(group_id, session_timeout_ms=1), 9)
    assert name_of(impatient.error_code) == "INVALID_SESSION_TIMEOUT"
    assert heartbeat(broker, group_id, "A", 1) == "UNKNOWN_MEMBER_ID"
    synced = broker.send(
        SyncGroupRequest(
            group_id=group_id, generation_id=1, member_id="A", protocol_type="consumer", protocol_name="range"
        ),
        5,
    )
    assert name_of(synced.error_code) == "UNKNOWN_MEMBER_ID"
    left = broker.send(LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id="A")]), 5)
    assert (left.error_code, [name_of(row.error_code) for row in left.members]) == (NONE, ["UNKNOWN_MEMBER_ID"])


@pytest.mark.parametrize("stays", [True, False], ids=["with a member", "empty"])
def test_offsets_are_not_committed_to_a_share_group(broker: Wire, topic: Topic, stays: bool) -> None:
    group_id = share_group(broker)
    member = Sharer(broker, group_id, "A")
    member.join(topic.name)
    if not stays:
        member.leave()
    part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [offset_commit.OffsetCommitRequestTopic(name=topic.name, partitions=[part])]
    for member_id, epoch, version in (("", -1, 8), ("", -1, 9), ("A", 2, 9)):
        commit = offset_commit.OffsetCommitRequest(
            group_id=group_id, generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics
        )
        code = broker.send(commit, version).topics[0].partitions[0].error_code
        assert name_of(code) == "GROUP_ID_NOT_FOUND"
    producer = TransactionalProducer(broker)
    assert set(retry_while_busy(lambda: producer.ask_commit_offsets(group_id, topic, {0: 1}))) == {"GROUP_ID_NOT_FOUND"}
    for asks, epoch in ((None, -1), ("A", 2), ("Z", 9)):
        group = OffsetFetchRequestGroup(group_id=group_id, topics=None, member_id=asks, member_epoch=epoch)
        answer = broker.send(OffsetFetchRequest(groups=[group]), 9).groups[0]
        assert (answer.error_code, answer.topics) == (NONE, [])
    place = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
    deletion = offset_delete.OffsetDeleteRequest(
        group_id=group_id, topics=[offset_delete.OffsetDeleteRequestTopic(name=topic.name, partitions=[place])]
    )
    answer = broker.send(deletion, 0)
    assert (name_of(answer.error_code), answer.topics) == ("GROUP_ID_NOT_FOUND", [])
