"""Share groups as members and operators see them, and their state at the share coordinator, spoken for over a socket."""

import base64
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_share_group_offsets,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

from .conftest import Topic, Wire
from .consumers import await_coordinator
from .members import new_group, wait_for

UNKNOWN_TOPIC = "This server does not host this topic-partition."
_SHARE = 2


# Members.


def beat_request(group_id: str, member_id: str, epoch: int, **fields: Any) -> ShareGroupHeartbeatRequest:
    """A heartbeat without news, but for `fields`."""
    return ShareGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch, **fields)


class Sharer:
    """One member of a share group, on a connection of its own; it does what it is told."""

    def __init__(self, wire: Wire, group_id: str, member_id: str | None = None) -> None:
        self.wire = wire.another()
        self.group_id = group_id
        self.member_id = uuid.uuid4().hex if member_id is None else member_id
        self.epoch = 0
        self.assigned: dict[bytes, set[int]] = {}

    def send(self, request: ShareGroupHeartbeatRequest) -> Any:
        """The answer; the member remembers its epoch, and what it may read."""
        answer = self.wire.send(request, 1)
        if answer.error_code == NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.assigned = {topic.topic_id: set(topic.partitions) for topic in answer.assignment.topic_partitions}
        return answer

    def join(self, *topics: str, **fields: Any) -> Any:
        await_coordinator(self.wire, topics)
        return self.send(beat_request(self.group_id, self.member_id, 0, subscribed_topic_names=list(topics), **fields))

    def beat(self, epoch: int | None = None, **fields: Any) -> Any:
        """A heartbeat that says nothing but `fields`."""
        return self.send(beat_request(self.group_id, self.member_id, self.epoch if epoch is None else epoch, **fields))

    def leave(self) -> Any:
        return self.wire.send(beat_request(self.group_id, self.member_id, -1), 1)

    def partitions_of(self, topic: Topic) -> set[int]:
        return self.assigned.get(topic.id, set())


def share_group(wire: Wire) -> str:
    """The id of a share group of this test alone, whose coordinator and share coordinator are ready."""
    group_id = new_group(wire)
    place = base64.urlsafe_b64encode(bytes(16)).decode().rstrip("=")

    def ready() -> bool:
        keys = [f"{group_id}:{place}:0"]
        coordinator = wire.send(FindCoordinatorRequest(key_type=_SHARE, coordinator_keys=keys), 6).coordinators[0]
        return coordinator.error_code == NONE and "COORDINATOR" not in read(wire, group_id, bytes(16)).error

    wait_for(ready)
    return group_id


def settle(expected: Mapping[bytes, Mapping[int, int]], *members: Sharer) -> None:
    """Let the members send heartbeats until together they have `expected`: topic id -> partition -> how many have it."""

    def settled() -> bool:
        for member in members:
            answer = member.beat()
            assert answer.error_code == NONE, (name_of(answer.error_code), answer.error_message)
        counts: dict[bytes, dict[int, int]] = {}
        for member in members:
            for topic_id, partitions in member.assigned.items():
                for partition in partitions:
                    counts_of_topic = counts.setdefault(topic_id, {})
                    counts_of_topic[partition] = counts_of_topic.get(partition, 0) + 1
        return len({member.epoch for member in members}) == 1 and counts == expected

    wait_for(settled)


def all_of(topic: Topic, count: int, members: int = 1) -> dict[bytes, dict[int, int]]:
    """For `settle`: partitions 0 to count - 1 of a topic, `members` members each."""
    return {topic.id: dict.fromkeys(range(count), members)}


def described(wire: Wire, group_id: str) -> Any:
    """A share group as ShareGroupDescribe tells it."""
    request = ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    return wire.send(request, 1).groups[0]


# Operators.


def alter(wire: Wire, group_id: str, topics: Iterable[tuple[str, Mapping[int, int]]]) -> Any:
    """AlterShareGroupOffsets: start offsets by partition."""
    messages = alter_share_group_offsets
    rows = [
        messages.AlterShareGroupOffsetsRequestTopic(
            topic_name=name,
            partitions=[
                messages.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                for index, offset in offsets.items()
            ],
        )
        for name, offsets in topics
    ]
    return wire.send(messages.AlterShareGroupOffsetsRequest(group_id=group_id, topics=rows), 0)


def altered(answer: Any) -> dict[tuple[str, int], tuple[str, str | None]]:
    """Return the outcome of each partition, when the request as a whole is right."""
    assert (answer.error_code, answer.error_message) == (NONE, None)
    return {
        (topic.topic_name, partition.partition_index): (name_of(partition.error_code), partition.error_message)
        for topic in answer.responses
        for partition in topic.partitions
    }


