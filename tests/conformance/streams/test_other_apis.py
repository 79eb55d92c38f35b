"""Streams groups in the APIs of all groups: list, describe, delete, join, and committed offsets."""

from functools import partial
from typing import Any

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import TaskOffset
from ottla.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateRequest,
    TopologyDescription,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest
from tests.conformance.conftest import TopicFactory, Wire
from tests.conformance.consumers import GROUP, interval_of, joining
from tests.conformance.transactions import TransactionalProducer, retry_while_busy

from .play import Play, subtopology

API = StreamsGroupDescribeRequest


@pytest.fixture
def play(broker: Wire, make_topic: TopicFactory) -> Play:
    """A streams group without members, whose application reads the topic "lines" with 4 partitions."""
    play = Play(broker, make_topic)
    play.topology = [subtopology(sources=[play.topic("lines", 4)])]
    return play


def lines_of(play: Play) -> str:
    return str(play.topology[0].source_topics[0])


def listed(play: Play, **filters: Any) -> list[tuple[str, str, str]]:
    answer = play.wire.send(ListGroupsRequest(**filters), 5)
    return [
        (group.protocol_type, group.group_type, group.group_state)
        for group in answer.groups
        if group.group_id == play.group_id
    ]


def commit(play: Play, member: str, epoch: int, *partitions: int, topic: str | None = None, version: int = 9) -> str:
    rows = [OffsetCommitRequestPartition(partition_index=index, committed_offset=5) for index in partitions or (0,)]
    request = OffsetCommitRequest(
        group_id=play.group_id,
        member_id=member,
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name=topic or lines_of(play), partitions=rows)],
    )
    codes = {part.error_code for part in play.wire.send(request, version).topics[0].partitions}
    (code,) = codes
    return name_of(code)


