"""Messages in parts: the same results and errors as in one piece, over random messages of every version with rows."""

import random
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

import pytest
from tests.oracles.dice import MessageDice
from tests.unit.protocol.test_plan import damaged

from ottla.broker.requests.dispatch import route_of
from ottla.broker.requests.handlers import SERVED
from ottla.protocol import codec, rows
from ottla.protocol.api import APIS
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.rows import (
    EncodedMessage,
    JoinedResponse,
    RowPath,
    count_errors,
    count_rows,
    encode_in_parts,
    response_path,
)
from ottla.protocol.schema import Request, Response
from ottla.protocol.wire import PeerError

T = TypeVar("T")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ROWS_OF_PART", 2)


def requests_with_rows() -> Iterator[tuple[type[Request], int, RowPath]]:
    for key in SERVED:
        target = route_of(key)
        if target.paths and not target.positions:
            for version in range(target.request_class.VERSIONS.first, target.request_class.VERSIONS.last + 1):
                path = rows.path_in(target.request_class, target.paths, version)
                if path:
                    yield target.request_class, version, path


def responses_with_rows() -> Iterator[tuple[type[Response], int, RowPath]]:
    for cls, version, path in requests_with_rows():
        response_class = APIS[cls.API].response_class()
        yield response_class, version, response_path(response_class, version, path)


