"""Records of a share group in __consumer_offsets, read back over a socket: the same as Apache Kafka's."""

from collections.abc import Callable
from typing import Any

from ottla.protocol.errors import NONE
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.fetch import FetchRequest

from .conftest import TopicFactory, Wire
from .consumers import configure
from .members import wait_for
from .share_members import Sharer, alter, altered, delete_offsets, share_group
from .test_consumer_group_records import Reader

API = FetchRequest


def words(key: Any, value: Any, version: int) -> str:
    name = type(key).__name__.removeprefix("ShareGroup").removesuffix("Key")
    if value is None:
        return f"{name} tombstone"
    fields: dict[str, Callable[[], str]] = {
        "Metadata": lambda: f"{value.epoch} {'hash' if value.metadata_hash else 'no hash'}",
        "MemberMetadata": lambda: f"{value.rack_id} {value.client_id} {len(value.subscribed_topic_names)}",
        "TargetAssignmentMetadata": lambda: (
            f"{value.assignment_epoch} {'at' if value.assignment_timestamp else 'never'}"
        ),
        "TargetAssignmentMember": lambda: f"{parts(value.topic_partitions)}",
        "CurrentMemberAssignment": lambda: (
            f"{value.member_epoch} after {value.previous_member_epoch} state {value.state}"
            f" {parts(value.assigned_partitions)}"
        ),
        "StatePartitionMetadata": lambda: (
            f"initializing {parts(value.initializing_topics)} initialized {parts(value.initialized_topics)}"
            f" deleting {len(value.deleting_topics)}"
        ),
    }
    return f"{name} v{version} {fields[name]()}".strip()


def parts(topics: Any) -> list[int]:
    return sorted(partition for topic in topics for partition in topic.partitions)


def more(reader: Reader, count: int) -> list[str]:
    """The next `count` records: Apache Kafka writes some of them on the side."""
    records: list[str] = []

    def come() -> bool:
        records.extend(reader.records())
        return len(records) >= count

    wait_for(come)
    return records


def test_members_that_come_and_go(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), share_group(broker)
    configure(broker, group_id, share_assignment_interval_ms="0")
    reader = Reader(broker, group_id, words)
    one, two = Sharer(broker, group_id), Sharer(broker, group_id)
    one.join(topic.name, rack_id="r")
    assert more(reader, 7) == [
        "MemberMetadata v0 r conformance 1",
        "Metadata v0 2 hash",
        "TargetAssignmentMember v0 []",
        "TargetAssignmentMetadata v0 2 at",
        "CurrentMemberAssignment v0 2 after 0 state 0 []",
        "StatePartitionMetadata v0 initializing [0, 1] initialized [] deleting 0",
        "StatePartitionMetadata v0 initializing [] initialized [0, 1] deleting 0",
    ]
    one.beat()
    assert reader.records() == [
        "Metadata v0 3 hash",
        "TargetAssignmentMember v0 [0, 1]",
        "TargetAssignmentMetadata v0 3 at",
        "CurrentMemberAssignment v0 3 after 2 state 0 [0, 1]",
    ]
    one.beat()
    assert reader.records() == []
    two.join(topic.name)
    records = reader.records()
    assert records[:2] == ["MemberMetadata v0 None conformance 1", "Metadata v0 4 hash"]
    assert sorted(records[2:4]) == ["TargetAssignmentMember v0 [0]", "TargetAssignmentMember v0 [1]"]
    assert records[4] == "TargetAssignmentMetadata v0 4 at"
    assert records[5].startswith("CurrentMemberAssignment v0 4 after 0 state 0 [")
    one.beat()
    (found_one,) = reader.records()
    assert found_one.startswith("CurrentMemberAssignment v0 4 after 3 state 0 [")
    for member, epoch, last in ((two, 5, []), (one, 6, ["TargetAssignmentMetadata v0 6 never"])):
        member.leave()
        assert reader.records() == [
            "CurrentMemberAssignment tombstone",
            "TargetAssignmentMember tombstone",
            "MemberMetadata tombstone",
            f"Metadata v0 {epoch} {'no hash' if last else 'hash'}",
            *last,
        ]


def test_offsets_that_operators_change(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), share_group(broker)
    reader = Reader(broker, group_id, words)
    altered(alter(broker, group_id, [(topic.name, {0: 3})]))
    assert more(reader, 2) == [
        "StatePartitionMetadata v0 initializing [0] initialized [] deleting 0",
        "StatePartitionMetadata v0 initializing [] initialized [0] deleting 0",
    ]
    altered(alter(broker, group_id, [(topic.name, {0: 4, 1: 1})]))
    assert more(reader, 2) == [
        "StatePartitionMetadata v0 initializing [0, 1] initialized [0] deleting 0",
        "StatePartitionMetadata v0 initializing [] initialized [0, 1] deleting 0",
    ]
    delete_offsets(broker, group_id, topic.name)
    assert more(reader, 2) == [
        "StatePartitionMetadata v0 initializing [] initialized [] deleting 1",
        "StatePartitionMetadata v0 initializing [] initialized [] deleting 0",
    ]
    altered(alter(broker, group_id, [(topic.name, {0: 3})]))
    more(reader, 2)
    assert broker.send(DeleteGroupsRequest(groups_names=[group_id]), 2).results[0].error_code == NONE
    assert more(reader, 4) == [
        "StatePartitionMetadata v0 initializing [] initialized [] deleting 1",
        "TargetAssignmentMetadata tombstone",
        "StatePartitionMetadata tombstone",
        "Metadata tombstone",
    ]