def fetch(play: Play, member: str | None, epoch: int) -> str:
    topics = [OffsetFetchRequestTopics(name=lines_of(play), partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id=play.group_id, member_id=member, member_epoch=epoch, topics=topics)
    return name_of(play.wire.send(OffsetFetchRequest(groups=[group]), 9).groups[0].error_code)


def delete_offset(play: Play, topic: str) -> str:
    row = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    answer = play.wire.send(OffsetDeleteRequest(group_id=play.group_id, topics=[row]), 0)
    return name_of(answer.error_code or answer.topics[0].partitions[0].error_code)


def test_listing(play: Play) -> None:
    play.enter("A")
    assert listed(play) == [("streams", "streams", "Stable")]
    assert listed(play, types_filter=["STREAMS"]) == [("streams", "streams", "Stable")]
    assert listed(play, types_filter=["classic", "consumer", "share"]) == []
    assert listed(play, states_filter=["stable"]) == [("streams", "streams", "Stable")]
    assert listed(play, states_filter=["Empty"]) == []
    play.quit("A")
    assert listed(play, states_filter=["Empty"]) == [("streams", "streams", "Empty")]


def test_listing_a_group_that_is_not_ready(play: Play) -> None:
    play.topology = [subtopology(sources=[play.name("missing")])]
    play.enter("A")
    ready = ("streams", "streams", "NotReady")
    assert listed(play) == [ready]
    assert listed(play, states_filter=["Not_Ready"]) == [ready]
    assert listed(play, states_filter=["NotReady"]) == []


@pytest.mark.parametrize("is_empty", [False, True])
def test_describing_it_as_another_type(play: Play, is_empty: bool) -> None:
    play.enter("A")
    if is_empty:
        play.quit("A")
    group_id = play.group_id
    for version in (0, 5, 6):
        group = play.wire.send(DescribeGroupsRequest(groups=[group_id]), version).groups[0]
        code = "GROUP_ID_NOT_FOUND" if version == 6 else "NONE"
        assert (name_of(group.error_code), group.group_state, group.protocol_type) == (code, "Dead", "")
    for request, version, kind in (
        (ConsumerGroupDescribeRequest(group_ids=[group_id]), 1, "consumer"),
        (ShareGroupDescribeRequest(group_ids=[group_id]), 1, "share"),
    ):
        group = play.wire.send(request, version).groups[0]
        assert name_of(group.error_code) == "GROUP_ID_NOT_FOUND"
        assert group.error_message == f"Group {group_id} is not a {kind} group."


@pytest.mark.parametrize("is_empty", [False, True])
def test_heartbeats_of_other_types(play: Play, is_empty: bool) -> None:
    play.enter("A")
    if is_empty:
        play.quit("A")
    group_id = play.group_id
    for request, kind in (
        (joining(group_id, lines_of(play), member_id="m"), "consumer"),
        (ConsumerGroupHeartbeatRequest(group_id=group_id, member_id="m", member_epoch=1), "consumer"),
        (ConsumerGroupHeartbeatRequest(group_id=group_id, member_id="m", member_epoch=-1), "consumer"),
        (
            ShareGroupHeartbeatRequest(
                group_id=group_id, member_id="m", member_epoch=0, subscribed_topic_names=[lines_of(play)]
            ),
            "share",
        ),
        (ShareGroupHeartbeatRequest(group_id=group_id, member_id="m", member_epoch=1), "share"),
    ):
        answer = play.wire.send(request, 1)
        assert name_of(answer.error_code) == "GROUP_ID_NOT_FOUND"
        assert answer.error_message == f"Group {group_id} is not a {kind} group."


def test_streams_members_in_groups_of_other_types(play: Play) -> None:
    group_id = play.group_id
    play.wire.send(joining(group_id, lines_of(play), member_id="m"), 1)
    message = f"GROUP_ID_NOT_FOUND Group {group_id} is not a streams group."
    for answer in (play.enter("A"), play.beat("A", epoch=1), play.quit("A")):
        assert play.text_of(answer) == message
    play.wire.send(ConsumerGroupHeartbeatRequest(group_id=group_id, member_id="m", member_epoch=-1), 1)
    assert play.text_of(play.enter("A")) == message
    described = play.wire.send(StreamsGroupDescribeRequest(group_ids=[group_id, "", "g-nobody"]), 1).groups
    assert [(name_of(group.error_code), group.error_message) for group in described] == [
        ("GROUP_ID_NOT_FOUND", f"Group {group_id} is not a streams group."),
        ("INVALID_GROUP_ID", None),
        ("GROUP_ID_NOT_FOUND", "Group g-nobody not found."),
    ] or sorted(name_of(group.error_code) for group in described) == [
        "GROUP_ID_NOT_FOUND",
        "GROUP_ID_NOT_FOUND",
        "INVALID_GROUP_ID",
    ]


def classic_requests(group_id: str) -> list[tuple[Any, int]]:
    return [
        (HeartbeatRequest(group_id=group_id, generation_id=1, member_id="m"), 4),
        (
            SyncGroupRequest(
                group_id=group_id, generation_id=1, member_id="m", protocol_type="streams", protocol_name="range"
            ),
            5,
        ),
        (LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id="m")]), 5),
    ]


@pytest.mark.parametrize("is_empty", [False, True])
def test_classic_requests(play: Play, is_empty: bool) -> None:
    play.enter("A")
    if is_empty:
        play.quit("A")
    codes = []
    for request, version in classic_requests(play.group_id):
        answer = play.wire.send(request, version)
        code = answer.error_code or (answer.members[0].error_code if getattr(answer, "members", None) else 0)
        codes.append(name_of(code))
    assert codes == ["UNKNOWN_MEMBER_ID"] * 3