def result(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


def outcome(decoding: Callable[[], Any]) -> object:
    try:
        return decoding()
    except PeerError:
        return PeerError


def test_decoding_in_parts_gives_the_message_and_the_errors_of_decoding() -> None:
    rng = random.Random(5)
    tried = 0
    for cls, version, path in requests_with_rows():
        for _ in range(6):
            message = MessageDice(rng).message(cls, version)
            data = codec.encode(message, version, b"head")
            assert result(EncodedMessage(cls, version, data, 4, path).decode()) == message, (cls, version)
            for _ in range(6):
                bad = damaged(rng, data)
                encoded = EncodedMessage(cls, version, bad, 4, path)
                whole = outcome(lambda: codec.decode(cls, version, bad, 4)[0])  # noqa: B023
                for keeps_rows in (True, False):
                    decoded = outcome(lambda: result(encoded.decode(keeps_rows=keeps_rows)))  # noqa: B023
                    if whole is PeerError or keeps_rows:
                        assert decoded == whole, (cls, version)
                    elif getattr(decoded, path[0]) is not None:
                        assert getattr(decoded, path[0]) == []
                        for _ in encoded.parts(decoded):  # type: ignore[arg-type]
                            pass
            tried += 1
    assert tried > 600


def test_encoding_in_parts_gives_the_bytes_of_encoding() -> None:
    rng = random.Random(6)
    tried = 0
    for cls, version, path in responses_with_rows():
        for _ in range(8):
            message = MessageDice(rng).message(cls, version)
            if getattr(message, path[0]) is not None:
                expected = codec.encode(message, version)
                encoded = result(encode_in_parts(message, version, path))
                assert b"".join(encoded.pieces()) == expected, (cls, version, message)
                tried += 1
    assert tried > 600


def test_fields_that_are_set_after_encoding_are_sent() -> None:
    cls, version = APIS[0].response_class(), 9
    message: Any = cls(responses=[], throttle_time_ms=0)
    encoded = result(encode_in_parts(message, version, ("responses", "partition_responses")))
    message.throttle_time_ms = 77
    assert codec.decode(cls, version, b"".join(encoded.pieces()))[0].throttle_time_ms == 77  # type: ignore[attr-defined]


def clear_tags(elements: list[Any] | None, path: RowPath, version: int) -> None:
    """Clear the tagged fields of elements with rows, as nothing reads them: of the parts of one the last has them."""
    for element in elements or ():
        if path:
            element.unknown_tags = None
            for declared in element.FIELDS:
                if version in declared.tagged:
                    setattr(element, declared.name, declared.default_value())
            clear_tags(getattr(element, path[0]), path[1:], version)


def test_parts_of_a_message_joined_are_the_message() -> None:
    rng = random.Random(7)
    several = 0
    for cls, version, path in responses_with_rows():
        for _ in range(8):
            message = MessageDice(rng).message(cls, version)
            clear_tags(getattr(message, path[0]), path[1:], version)
            data = codec.encode(message, version)
            encoded = EncodedMessage(cls, version, data, 0, path)
            parts = list(encoded.parts(result(encoded.decode(keeps_rows=False))))
            if not parts:
                assert not getattr(message, path[0])
                continue
            assert all(count_rows(part, path, 2) <= 2 or len(getattr(part, path[0])) == 1 for part, _ in parts)
            several += len(parts) > 1
            errors = Counter[int]()
            count_errors(message, errors)
            keeps_rows = rng.random() < 0.5
            joined = JoinedResponse(parts[0][0], version, path, keeps_rows=keeps_rows)
            assert parts[0][1] == 0
            for part, depth in parts[1:]:
                joined.add(part, depth)
            rows = joined.end()
            assert b"".join(rows.pieces()) == data, (cls, version)
            assert rows.errors == errors
            if keeps_rows:
                assert rows.message == message
    assert several > 250


def test_an_element_with_many_rows_continues_in_the_next_parts() -> None:
    def topic(name: str, count: int) -> OffsetCommitRequestTopic:
        return OffsetCommitRequestTopic(
            name=name, partitions=[OffsetCommitRequestPartition(partition_index=index) for index in range(count)]
        )

    request = OffsetCommitRequest(group_id="g", topics=[topic("a", 1), topic("b", 5), topic("c", 1), topic("d", 1)])
    encoded = EncodedMessage(OffsetCommitRequest, 9, codec.encode(request, 9), 0, ("topics", "partitions"))
    parts = [
        (depth, [(inner.name, [row.partition_index for row in inner.partitions]) for inner in part.topics])
        for part, depth in encoded.parts(result(encoded.decode(keeps_rows=False)))
    ]
    assert parts == [
        (0, [("a", [0])]),
        (0, [("b", [0, 1])]),
        (1, [("b", [2, 3])]),
        (1, [("b", [4])]),
        (0, [("c", [0]), ("d", [0])]),
    ]


def test_fields_after_the_rows_of_an_element_are_in_each_of_its_parts() -> None:
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=[0, 1, 2, 3, 4])
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=2, transaction_result=True, topics=[topic], coordinator_epoch=7
    )
    data = codec.encode(WriteTxnMarkersRequest(markers=[marker]), 1)
    encoded = EncodedMessage(WriteTxnMarkersRequest, 1, data, 0, ("markers", "topics", "partition_indexes"))
    parts = [
        (depth, part.markers[0].coordinator_epoch, part.markers[0].topics[0].partition_indexes)
        for part, depth in encoded.parts(result(encoded.decode(keeps_rows=False)))
    ]
    assert parts == [(0, 7, [0, 1]), (2, 7, [2, 3]), (2, 7, [4])]


@pytest.mark.parametrize("failing", [(16,), (0, 16), (0, 0, 16), (0, 16, 29, 0)])
def test_the_first_error_of_a_part_of_an_element_is_that_of_the_element(failing: tuple[int, ...]) -> None:
    def part(number: int, code: int) -> OffsetFetchResponse:
        rows = [OffsetFetchResponsePartitions(partition_index=number, committed_offset=7)]
        topics = [] if code else [OffsetFetchResponseTopics(name="t", partitions=rows)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=code)])

    joined = JoinedResponse(part(0, failing[0]), 8, ("groups", "topics", "partitions"))
    for number, code in enumerate(failing[1:], 1):
        joined.add(part(number, code), 2)
    rows = joined.end()
    response, _ = codec.decode(OffsetFetchResponse, 8, b"".join(rows.pieces()), 0)
    assert [(group.group_id, group.error_code) for group in response.groups] == [("g", 16)]
    succeeded = [number for number, code in enumerate(failing) if code == 0]
    listed = [row.partition_index for topic in response.groups[0].topics for row in topic.partitions]
    assert listed == succeeded
    errors = Counter[int]()
    count_errors(response, errors)
    assert rows.errors == errors
