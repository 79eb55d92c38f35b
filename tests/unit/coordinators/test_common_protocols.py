"""The protocols that all members of a classic group support, which are remembered, follow every change of the members."""

import pytest

from ottla.coordinators.groups.classic.group import ClassicGroup, State
from ottla.coordinators.groups.classic.member import Member
from ottla.protocol.messages.group_metadata_record import GroupMetadataValue, MemberMetadata
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

BOTH = [("range", b"r"), ("sticky", b"s")]
STICKY = [("sticky", b"s")]


def member(name: str, protocols: list[tuple[str, bytes]]) -> Member:
    return Member(name, None, "", "", 6_000, 6_000, list(protocols))


def supported(group: ClassicGroup) -> list[str]:
    return [name for name in ("range", "sticky") if group.supports("consumer", [name])]


@pytest.fixture
def group() -> ClassicGroup:
    """A group of two members, whose common protocols have been looked for."""
    group = ClassicGroup("g")
    group.state = State.PREPARING_REBALANCE
    group.add(member("a", BOTH), "consumer")
    group.add(member("b", BOTH), "consumer")
    assert supported(group) == ["range", "sticky"]
    return group


def test_a_member_that_comes_and_goes(group: ClassicGroup) -> None:
    group.add(member("c", STICKY), "consumer")
    assert supported(group) == ["sticky"]
    group.remove("c")
    assert supported(group) == ["range", "sticky"]


def test_the_first_member_after_the_last_one_left(group: ClassicGroup) -> None:
    group.remove("a")
    group.remove("b")
    group.add(member("c", STICKY), "consumer")
    assert supported(group) == ["sticky"]


def test_a_member_that_joins_again_with_other_protocols(group: ClassicGroup) -> None:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in STICKY]
    group.update(group.members["a"], JoinGroupRequest(protocols=protocols))
    assert supported(group) == ["sticky"]


def test_a_member_that_keeps_its_protocols_under_another_id(group: ClassicGroup) -> None:
    group.replace(group.members["a"], "c")
    assert supported(group) == ["range", "sticky"]


def test_members_of_a_record_have_the_protocol_that_was_chosen(group: ClassicGroup) -> None:
    rows = [
        MemberMetadata(member_id=name, session_timeout=6_000, rebalance_timeout=6_000, subscription=b"new")
        for name in "ab"
    ]
    group.replay(GroupMetadataValue(protocol_type="consumer", protocol="sticky", leader="a", members=rows))
    assert supported(group) == ["sticky"]
    group.restore_protocols({"a": BOTH, "b": BOTH})
    assert supported(group) == ["range", "sticky"]