def join(play: Play, member_id: str = "", session_timeout_ms: int = 10_000) -> Any:
    request = JoinGroupRequest(
        group_id=play.group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    return play.wire.send(request, 7)


def test_the_session_timeout_of_a_classic_member_is_checked_first(play: Play) -> None:
    play.enter("A")
    assert name_of(join(play, session_timeout_ms=10).error_code) == "INVALID_SESSION_TIMEOUT"
    assert name_of(join(play).error_code) == "INCONSISTENT_GROUP_PROTOCOL"


def test_a_classic_member_joins(play: Play) -> None:
    play.enter("A")
    assert name_of(join(play).error_code) == "INCONSISTENT_GROUP_PROTOCOL"
    assert commit(play, "A", 2) == "NONE"
    play.quit("A")
    play.log()
    play.lines.clear()
    first = join(play)
    assert name_of(first.error_code) == "MEMBER_ID_REQUIRED"
    assert name_of(join(play, first.member_id).error_code) == "NONE"
    play.log()
    assert play.lines == ["  log target epoch tombstone; epoch tombstone; topology tombstone; GroupMetadata"]
    assert [row[1] for row in listed(play)] == ["classic"]
    left = LeaveGroupRequest(group_id=play.group_id, members=[MemberIdentity(member_id=first.member_id)])
    assert name_of(play.wire.send(left, 5).error_code) == "NONE"
    play.log()
    assert fetch(play, None, -1) == "NONE"
    play.lines.clear()
    play.enter("A")  # the classic group is empty: it becomes a streams group again
    assert play.lines[1].startswith("  log GroupMetadata tombstone; member A ")
    assert listed(play) == [("streams", "streams", "Stable")]


def test_committed_offsets_make_a_group_that_is_converted(play: Play) -> None:
    assert commit(play, "", -1) == "NONE"
    assert [row[1] for row in listed(play)] == ["classic"]
    play.enter("A")
    assert play.lines[1].startswith("  log OffsetCommit; GroupMetadata tombstone; member A ")
    assert fetch(play, "A", 2) == "NONE"


@pytest.mark.parametrize("is_converted", [False, True])
def test_endpoint_offsets_and_shutdown_of_the_first_member(play: Play, is_converted: bool) -> None:
    """Of a new streams group Apache Kafka forgets what is not in records: the epoch of the endpoints, the offsets of tasks, and
    that the application is to be shut down.
    """
    if is_converted:
        assert commit(play, "", -1) == "NONE"
    answer = play.enter(
        "A",
        user_endpoint=7001,
        task_offsets={("0", 1): 5},
        task_end_offsets={("0", 1): 7},
        shutdown_application=True,
    )
    assert answer.endpoint_information_epoch == is_converted
    assert [row.status_code for row in answer.status] == [4]
    request = StreamsGroupDescribeRequest(group_ids=[play.group_id])
    (member,) = play.wire.send(request, 1).groups[0].members
    assert member.user_endpoint.port == 7001
    assert (member.task_offsets, member.task_end_offsets) == ([], [])

    def offsets() -> dict[str, tuple[list[int], list[int]]]:
        return {
            member.member_id: (
                [row.offset for row in member.task_offsets],
                [row.offset for row in member.task_end_offsets],
            )
            for member in play.wire.send(request, 1).groups[0].members
        }

    play.beat("A", task_offsets={("0", 1): 6})
    assert offsets() == {"A": ([6], [])}
    answer = play.enter("B", user_endpoint=7002, task_offsets={("0", 1): 5}, task_end_offsets={("0", 1): 7})
    assert (answer.endpoint_information_epoch, answer.status) == (1, [])
    assert offsets() == {"A": ([6], []), "B": ([5], [7])}


def test_a_static_member_joins_again_when_it_has_left(play: Play) -> None:
    play.enter("A", instance_id="i")
    early = play.enter("A", instance_id="i")
    assert (name_of(early.error_code), early.error_message) == (
        "UNRELEASED_INSTANCE_ID",
        "Static member A with instance id i cannot join the group because the instance id is owned by A member.",
    )
    play.quit("A", -2, instance_id="i")
    assert play.enter("A", instance_id="i").error_code == 0


def test_a_member_that_takes_another_instance_id_gives_up_the_first_one(play: Play) -> None:
    play.enter("A", instance_id="i")
    assert play.enter("A", instance_id="j").error_code == 0
    unknown = play.beat("B", 1, instance_id="i")
    assert (name_of(unknown.error_code), unknown.error_message) == ("UNKNOWN_MEMBER_ID", "Instance id i is unknown.")
    assert play.enter("B", instance_id="i").error_code == 0


@pytest.mark.parametrize(("instance_id", "epochs"), [("i", 0), (None, 1)])
@pytest.mark.parametrize("change", [{"user_endpoint": 7002}, {"rebalance_timeout_ms": 50_000}], ids=str)
def test_a_change_of_a_static_member_begins_an_epoch_unless_the_request_has_its_instance_id(
    play: Play, change: dict[str, Any], instance_id: str | None, epochs: int
) -> None:
    joined = play.enter("A", instance_id="i", user_endpoint=7001).member_epoch
    assert play.beat("A", instance_id=instance_id, **change).member_epoch == joined + epochs


def test_commits(play: Play) -> None:
    play.enter("A")
    play.enter("B")
    play.beat("A", owns={"0": [0, 1, 2, 3]})
    play.beat("A", owns={"0": [0, 1]})
    play.beat("B")
    assert play.epochs == {"A": 3, "B": 3}
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        (("A", 3), {}, "NONE"),
        (("A", 3, 2, 3), {}, "NONE"),  # tasks of the other one
        (("A", 2), {}, "NONE"),  # assigned in epoch 2
        (("A", 2, 2), {}, "STALE_MEMBER_EPOCH"),
        (("A", 1), {}, "STALE_MEMBER_EPOCH"),
        (("A", 2), {"topic": "t-nowhere"}, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("B", 2, 2), {}, "STALE_MEMBER_EPOCH"),  # assigned in epoch 3
        (("A", 9), {}, "STALE_MEMBER_EPOCH"),
        (("", -1), {}, "UNKNOWN_MEMBER_ID"),
        (("X", 3), {}, "UNKNOWN_MEMBER_ID"),
        (("A", 3), {"version": 8}, "UNSUPPORTED_VERSION"),
    ]
    assert [commit(play, *arguments, **more) for arguments, more, _ in cases] == [code for *_, code in cases]
    play.quit("A")
    play.quit("B")
    assert commit(play, "", -1) == "NONE"
    assert commit(play, "A", 3) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize("commit_version", [5, 6])
