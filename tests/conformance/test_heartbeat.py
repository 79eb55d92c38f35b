"""Heartbeat, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import ILLEGAL_GENERATION, INVALID_GROUP_ID, NONE, UNKNOWN_MEMBER_ID
from ottla.protocol.messages.heartbeat import HeartbeatRequest

from .conftest import Wire, versions
from .members import Member, described, join_request, new_group, stable, wait_for

API = HeartbeatRequest


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, NONE),
        ({"group_id": ""}, INVALID_GROUP_ID),
        ({"group_id": "no-such-group"}, UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ILLEGAL_GENERATION),
        ({"generation_id": 2}, ILLEGAL_GENERATION),
    ],
)
def test_heartbeats_need_a_known_member_and_its_generation(
    broker: Wire, version: int, fields: dict[str, Any], code: int
) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    body: dict[str, Any] = {"group_id": member.group_id, "member_id": member.member_id, "generation_id": 1}
    request = HeartbeatRequest(**(body | fields))
    assert broker.send(request, version).error_code == code


def test_a_rebalance_is_announced(broker: Wire) -> None:
    group_id = new_group(broker)
    member, newcomer = Member(broker, group_id), Member(broker, group_id)
    stable(broker, member)
    newcomer.send_join()
    wait_for(lambda: described(broker, group_id).group_state == "PreparingRebalance")
    assert member.heartbeat() == "REBALANCE_IN_PROGRESS"


def test_a_heartbeat_while_the_leader_assigns_has_no_error(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    member.join()
    assert member.heartbeat() == "NONE"


def test_an_unused_member_id_has_no_heartbeat(broker: Wire) -> None:
    group_id = new_group(broker)
    stable(broker, Member(broker, group_id))
    pending = broker.send(join_request(group_id), 9).member_id
    answer = broker.send(HeartbeatRequest(group_id=group_id, member_id=pending, generation_id=1), 4)
    assert answer.error_code == UNKNOWN_MEMBER_ID


def test_instances_are_held_to_their_member_id(broker: Wire) -> None:
    group_id = new_group(broker)
    before = Member(broker, group_id, instance="i")
    stable(broker, before)
    after = Member(broker, group_id, instance="i")
    after.join()
    assert (before.heartbeat(), after.heartbeat()) == ("FENCED_INSTANCE_ID", "NONE")
    after.instance = "j"
    assert after.heartbeat() == "UNKNOWN_MEMBER_ID"


def test_a_silent_member_is_dropped(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    member.join(session_timeout_ms=6_000)
    member.sync({})
    wait_for(lambda: described(broker, member.group_id).group_state == "Empty")
    assert member.heartbeat() == "UNKNOWN_MEMBER_ID"
