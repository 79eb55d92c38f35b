"""DescribeGroups, over a socket."""

import pytest

from ottla.protocol.errors import GROUP_ID_NOT_FOUND, NONE
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest

from .conftest import Topic, Wire, versions
from .consumers import Consumer
from .members import NO_TOPICS, Member, new_group, stable, wait_for

API = DescribeGroupsRequest
NOT_ASKED = -(2**31)


@pytest.mark.parametrize("version", versions(API))
def test_a_stable_group(broker: Wire, version: int) -> None:
    member = Member(broker, new_group(broker), instance="i")
    stable(broker, member)
    (group,) = broker.send(DescribeGroupsRequest(groups=[member.group_id]), version).groups
    assert (group.error_code, group.group_id, group.group_state) == (NONE, member.group_id, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert group.authorized_operations == NOT_ASKED
    (row,) = group.members
    assert (row.member_id, row.client_id) == (member.member_id, "conformance")
    assert row.group_instance_id == ("i" if version >= 4 else None)
    assert row.client_host.startswith("/")
    assert (row.member_metadata, row.member_assignment) == (NO_TOPICS, b"mine0")


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("group_id", ["no-such-group", "also/not\u00fc"])
def test_a_group_that_is_not_there_is_dead(broker: Wire, version: int, group_id: str) -> None:
    new_group(broker)
    (group,) = broker.send(DescribeGroupsRequest(groups=[group_id]), version).groups
    assert (group.group_id, group.group_state, group.members) == (group_id, "Dead", [])
    assert group.error_code == (GROUP_ID_NOT_FOUND if version >= 6 else NONE)
    assert group.error_message == (f"Group {group_id} not found." if version >= 6 else None)


def test_metadata_and_assignments_are_empty_before_the_leader_assigns(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    member.join()
    (group,) = broker.send(DescribeGroupsRequest(groups=[member.group_id]), 6).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("CompletingRebalance", "consumer", "")
    assert [(row.member_metadata, row.member_assignment) for row in group.members] == [(b"", b"")]


def test_a_rebalance_keeps_the_assignments_until_the_next_ones(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    other = Member(broker, member.group_id)
    other.send_join()

    def state_and_members() -> tuple[str, set[tuple[bytes, bytes]]]:
        (group,) = broker.send(DescribeGroupsRequest(groups=[member.group_id]), 6).groups
        assert group.protocol_data == ""
        return group.group_state, {(row.member_metadata, row.member_assignment) for row in group.members}

    wait_for(lambda: state_and_members() == ("PreparingRebalance", {(b"", b"mine0"), (b"", b"")}))
    member.join()
    other.receive_join()
    assert state_and_members() == ("CompletingRebalance", {(b"", b"mine0"), (b"", b"")})


def test_an_empty_group_remembers_its_type(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    member.leave()
    (group,) = broker.send(DescribeGroupsRequest(groups=[member.group_id]), 6).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Empty", "consumer", "")
    assert group.members == []


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 3])
def test_authorized_operations_when_asked_for(broker: Wire, version: int) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    request = DescribeGroupsRequest(groups=[member.group_id], include_authorized_operations=True)
    assert broker.send(request, version).groups[0].authorized_operations == 3400


def test_several_groups(broker: Wire) -> None:
    first, second = (Member(broker, new_group(broker)) for _ in range(2))
    stable(broker, first)
    second.join()
    asked = [first.group_id, second.group_id, first.group_id]
    groups = broker.send(DescribeGroupsRequest(groups=asked), 6).groups
    assert sorted(group.group_state for group in groups) == ["CompletingRebalance", "Stable", "Stable"]
    assert broker.send(DescribeGroupsRequest(), 6).groups == []


@pytest.mark.parametrize("version", versions(API))
def test_a_consumer_group_is_described_as_dead(broker: Wire, topic: Topic, version: int) -> None:
    member = Consumer(broker, new_group(broker))
    member.join(topic.name)
    (group,) = broker.send(DescribeGroupsRequest(groups=[member.group_id]), version).groups
    assert (group.group_state, group.members) == ("Dead", [])
    assert group.error_code == (GROUP_ID_NOT_FOUND if version >= 6 else NONE)
    assert group.error_message == (f"Group {member.group_id} is not a classic group." if version >= 6 else None)