def test_commits_in_transactions(broker: Wire, make_topic: TopicFactory, commit_version: int) -> None:
    topic = make_topic(4)
    play = Play(broker, make_topic)
    play.topology = [subtopology(sources=[topic.name])]
    producer = TransactionalProducer(broker)
    stale = "ILLEGAL_GENERATION" if commit_version < 6 else "STALE_MEMBER_EPOCH"

    def commit(member: str, epoch: int, partition: int = 0) -> str:
        fields = {"member_id": member, "generation_id_or_member_epoch": epoch}
        ask = partial(producer.ask_commit_offsets, play.group_id, topic, {partition: 5}, commit_version, **fields)
        (name,) = retry_while_busy(ask)
        return name

    assert commit("", -1) == "NONE"
    producer.end(commit=True)
    play.enter("A")
    play.enter("B")
    play.beat("A", owns={"0": [0, 1, 2, 3]})
    play.beat("A", owns={"0": [0, 1]})
    play.beat("B")
    cases = [("A", 3), ("", -1), ("X", 3), ("A", 9), ("A", 2), ("A", 2, 2), ("B", 2, 2)]
    expected = ["NONE", "NONE", "UNKNOWN_MEMBER_ID", stale, "NONE", stale, stale]
    assert [commit(*case) for case in cases] == expected  # type: ignore[arg-type]
    producer.end(commit=True)


def test_fetching_offsets(play: Play) -> None:
    play.enter("A")
    cases = [(None, -1), ("", -1), ("A", 2), ("A", 1), ("A", 3), ("X", 2)]
    assert [fetch(play, *arguments) for arguments in cases] == [
        "NONE",
        "UNKNOWN_MEMBER_ID",
        "NONE",
        "STALE_MEMBER_EPOCH",
        "STALE_MEMBER_EPOCH",
        "UNKNOWN_MEMBER_ID",
    ]


def test_deleting_offsets(play: Play, make_topic: TopicFactory) -> None:
    other = make_topic(1).name
    play.enter("A")
    assert commit(play, "A", 2, topic=other) == "NONE"
    assert delete_offset(play, lines_of(play)) == "GROUP_SUBSCRIBED_TO_TOPIC"
    assert delete_offset(play, other) == "NONE"
    play.quit("A")
    assert delete_offset(play, lines_of(play)) == "NONE"


def test_deleting_the_group(play: Play) -> None:
    def delete_group() -> str:
        answer = play.wire.send(DeleteGroupsRequest(groups_names=[play.group_id]), 2)
        return name_of(answer.results[0].error_code)

    play.enter("A")
    commit(play, "A", 2, 0, 1)
    assert delete_group() == "NON_EMPTY_GROUP"
    play.quit("A")
    play.lines.clear()
    assert delete_group() == "NONE"
    play.log()
    assert play.lines == [
        "  log OffsetCommit tombstone; OffsetCommit tombstone; target epoch tombstone; epoch tombstone; topology tombstone"
    ]
    assert delete_group() == "GROUP_ID_NOT_FOUND"
    assert listed(play) == []


