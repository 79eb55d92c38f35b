"""LeaveGroup, over a socket."""

import pytest

from ottla.protocol.errors import FENCED_INSTANCE_ID, INVALID_GROUP_ID, NONE, UNKNOWN_MEMBER_ID
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

from .conftest import Wire, versions
from .members import Member, described, join_request, new_group, settle, stable

API = LeaveGroupRequest


def request(group_id: str, version: int, *who: tuple[str, str | None]) -> LeaveGroupRequest:
    if version < 3:
        return LeaveGroupRequest(group_id=group_id, member_id=who[0][0])
    members = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in who]
    return LeaveGroupRequest(group_id=group_id, members=members)


@pytest.mark.parametrize("version", versions(API))
def test_the_last_member_leaves_an_empty_group(broker: Wire, version: int) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    answer = broker.send(request(member.group_id, version, (member.member_id, None)), version)
    assert answer.error_code == NONE
    if version >= 3:
        assert [(row.member_id, row.error_code) for row in answer.members] == [(member.member_id, NONE)]
    assert described(broker, member.group_id).group_state == "Empty"
    assert Member(broker, member.group_id).join().generation_id == 3


@pytest.mark.parametrize("version", versions(API))
def test_groups_and_members_that_are_not_there(broker: Wire, version: int) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    for group_id in (member.group_id, "no-such-group"):
        answer = broker.send(request(group_id, version, ("nobody", None)), version)
        if version < 3:
            assert answer.error_code == UNKNOWN_MEMBER_ID
        else:
            assert answer.error_code == NONE
            assert [(row.member_id, row.error_code) for row in answer.members] == [("nobody", UNKNOWN_MEMBER_ID)]
    answer = broker.send(request("", version, ("nobody", None)), version)
    assert (answer.error_code, answer.members) == (INVALID_GROUP_ID, [])


def test_several_leave_at_once(broker: Wire) -> None:
    group_id = new_group(broker)
    first, second = Member(broker, group_id), Member(broker, group_id, instance="i")
    stable(broker, first, second)
    who = [(first.member_id, None), ("", "i"), ("", "j"), ("x", "i"), (first.member_id, None), ("", None)]
    answer = broker.send(request(group_id, 5, *who), 5)
    assert [(row.member_id, row.group_instance_id) for row in answer.members] == who
    codes = [row.error_code for row in answer.members]
    assert codes == [NONE, NONE, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID]
    assert described(broker, group_id).group_state == "Empty"


def test_an_instance_is_protected_by_its_member_id(broker: Wire) -> None:
    group_id = new_group(broker)
    stable(broker, Member(broker, group_id, instance="i"))
    answer = broker.send(request(group_id, 5, ("x", "i")), 5)
    assert answer.members[0].error_code == FENCED_INSTANCE_ID


def test_an_empty_list_of_members_has_no_effect(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    answer = broker.send(request(member.group_id, 5), 5)
    assert (answer.error_code, answer.members) == (NONE, [])
    assert member.heartbeat() == "NONE"


def test_the_others_rebalance_when_one_leaves(broker: Wire) -> None:
    group_id = new_group(broker)
    first, second = Member(broker, group_id), Member(broker, group_id)
    stable(broker, first, second)
    first.leave()
    assert second.heartbeat() == "REBALANCE_IN_PROGRESS"
    answer = second.join()
    assert (answer.generation_id, answer.leader) == (3, second.member_id)


def test_a_rebalance_completes_when_the_missing_member_leaves(broker: Wire) -> None:
    group_id = new_group(broker)
    first, second, third = (Member(broker, group_id) for _ in range(3))
    stable(broker, first)
    second.send_join()
    settle(broker, (first, second))
    third.send_join()
    while len(described(broker, group_id).members) < 3:  # Kafka serves connections side by side
        pass
    first.send_join()
    second.leave()
    assert first.receive_join().generation_id == third.receive_join().generation_id == 3


def test_an_unused_member_id_is_given_back(broker: Wire) -> None:
    group_id = new_group(broker)
    pending = broker.send(join_request(group_id), 9).member_id
    assert broker.send(request(group_id, 5, (pending, None)), 5).members[0].error_code == NONE
    assert broker.send(join_request(group_id, member_id=pending), 9).error_code == UNKNOWN_MEMBER_ID
