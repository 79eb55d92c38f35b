"""Limits of the elements of a request: they are refused before they are decoded, compiled and interpreted alike."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.fuzz.grown_requests import BARE, DISTINCT, HEADER, TAGS, Place, builder

from ottla.protocol import codec
from ottla.protocol.api import APIS, CREATE_TOPICS, METADATA, OFFSET_FETCH
from ottla.protocol.connection import open_envelope
from ottla.protocol.decoder_source import generated
from ottla.protocol.messages.list_groups import ListGroupsResponse
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.planning import Planner
from ottla.protocol.schema import MOST_ELEMENTS, MOST_OF_MANY, MOST_TAGS, Array, Request, Response, Struct
from ottla.protocol.wire import PeerError, write_uvarint

Decode = Callable[[type[Struct], int, bytes], Any]
MANY = {
    "ConsumerGroupDescribe",
    "DescribeConfigs",
    "DescribeGroups",
    "ListOffsets",
    "OffsetCommit",
    "OffsetFetch",
    "OffsetForLeaderEpoch",
    "ShareGroupDescribe",
    "StreamsGroupDescribe",
    "TxnOffsetCommit",
}
"""APIs with arrays of which real clients send very many."""


def by_plan(cls: type[Struct], version: int, data: bytes) -> Any:
    return Planner(version in cls.FLEXIBLE, version, positions=False).plan(cls).read(data, 0)[0]  # type: ignore[attr-defined]


def by_source(cls: type[Struct], version: int, data: bytes) -> Any:
    return generated(cls, version in cls.FLEXIBLE, version, positions=False)(data, 0)[0]  # type: ignore[attr-defined]


both_ways = pytest.mark.parametrize("decode", [by_plan, by_source])


def body(key: int, version: int, place: Place, count: int, names: str = BARE) -> bytes:
    """The body of a request with `count` elements at a place."""
    building = builder(key, version)
    whole = building.with_elements(place, count, names)
    return whole[4 + len(building.head) :]


def limit_of(cls: type[Request], place: Place) -> int:
    kind: Any = cls
    for name in place.path:
        declared = next(field for field in kind.FIELDS if field.name == name)
        kind = declared.type.element if isinstance(declared.type, Array) else declared.type
    return MOST_OF_MANY if declared.many else cls.ELEMENTS


@pytest.mark.parametrize("key", sorted(APIS))
def test_an_array_of_a_request_has_a_limit_everywhere(key: int) -> None:
    cls = APIS[key].request_class()
    for version in (cls.VERSIONS.first, cls.VERSIONS.last):
        building = builder(key, version)
        for place in building.places():
            if not isinstance(place.kind, Array):
                continue
            data = building.claiming(place, limit_of(cls, place) + 1)
            for decode in (by_plan, by_source):
                with pytest.raises(PeerError, match=r"too many elements|elements (is larger )?than the \d+ allowed"):
                    decode(cls, version, data)


def test_only_requests_that_real_clients_fill_have_the_larger_limit() -> None:
    names = set()
    for key, api in APIS.items():
        cls = api.request_class()
        for version in (cls.VERSIONS.first, cls.VERSIONS.last):
            arrays = [place for place in builder(key, version).places() if isinstance(place.kind, Array)]
            if any(limit_of(cls, place) == MOST_OF_MANY for place in arrays):
                names.add(api.name)
    assert names == MANY


@both_ways
def test_as_many_elements_as_the_limit_are_decoded(decode: Decode) -> None:
    (place,) = (place for place in builder(METADATA, 4).places() if place.path == ("topics",))
    message = decode(MetadataRequest, 4, body(METADATA, 4, place, MOST_ELEMENTS))
    assert len(message.topics) == MOST_ELEMENTS


@both_ways
def test_elements_of_nested_arrays_count_together(decode: Decode) -> None:
    """Half of the limit in topics, each with one config: over it by the configs of the last ones."""
    cls = APIS[CREATE_TOPICS].request_class()
    (place,) = (place for place in builder(CREATE_TOPICS, 7).places() if place.path == ("topics",))
    # A topic counts for four: itself, an assignment with a replica, a config.
    decode(cls, 7, body(CREATE_TOPICS, 7, place, cls.ELEMENTS // 4, DISTINCT))
    with pytest.raises(PeerError, match="too many elements"):
        decode(cls, 7, body(CREATE_TOPICS, 7, place, cls.ELEMENTS // 4 + 1, DISTINCT))


@both_ways
def test_partitions_of_many_topics_do_not_count(decode: Decode) -> None:
    (place,) = (place for place in builder(OFFSET_FETCH, 7).places() if place.path == ("topics",))
    message = decode(OffsetFetchRequest, 7, body(OFFSET_FETCH, 7, place, MOST_ELEMENTS + 1, DISTINCT))
    assert len(message.topics) == MOST_ELEMENTS + 1


@both_ways
def test_structs_of_an_array_of_many_are_not_nearly_all_empty(decode: Decode) -> None:
    """Those of real clients have names: empty ones take 140 bytes of memory for six of a frame."""
    count = 2 * MOST_ELEMENTS
    empty = bytes(2) + count.to_bytes(4, "big") + bytes(6 * count)
    with pytest.raises(PeerError, match="nearly all empty"):
        decode(OffsetFetchRequest, 1, empty)
    topic = b"\0\x0a" + b"long-name-" + bytes(4)
    named = bytes(2) + count.to_bytes(4, "big") + count * topic
    assert len(decode(OffsetFetchRequest, 1, named).topics) == count


@both_ways
def test_a_tagged_section_has_as_many_fields_as_kafkas(decode: Decode) -> None:
    message = decode(MetadataRequest, 9, body(METADATA, 9, Place(TAGS, None), MOST_TAGS))
    assert len(message.unknown_tags) == MOST_TAGS
    with pytest.raises(PeerError, match=f"than the {MOST_TAGS} allowed"):
        decode(MetadataRequest, 9, body(METADATA, 9, Place(TAGS, None), MOST_TAGS + 1))


@both_ways
def test_tagged_fields_count_as_elements(decode: Decode) -> None:
    topics = [MetadataRequestTopic(name="t") for _ in range(11)]
    for topic in topics:
        topic.unknown_tags = dict.fromkeys(range(9_999), b"")
    for count, fits in ((10, True), (11, False)):
        data = codec.encode(MetadataRequest(topics=topics[:count]), 9)
        if fits:
            assert len(decode(MetadataRequest, 9, data).topics) == count
        else:
            with pytest.raises(PeerError, match="too many elements"):
                decode(MetadataRequest, 9, data)


@both_ways
@pytest.mark.parametrize(("cls", "limit"), [(MetadataResponse, 2_000_000), (ListGroupsResponse, 1_000_000)])
def test_responses_have_a_limit(decode: Decode, cls: type[Response], limit: int) -> None:
    """A response of 90 MB with 6.5 million brokers took 2.4 GB of a Python client."""
    assert limit == cls.ELEMENTS
    head = bytes(6 if cls is ListGroupsResponse else 4)
    with pytest.raises(PeerError, match=r"too many elements|allowed"):
        decode(cls, 3 if cls is ListGroupsResponse else 12, head + write_uvarint(limit + 2) + bytes(8 * limit + 64))


@both_ways
def test_a_response_may_have_more_elements_than_a_request(decode: Decode) -> None:
    topics = [MetadataResponseTopic(name="", partitions=[])] * (MOST_ELEMENTS + 1)
    data = codec.encode(MetadataResponse(brokers=[], cluster_id=None, topics=topics), 4)
    assert len(decode(MetadataResponse, 4, data).topics) == MOST_ELEMENTS + 1
    brokers = bytes(4) + (MOST_OF_MANY + 1).to_bytes(4, "big") + bytes(12 * (MOST_OF_MANY + 1))
    with pytest.raises(PeerError, match="allowed"):
        decode(MetadataResponse, 4, brokers)


def test_the_header_of_a_request_has_10_000_tagged_fields_at_most() -> None:
    for count in (MOST_TAGS, MOST_TAGS + 1):
        frame = builder(METADATA, 9).with_elements(Place(HEADER, None), count, BARE)[4:]
        if count == MOST_TAGS:
            assert open_envelope(frame).api.key == METADATA
        else:
            with pytest.raises(PeerError, match="allowed"):
                open_envelope(frame)
