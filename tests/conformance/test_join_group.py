"""JoinGroup, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import (
    FENCED_INSTANCE_ID,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NONE,
    UNKNOWN_MEMBER_ID,
)
from ottla.protocol.messages.join_group import JoinGroupRequest

from .conftest import Wire, versions
from .members import Member, described, join_request, new_group, settle, stable, wait_for

API = JoinGroupRequest


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_an_invalid_join_is_refused(broker: Wire, version: int, fields: dict[str, Any], code: int) -> None:
    fields = dict(fields)
    group_id = fields.pop("group_id", None)
    group_id = new_group(broker) if group_id is None else group_id
    answer = broker.send(join_request(group_id, version, **fields), version)
    assert answer.error_code == code
    assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])
    assert answer.member_id == fields.get("member_id", "")
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", versions(API))
def test_the_first_member_leads_generation_one(broker: Wire, version: int) -> None:
    member = Member(broker, new_group(broker))
    answer = member.join(version, protocols=[("range", b"r"), ("sticky", b"s")])
    assert answer.error_code == NONE
    assert (answer.generation_id, answer.protocol_name) == (1, "range")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("conformance-")
    assert [(row.member_id, row.metadata) for row in answer.members] == [(answer.member_id, b"r")]
    assert not answer.skip_assignment


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 4])
def test_a_new_member_is_given_its_id_first(broker: Wire, version: int) -> None:
    group_id = new_group(broker)
    answer = broker.send(join_request(group_id, version), version)
    assert (answer.error_code, answer.generation_id) == (MEMBER_ID_REQUIRED, -1)
    assert answer.member_id.startswith("conformance-")
    assert described(broker, group_id).members == []


def test_two_members_share_a_generation(broker: Wire) -> None:
    group_id = new_group(broker)
    first, second = Member(broker, group_id), Member(broker, group_id)
    stable(broker, first)
    second.send_join()
    settle(broker, (first, second))
    assert first.generation == second.generation == 2
    assert {first.joined.leader, second.joined.leader} == {first.member_id}
    assert {row.member_id for row in first.joined.members} == {first.member_id, second.member_id}
    assert second.joined.members == []


def test_the_protocol_is_one_that_all_support_and_most_prefer(broker: Wire) -> None:
    group_id = new_group(broker)
    first, second = Member(broker, group_id), Member(broker, group_id)
    first.join(protocols=[("a", b"1"), ("b", b"2")])
    second.send_join(protocols=[("c", b"3"), ("b", b"4")])
    wait_for(lambda: len(described(broker, group_id).members) == 2)
    first.send_join(protocols=[("a", b"1"), ("b", b"2")])
    assert first.receive_join().protocol_name == second.receive_join().protocol_name == "b"
    assert {row.metadata for row in first.joined.members} == {b"2", b"4"}


def test_a_live_group_refuses_another_type_and_foreign_protocols(broker: Wire) -> None:
    group_id = new_group(broker)
    stable(broker, Member(broker, group_id))
    for fields in ({"protocol_type": "connect"}, {"protocols": [("other", b"")]}):
        assert broker.send(join_request(group_id, **fields), 9).error_code == INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_takes_another_type(broker: Wire) -> None:
    group_id = new_group(broker)
    member = Member(broker, group_id)
    stable(broker, member)
    member.leave()
    other = Member(broker, group_id)
    answer = other.join(protocol_type="connect")
    assert (answer.error_code, answer.protocol_type, answer.generation_id) == (NONE, "connect", 3)


def test_joining_again_while_the_leader_assigns_repeats_the_answer(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    before = member.join()
    again = member.join()
    assert (again.generation_id, again.members) == (before.generation_id, before.members)


def test_joining_again_with_other_metadata_while_the_leader_assigns_starts_a_rebalance(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    member.join()
    assert member.join(protocols=[("range", b"other")]).generation_id == 2


def test_a_stable_leader_that_joins_again_starts_a_rebalance(broker: Wire) -> None:
    member = Member(broker, new_group(broker))
    stable(broker, member)
    assert member.join().generation_id == 2


def test_a_stable_follower_that_joins_again_unchanged_gets_its_generation(broker: Wire) -> None:
    group_id = new_group(broker)
    leader, follower = Member(broker, group_id), Member(broker, group_id)
    stable(broker, leader, follower)
    answer = follower.join()
    assert (answer.error_code, answer.generation_id, answer.members) == (NONE, 2, [])
    assert answer.leader == leader.member_id
    assert leader.heartbeat() == "NONE"


@pytest.mark.parametrize("version", [5, 8])
def test_a_static_leader_that_restarts_is_a_follower_before_version_9(broker: Wire, version: int) -> None:
    group_id = new_group(broker)
    before = Member(broker, group_id, instance="i")
    stable(broker, before)
    after = Member(broker, group_id, instance="i")
    answer = after.join(version)
    assert (answer.error_code, answer.generation_id, answer.members) == (NONE, 1, [])
    assert answer.leader == before.member_id
    assert answer.member_id.startswith("i-")
    assert answer.member_id != before.member_id
    assert before.heartbeat() == "FENCED_INSTANCE_ID"
    assert after.sync().assignment == b"mine0"
    assert after.heartbeat() == "NONE"


def test_a_static_leader_that_restarts_skips_the_assignment_from_version_9(broker: Wire) -> None:
    group_id = new_group(broker)
    before = Member(broker, group_id, instance="i")
    stable(broker, before)
    after = Member(broker, group_id, instance="i")
    answer = after.join(9)
    assert (answer.error_code, answer.generation_id, answer.skip_assignment) == (NONE, 1, True)
    assert answer.leader == answer.member_id
    assert [(row.member_id, row.group_instance_id) for row in answer.members] == [(after.member_id, "i")]


def test_a_static_follower_that_restarts_causes_no_rebalance(broker: Wire) -> None:
    group_id = new_group(broker)
    leader, follower = Member(broker, group_id), Member(broker, group_id, instance="i")
    stable(broker, leader, follower)
    after = Member(broker, group_id, instance="i")
    answer = after.join()
    assert (answer.generation_id, answer.skip_assignment, answer.members) == (2, False, [])
    assert answer.leader == leader.member_id
    assert leader.heartbeat() == "NONE"
    assert after.sync().assignment == b"mine1"


def test_a_static_member_that_restarts_with_another_preference_starts_a_rebalance(broker: Wire) -> None:
    group_id = new_group(broker)
    before = Member(broker, group_id, instance="i")
    assert before.join(protocols=[("range", b""), ("sticky", b"")]).protocol_name == "range"
    before.sync({})
    answer = Member(broker, group_id, instance="i").join(protocols=[("sticky", b""), ("range", b"")])
    assert (answer.generation_id, answer.protocol_name) == (2, "sticky")


def test_a_static_member_that_restarts_without_the_groups_protocol_is_refused(broker: Wire) -> None:
    group_id = new_group(broker)
    stable(broker, Member(broker, group_id, instance="i"))
    answer = Member(broker, group_id, instance="i").join(protocols=[("sticky", b"")])
    assert (answer.error_code, answer.member_id) == (INCONSISTENT_GROUP_PROTOCOL, "")


def test_a_static_member_that_restarts_with_other_topics_keeps_its_generation(broker: Wire) -> None:
    group_id = new_group(broker)
    stable(broker, Member(broker, group_id, instance="i"))
    after = Member(broker, group_id, instance="i")
    answer = after.join(protocols=[("range", b"other")])
    assert (answer.generation_id, [row.metadata for row in answer.members]) == (1, [b"other"])


def test_a_static_member_that_restarts_while_the_leader_assigns_starts_a_rebalance(broker: Wire) -> None:
    group_id = new_group(broker)
    Member(broker, group_id, instance="i").join()
    assert Member(broker, group_id, instance="i").join().generation_id == 2


def test_the_wrong_member_id_of_an_instance_is_fenced(broker: Wire) -> None:
    group_id = new_group(broker)
    member = Member(broker, group_id, instance="i")
    stable(broker, member)
    wrong = broker.send(join_request(group_id, member_id="x", group_instance_id="i"), 9)
    assert wrong.error_code == FENCED_INSTANCE_ID
    unknown = broker.send(join_request(group_id, member_id=member.member_id, group_instance_id="j"), 9)
    assert unknown.error_code == UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_rejoin_is_dropped(broker: Wire) -> None:
    group_id = new_group(broker)
    slow, quick = Member(broker, group_id), Member(broker, group_id)
    slow.join(rebalance_timeout_ms=500)
    slow.sync({})
    quick.send_join(rebalance_timeout_ms=500)
    answer = quick.receive_join()
    assert (answer.error_code, answer.generation_id, answer.leader) == (NONE, 2, quick.member_id)
    assert [row.member_id for row in answer.members] == [quick.member_id]
    assert slow.heartbeat() == "UNKNOWN_MEMBER_ID"


def test_an_empty_group_refuses_ids_of_former_members(broker: Wire) -> None:
    group_id = new_group(broker)
    member = Member(broker, group_id)
    stable(broker, member)
    member.leave()
    assert broker.send(join_request(group_id, member_id=member.member_id), 9).error_code == UNKNOWN_MEMBER_ID


def test_metadata_is_passed_on_as_it_is(broker: Wire) -> None:
    metadata = bytes(range(256)) * 100
    assert Member(broker, new_group(broker)).join(protocols=[("range", metadata)]).members[0].metadata == metadata
