"""Records of a consumer group in __consumer_offsets, read back over a socket: the same as Apache Kafka's."""

from collections.abc import Callable
from typing import Any

from ottla.coordinators.groups.records import decode_record
from ottla.coordinators.partitions import partition_of
from ottla.protocol.errors import NONE
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.records.batch import records_of, scan

from .conftest import TopicFactory, Wire
from .consumers import Consumer, configure, described_consumers, settle
from .members import Member, new_group, wait_for
from .test_group_migration import assignment, subscription

API = FetchRequest
OFFSETS = "__consumer_offsets"


class Reader:
    """Reads what a group's partition of __consumer_offsets gets from now on."""

    def __init__(self, wire: Wire, group_id: str, tell: Callable[[Any, Any, int], str] | None = None) -> None:
        self.wire = wire
        self.group_id = group_id
        self.tell = tell or words
        request = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS)], allow_auto_topic_creation=False)
        count = len(wire.send(request, 12).topics[0].partitions)
        self.partition = partition_of(group_id, count)
        part = ListOffsetsPartition(partition_index=self.partition, timestamp=-1)
        asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=OFFSETS, partitions=[part])])
        self.offset = wire.send(asked, 5).topics[0].partitions[0].offset

    def records(self) -> list[str]:
        """The group's records since the last call, told in words."""
        part = FetchPartition(
            partition=self.partition, fetch_offset=self.offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=OFFSETS, partitions=[part])])
        answer = self.wire.send(request, 11).responses[0].partitions[0]
        assert answer.error_code == NONE
        texts = []
        markers = [batch for batch in scan(answer.records or b"").batches if batch.is_control]
        for record in records_of(answer.records or b""):
            self.offset = record.offset + 1
            if any(batch.base_offset <= record.offset <= batch.last_offset for batch in markers):
                continue
            assert record.key is not None
            decoded = decode_record(record.key, record.value)
            assert decoded is not None, record.key
            if getattr(decoded.key, "group_id", getattr(decoded.key, "group", "")) == self.group_id:
                texts.append(self.tell(decoded.key, decoded.value, decoded.version))
        return texts


def words(key: Any, value: Any, version: int) -> str:
    name = type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key")
    if value is None:
        return f"{name} tombstone"
    fields = {
        "GroupMetadata": lambda: f"{value.generation} {len(value.members)} {value.protocol}",
        "Metadata": lambda: f"{value.epoch} {'hash' if value.metadata_hash else 'no hash'}",
        "MemberMetadata": lambda: (
            f"{value.instance_id} {value.rack_id} {value.client_id} {len(value.subscribed_topic_names)}"
            f" '{value.subscribed_topic_regex}' {value.rebalance_timeout_ms} {value.server_assignor}"
            f" {'classic' if value.classic_member_metadata else ''}"
        ),
        "TargetAssignmentMetadata": lambda: (
            f"{value.assignment_epoch} {'at' if value.assignment_timestamp else 'never'}"
        ),
        "TargetAssignmentMember": lambda: f"{sum(len(topic.partitions) for topic in value.topic_partitions)}",
        "CurrentMemberAssignment": lambda: (
            f"{value.member_epoch} after {value.previous_member_epoch} state {value.state}"
            f" has {epochs(value.assigned_partitions)} gives {epochs(value.partitions_pending_revocation)}"
        ),
        "RegularExpression": lambda: f"{key.regular_expression != ''} {len(value.topics)}",
        "OffsetCommit": lambda: f"{value.offset}",
    }
    return f"{name} v{version} {fields[name]()}".strip()


def epochs(topics: Any) -> list[int]:
    return sorted(epoch for topic in topics for epoch in topic.assignment_epochs)


