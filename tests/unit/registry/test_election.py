"""Metadata and assignments of the group, as Confluent's registry and Karapace write them."""

import json

import pytest

from ottla.registry.election import Identity, elect, identity_of, json_or_none, leader_of

KARAPACE = b'{"version":1,"host":"127.0.0.1","port":8081,"scheme":"http","master_eligibility":true}'
CONFLUENT = b'{"host":"127.0.0.2","port":8081,"master_eligibility":true,"scheme":"https","leader":false,"version":1}'
INELIGIBLE = b'{"host":"127.0.0.0","port":8081,"master_eligibility":false,"version":1}'


def test_metadata_has_confluents_fields() -> None:
    assert Identity("http", "h", 8081).encoded() == (
        b'{"version":1,"host":"h","port":8081,"master_eligibility":true,"scheme":"http","leader":false}'
    )


def test_eligible_member_with_the_smallest_url_is_elected() -> None:
    assignment = elect({"a": CONFLUENT, "b": KARAPACE, "c": INELIGIBLE})
    fields = json.loads(assignment)
    assert (fields["version"], fields["error"], fields["master"]) == (1, 0, "b")
    assert leader_of(assignment) == Identity("http", "127.0.0.1", 8081)


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({"a": KARAPACE, "b": KARAPACE}, 1),
        ({"a": INELIGIBLE}, 0),
        ({"a": b"nonsense", "b": b"{}", "c": b"[]", "d": b'{"host":1,"port":2}'}, 0),
        ({}, 0),
    ],
)
def test_no_member_is_elected_without_an_eligible_one(members: dict[str, bytes], error: int) -> None:
    assignment = elect(members)
    assert json.loads(assignment)["error"] == error
    assert leader_of(assignment) is None


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{", b'{"master_identity":7}', b"\xff", b"[" * 100_000])
def test_malformed_assignment_elects_no_member(data: bytes) -> None:
    assert leader_of(data) is None
    assert identity_of(json_or_none(data)) is None
