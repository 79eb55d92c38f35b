"""SyncGroup, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from .conftest import Wire, versions
from .members import Member, described, new_group, settle, stable, wait_for

API = SyncGroupRequest


@pytest.mark.parametrize("version", versions(API))
def test_a_member_gets_what_the_leader_gives(broker: Wire, version: int) -> None:
    member = Member(broker, new_group(broker))
    member.join()
    fields: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    request = SyncGroupRequest(
        group_id=member.group_id,
        generation_id=1,
        member_id=member.member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"mine"),
            SyncGroupRequestAssignment(member_id="stranger", assignment=b"not his"),
        ],
        **fields,
    )
    for _ in range(2):  # the second time the group is stable, and says it again
        answer = broker.send(request, version)
        assert (answer.error_code, answer.assignment) == (NONE, b"mine")
        assert answer.protocol_name == ("range" if version >= 5 else None)
    assert described(broker, member.group_id).group_state == "Stable"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, INVALID_GROUP_ID),
        ({"group_id": "no-such-group"}, UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, UNKNOWN_MEMBER_ID),
        ({"generation_id": 2}, ILLEGAL_GENERATION),
        ({"generation_id": -1}, ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": None}, INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None, "member_id": "nobody"}, INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_an_invalid_sync_is_refused(broker: Wire, fields: dict[str, Any], code: int) -> None:
    member = Member(broker, new_group(broker))
    member.join()
    request = member.sync_request()
    for name, value in fields.items():
        setattr(request, name, value)
    answer = member.wire.send(request, 5)
    assert (answer.error_code, answer.assignment) == (code, b"")
    assert (answer.protocol_type, answer.protocol_name) == (None, None)
    assert member.sync({}).error_code == NONE


def test_followers_wait_for_the_leader(broker: Wire) -> None:
    group_id = new_group(broker)
    leader, follower = Member(broker, group_id), Member(broker, group_id)
    stable(broker, leader)
    follower.send_join()
    settle(broker, (leader, follower))
    follower.wire.send_only(follower.sync_request(), 5)
    assert leader.sync({follower.member_id: b"his"}).assignment == b""
    assert follower.wire.receive().assignment == b"his"


def test_members_are_still_rejoining(broker: Wire) -> None:
    group_id = new_group(broker)
    member, newcomer = Member(broker, group_id), Member(broker, group_id)
    stable(broker, member)
    newcomer.send_join()
    wait_for(lambda: described(broker, group_id).group_state == "PreparingRebalance")
    assert member.sync().error_code == REBALANCE_IN_PROGRESS


def test_waiting_followers_get_rebalance_in_progress_when_a_member_joins(broker: Wire) -> None:
    group_id = new_group(broker)
    leader, follower, newcomer = (Member(broker, group_id) for _ in range(3))
    stable(broker, leader)
    follower.send_join()
    settle(broker, (leader, follower))
    follower.wire.send_only(follower.sync_request(), 5)
    newcomer.send_join()
    assert follower.wire.receive().error_code == REBALANCE_IN_PROGRESS


def test_a_fenced_instance_cannot_sync(broker: Wire) -> None:
    group_id = new_group(broker)
    before = Member(broker, group_id, instance="i")
    stable(broker, before)
    Member(broker, group_id, instance="i").join()
    assert before.sync().error_code == FENCED_INSTANCE_ID


def test_a_member_that_never_syncs_is_dropped(broker: Wire) -> None:
    group_id = new_group(broker)
    member = Member(broker, group_id)
    member.join(rebalance_timeout_ms=300)
    wait_for(lambda: described(broker, group_id).group_state == "Empty")
    assert member.sync().error_code == UNKNOWN_MEMBER_ID
