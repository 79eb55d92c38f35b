"""Signs of life in the metadata store, also those of other releases."""

import json

from ottla.metadata.image import Liveness

KEY = "/live/1"


def test_a_sign_of_life_is_encoded_and_decoded() -> None:
    sign = Liveness("ab", 7, 12, is_stopping=True, awaited=40, applied=39)
    assert Liveness.decoded(KEY, sign.encoded(), 12) == sign


def test_a_sign_of_life_of_an_earlier_release_has_no_applied_revision() -> None:
    value = json.dumps({"format": 1, "incarnation": "ab", "lease": 7, "stopping": False}).encode()
    sign = Liveness.decoded(KEY, value, 12)
    assert (sign.awaited, sign.applied) == (0, -1)


def test_an_earlier_release_reads_a_new_sign_of_life() -> None:
    fields = json.loads(Liveness("ab", 7, 12, applied=0).encoded())
    assert fields.items() >= {"format": 1, "incarnation": "ab", "lease": 7, "stopping": False}.items()


def test_fields_of_a_newer_release_are_passed_over() -> None:
    fields = json.loads(Liveness("ab", 7, 12, applied=0).encoded())
    assert Liveness.decoded(KEY, json.dumps({**fields, "mood": "good"}).encode(), 12) == Liveness(
        "ab", 7, 12, applied=0
    )