def test_members_that_come_and_go(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    reader = Reader(broker, group_id)
    one, two = Consumer(broker, group_id), Consumer(broker, group_id, instance="i")
    one.join(topic.name, rack_id="r", server_assignor="uniform")
    assert reader.records() == [
        "MemberMetadata v0 None r conformance 1 '' 10000 uniform",
        "Metadata v0 2 hash",
        "TargetAssignmentMember v0 2",
        "TargetAssignmentMetadata v0 2 at",
        "CurrentMemberAssignment v0 2 after 0 state 0 has [2, 2] gives []",
    ]
    one.beat()
    assert reader.records() == []
    two.join(topic.name)
    records = reader.records()
    assert sorted(records[2:4]) == ["TargetAssignmentMember v0 1", "TargetAssignmentMember v0 1"]
    assert records[:2] + records[4:] == [
        "MemberMetadata v0 i None conformance 1 '' 10000 None",
        "Metadata v0 3 hash",
        "TargetAssignmentMetadata v0 3 at",
        "CurrentMemberAssignment v0 3 after 0 state 2 has [] gives []",
    ]
    one.beat()
    assert reader.records() == ["CurrentMemberAssignment v0 2 after 2 state 1 has [2] gives [2]"]
    two.beat()
    assert reader.records() == ["CurrentMemberAssignment v0 3 after 3 state 2 has [] gives []"]
    two.beat()
    assert reader.records() == []
    one.beat_with_partitions()
    assert reader.records() == ["CurrentMemberAssignment v0 3 after 2 state 0 has [2] gives []"]
    two.beat()
    assert reader.records() == ["CurrentMemberAssignment v0 3 after 3 state 0 has [3] gives []"]
    two.leave(-2)
    assert reader.records() == ["CurrentMemberAssignment v0 -2 after 3 state 0 has [0] gives []"]
    again = Consumer(broker, group_id, instance="i")
    again.join(topic.name)
    assert reader.records() == [
        "CurrentMemberAssignment tombstone",
        "TargetAssignmentMember tombstone",
        "MemberMetadata tombstone",
        "MemberMetadata v0 i None conformance 1 '' 10000 None",
        "TargetAssignmentMember v0 1",
        "CurrentMemberAssignment v0 0 after 0 state 0 has [0] gives []",
        "CurrentMemberAssignment v0 3 after 0 state 0 has [0] gives []",
    ]
    again.leave()
    assert reader.records() == [
        "CurrentMemberAssignment tombstone",
        "TargetAssignmentMember tombstone",
        "MemberMetadata tombstone",
        "Metadata v0 4 hash",
    ]
    one.leave()
    assert reader.records() == [
        "CurrentMemberAssignment tombstone",
        "TargetAssignmentMember tombstone",
        "MemberMetadata tombstone",
        "Metadata v0 5 no hash",
        "TargetAssignmentMetadata v0 5 never",
    ]


def test_a_regular_expression(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    reader = Reader(broker, group_id)
    member = Consumer(broker, group_id)
    member.join(subscribed_topic_names=None, subscribed_topic_regex=topic.name)
    records: list[str] = []

    def resolved() -> bool:
        records.extend(reader.records())
        return len(records) >= 4

    wait_for(resolved)
    assert records == [
        f"MemberMetadata v0 None None conformance 0 '{topic.name}' 10000 None",
        "CurrentMemberAssignment v0 1 after 0 state 0 has [] gives []",
        "RegularExpression v0 True 1",
        "Metadata v0 2 hash",
    ]
    settle(broker, group_id, member, until=lambda: bool(member.assigned))
    reader.records()
    member.leave()
    assert reader.records() == [
        "CurrentMemberAssignment tombstone",
        "TargetAssignmentMember tombstone",
        "MemberMetadata tombstone",
        "RegularExpression tombstone",
        "Metadata v0 3 no hash",
        "TargetAssignmentMetadata v0 3 never",
    ]


def test_a_group_that_goes_over_and_back(broker: Wire, make_topic: TopicFactory) -> None:
    topic, group_id = make_topic(2), new_group(broker)
    configure(broker, group_id, consumer_assignment_interval_ms="0")
    classic = Member(broker, group_id)
    classic.join(protocols=[("range", subscription(topic.name))])
    classic.sync({classic.member_id: assignment(topic.name, 0, 1)})
    reader = Reader(broker, group_id)
    consumer = Consumer(broker, group_id)
    consumer.join(topic.name)
    records = reader.records()
    assert sorted(records[8:10]) == ["TargetAssignmentMember v0 1", "TargetAssignmentMember v0 1"]
    assert records[:8] + records[10:] == [
        "GroupMetadata tombstone",
        "MemberMetadata v0 None None conformance 1 '' 10000 None classic",
        "Metadata v0 1 hash",
        "TargetAssignmentMember v0 2",
        "TargetAssignmentMetadata v0 1 never",
        "CurrentMemberAssignment v0 1 after 1 state 0 has [1, 1] gives []",
        "MemberMetadata v0 None None conformance 1 '' 10000 None",
        "Metadata v0 2 hash",
        "TargetAssignmentMetadata v0 2 at",
        "CurrentMemberAssignment v0 2 after 0 state 2 has [] gives []",
    ]
    assert described_consumers(broker, group_id).error_code == NONE
    consumer.leave()
    records = reader.records()
    assert sorted(records[:-1]) == sorted(
        [
            "CurrentMemberAssignment tombstone",
            "CurrentMemberAssignment tombstone",
            "TargetAssignmentMember tombstone",
            "TargetAssignmentMember tombstone",
            "TargetAssignmentMetadata tombstone",
            "MemberMetadata tombstone",
            "MemberMetadata tombstone",
            "PartitionMetadata tombstone",
            "Metadata tombstone",
        ]
    )
    assert records[-1] == "GroupMetadata v3 2 1 range"