def test_a_description_of_the_topology_without_a_plug_in(play: Play) -> None:
    play.enter("A")
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id=play.group_id, member_id="A", topology_epoch=0, topology_description=TopologyDescription()
    )
    answer = play.wire.send(request, 0)
    assert name_of(answer.error_code) == "UNSUPPORTED_VERSION"
    assert answer.error_message == "The broker has no streams group topology description plugin configured."
    described = play.wire.send(
        StreamsGroupDescribeRequest(group_ids=[play.group_id], include_topology_description=True), 1
    ).groups[0]
    assert (described.topology_description, described.topology_description_status) == (None, 1)
    described = play.wire.send(StreamsGroupDescribeRequest(group_ids=[play.group_id]), 1).groups[0]
    assert (described.topology_description_status, described.assignor_name) == (0, "sticky")


INVALID = [
    ({"member_id": " "}, "MemberId can't be empty."),
    ({"member_id": ""}, "MemberId can't be empty."),
    ({"group_id": ""}, "GroupId can't be empty."),
    ({"instance_id": ""}, "InstanceId can't be empty."),
    ({"rack_id": " "}, "RackId can't be empty."),
    ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
    ({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
    ({"standby_tasks": None}, "StandbyTasks must be empty when (re-)joining."),
    ({"warmup_tasks": None}, "WarmupTasks must be empty when (re-)joining."),
    ({"topology": None}, "Topology must be non-null when (re-)joining."),
    ({"member_epoch": -2}, "InstanceId can't be null."),
    ({"member_epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
    ({"member_epoch": 1, "standby_tasks": None}, "If one task-type is non-null, all must be non-null."),
    ({"member_epoch": 1}, "Topology can only be provided when (re-)joining."),
]


@pytest.mark.parametrize(("fields", "message"), INVALID, ids=[str(fields) for fields, _ in INVALID])
def test_invalid_heartbeats_are_refused(play: Play, fields: dict[str, Any], message: str) -> None:
    request = play.entering("A")
    for name, value in fields.items():
        setattr(request, name, value)
    assert play.text_of(play.wire.send(request, 1)) == f"INVALID_REQUEST {message}"


def test_offsets_of_one_task_twice(play: Play) -> None:
    play.enter("A")
    request = play.beat("A", task_offsets={("0", 1): 5})
    assert request.error_code == 0
    heartbeat = play.request("A", 2)
    heartbeat.task_offsets = [TaskOffset(subtopology_id="0", partition=1, offset=offset) for offset in (5, 6)]
    answer = play.wire.send(heartbeat, 1)
    assert name_of(answer.error_code) == "INVALID_REQUEST"


def intervals(answer: Any) -> tuple[int, int, int]:
    return answer.heartbeat_interval_ms, answer.task_offset_interval_ms, answer.acceptable_recovery_lag


def test_a_full_heartbeat_response(play: Play) -> None:
    answer = play.enter("A")
    assert intervals(answer) == (interval_of(play.wire, 5000), 60_000, 10_000)
    assert not answer.topology_description_required
    play.configure(
        streams_task_offset_interval_ms="20000",
        streams_acceptable_recovery_lag="7",
        streams_heartbeat_interval_ms="6000",
    )
    assert intervals(play.beat("A")) == (interval_of(play.wire, 6000), 20_000, 7)
    assert intervals(play.quit("A")) == (0, 0, -1)


BAD_CONFIGS = [
    ("streams.session.timeout.ms", "1", "streams.session.timeout.ms must be in the range 45000 to 60000 inclusive."),
    ("streams.num.standby.replicas", "3", "streams.num.standby.replicas must be less than or equal to 2"),
    (
        "streams.rack.aware.assignment.tags",
        "a,a",
        "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
    ),
    (
        "streams.assignor.name",
        "weird",
        "streams.assignor.name 'weird' is not a registered task assignor. Registered assignors are: [sticky].",
    ),
    (
        "streams.task.offset.interval.ms",
        "5",
        "streams.task.offset.interval.ms must be greater than or equal to 15000",
    ),
    ("streams.num.warmup.replicas", "21", "streams.num.warmup.replicas must be less than or equal to 20"),
]


@pytest.mark.parametrize(("name", "value", "message"), BAD_CONFIGS, ids=[name for name, *_ in BAD_CONFIGS])
def test_configs_of_groups_that_are_refused(broker: Wire, name: str, value: str, message: str) -> None:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[config])
    answer = broker.send(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    assert (name_of(answer.error_code), answer.error_message) == ("INVALID_CONFIG", message)