def delete_offsets(wire: Wire, group_id: str, *topics: str) -> Any:
    messages = delete_share_group_offsets
    rows = [messages.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    return wire.send(messages.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=rows), 0)


def offsets(wire: Wire, group_id: str, topics: Iterable[tuple[str, list[int]]] | None = None, version: int = 1) -> Any:
    """The group as DescribeShareGroupOffsets tells it."""
    messages = describe_share_group_offsets
    rows = None
    if topics is not None:
        rows = [
            messages.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=parts) for name, parts in topics
        ]
    group = messages.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=rows)
    return wire.send(messages.DescribeShareGroupOffsetsRequest(groups=[group]), version).groups[0]


def places(group: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """Start offset and lag of each partition that was told."""
    assert (group.error_code, group.error_message) == (NONE, None)
    return {
        (topic.topic_name, partition.partition_index): (partition.start_offset, partition.lag)
        for topic in group.topics
        for partition in topic.partitions
    }


# The share coordinator.


class Read(NamedTuple):
    """The result of ReadShareGroupState for a partition; batches are (first, last, state, count)."""

    error: str
    message: str | None
    state_epoch: int
    start_offset: int
    batches: list[tuple[int, int, int, int]]


class Summary(NamedTuple):
    """The result of ReadShareGroupStateSummary for a partition."""

    error: str
    message: str | None
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


def outcome(answer: Any) -> tuple[str, str | None]:
    """Return the outcome of the only partition of a response."""
    ((partition,),) = (topic.partitions for topic in answer.results)
    return name_of(partition.error_code), partition.error_message


def initialize(
    wire: Wire, group_id: str, topic_id: bytes, partition: int = 0, state_epoch: int = 0, start_offset: int = 0
) -> tuple[str, str | None]:
    messages = initialize_share_group_state
    part = messages.PartitionData(partition=partition, state_epoch=state_epoch, start_offset=start_offset)
    topics = [messages.InitializeStateData(topic_id=topic_id, partitions=[part])]
    return outcome(wire.send(messages.InitializeShareGroupStateRequest(group_id=group_id, topics=topics), 0))


def read(wire: Wire, group_id: str, topic_id: bytes, partition: int = 0, leader_epoch: int = 0) -> Read:
    messages = read_share_group_state
    part = messages.PartitionData(partition=partition, leader_epoch=leader_epoch)
    topics = [messages.ReadStateData(topic_id=topic_id, partitions=[part])]
    answer = wire.send(messages.ReadShareGroupStateRequest(group_id=group_id, topics=topics), 0)
    ((row,),) = (topic.partitions for topic in answer.results)
    batches = [
        (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in row.state_batches
    ]
    return Read(name_of(row.error_code), row.error_message, row.state_epoch, row.start_offset, batches)


def write(
    wire: Wire,
    group_id: str,
    topic_id: bytes,
    batches: Sequence[tuple[int, int, int, int]] = (),
    *,
    partition: int = 0,
    state_epoch: int = 0,
    leader_epoch: int = 0,
    start_offset: int = -1,
    complete: int = -1,
    version: int = 1,
) -> tuple[str, str | None]:
    messages = write_share_group_state
    part = messages.PartitionData(
        partition=partition,
        state_epoch=state_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=complete,
        state_batches=[
            messages.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in batches
        ],
    )
    topics = [messages.WriteStateData(topic_id=topic_id, partitions=[part])]
    return outcome(wire.send(messages.WriteShareGroupStateRequest(group_id=group_id, topics=topics), version))


def delete(wire: Wire, group_id: str, topic_id: bytes, partition: int = 0) -> tuple[str, str | None]:
    messages = delete_share_group_state
    topics = [messages.DeleteStateData(topic_id=topic_id, partitions=[messages.PartitionData(partition=partition)])]
    return outcome(wire.send(messages.DeleteShareGroupStateRequest(group_id=group_id, topics=topics), 0))


def summary(
    wire: Wire, group_id: str, topic_id: bytes, partition: int = 0, leader_epoch: int = 0, version: int = 1
) -> Summary:
    messages = read_share_group_state_summary
    part = messages.PartitionData(partition=partition, leader_epoch=leader_epoch)
    topics = [messages.ReadStateSummaryData(topic_id=topic_id, partitions=[part])]
    answer = wire.send(messages.ReadShareGroupStateSummaryRequest(group_id=group_id, topics=topics), version)
    ((row,),) = (topic.partitions for topic in answer.results)
    return Summary(
        name_of(row.error_code),
        row.error_message,
        row.state_epoch,
        row.leader_epoch,
        row.start_offset,
        row.delivery_complete_count,
    )
