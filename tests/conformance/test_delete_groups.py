"""DeleteGroups, over a socket."""

import pytest

from ottla.protocol.errors import name_of
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

from .conftest import Topic, Wire, versions
from .consumers import Consumer, described_consumers
from .members import Member, committed, described, new_group

API = DeleteGroupsRequest


def commit(wire: Wire, group_id: str, topic: Topic, offset: int = 3) -> None:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    asked = OffsetCommitRequestTopic(name=topic.name, partitions=[part])
    wire.send(OffsetCommitRequest(group_id=group_id, topics=[asked]), 8)


def delete(wire: Wire, version: int, *names: str) -> dict[str, tuple[str, str | None]]:
    results = wire.send(DeleteGroupsRequest(groups_names=list(names)), version).results
    assert len(results) == len(set(names))
    return {result.group_id: (name_of(result.error_code), result.error_message) for result in results}


@pytest.mark.parametrize("version", versions(API))
def test_a_group_that_only_committed_goes_with_its_offsets(broker: Wire, topic: Topic, version: int) -> None:
    group_id = new_group(broker)
    commit(broker, group_id, topic)
    assert committed(broker, group_id, topic.name)[0] == 3
    assert delete(broker, version, group_id) == {group_id: ("NONE", None)}
    assert committed(broker, group_id, topic.name)[0] == -1
    assert delete(broker, version, group_id) == {group_id: ("GROUP_ID_NOT_FOUND", None)}


@pytest.mark.parametrize("version", versions(API))
def test_groups_with_members_and_unknown_groups_are_refused(broker: Wire, version: int) -> None:
    member = Member(broker, new_group(broker))
    member.join()
    delete(broker, version, "")  # somebody may have committed offsets without a name
    outcomes = delete(broker, version, "nobody", member.group_id, "", "nobody")
    unknown = ("GROUP_ID_NOT_FOUND", None)
    assert outcomes == {"nobody": unknown, "": unknown, member.group_id: ("NON_EMPTY_GROUP", None)}
    assert described(broker, member.group_id).group_state != "Dead"


def test_no_groups_are_no_results(broker: Wire) -> None:
    assert delete(broker, 2) == {}


def test_a_consumer_group_without_members_is_deleted(broker: Wire, topic: Topic) -> None:
    member = Consumer(broker, new_group(broker))
    member.join(topic.name)
    assert delete(broker, 2, member.group_id) == {member.group_id: ("NON_EMPTY_GROUP", None)}
    member.leave()
    commit(broker, member.group_id, topic)
    assert delete(broker, 2, member.group_id) == {member.group_id: ("NONE", None)}
    assert committed(broker, member.group_id, topic.name)[0] == -1
    assert described_consumers(broker, member.group_id).error_message == f"Group {member.group_id} not found."
