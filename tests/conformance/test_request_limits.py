"""Limits of the arrays and tagged sections of a request: the connection is closed above them."""

import pytest

from ottla.protocol.api import API_VERSIONS, DESCRIBE_GROUPS, METADATA
from ottla.protocol.schema import MOST_ELEMENTS, MOST_OF_MANY, MOST_TAGS
from tests.fuzz.grown_requests import BARE, HEADER, TAGS, Place, builder

from .conftest import Closed, Wire


def is_answered(broker: Wire, key: int, version: int, place: Place, count: int) -> bool:
    """Return whether a request with `count` elements at a place has a response, and the connection stays open."""
    broker.send_raw(builder(key, version).with_elements(place, count, BARE))
    try:
        size = int.from_bytes(broker.receive_raw(4), "big")
        broker.receive_raw(size)
    except (Closed, ConnectionError):
        return False
    return True


@pytest.mark.parametrize("place", [HEADER, TAGS])
def test_a_tagged_section_has_at_most_10_000_fields(broker: Wire, place: tuple[str, ...]) -> None:
    assert is_answered(broker, API_VERSIONS, 3, Place(place, None), MOST_TAGS)
    assert not is_answered(broker.another(), API_VERSIONS, 3, Place(place, None), MOST_TAGS + 1)


def test_an_array_has_at_most_a_million_elements(broker: Wire) -> None:
    (groups,) = (place for place in builder(DESCRIBE_GROUPS, 6).places() if place.path == ("groups",))
    assert is_answered(broker, DESCRIBE_GROUPS, 6, groups, 1_000)
    assert not is_answered(broker.another(), DESCRIBE_GROUPS, 6, groups, MOST_OF_MANY + 1)


def test_the_arrays_of_a_request_have_at_most_100_000_elements(broker: Wire, ottla_only: None) -> None:
    """Apache Kafka serves up to a million in each array."""
    (topics,) = (place for place in builder(METADATA, 4).places() if place.path == ("topics",))
    assert is_answered(broker, METADATA, 4, topics, MOST_ELEMENTS)
    assert not is_answered(broker.another(), METADATA, 4, topics, MOST_ELEMENTS + 1)
