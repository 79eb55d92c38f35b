"""Headers of requests and responses: the short way, which nearly all take, gives what the declarations say."""

import pytest

from ottla.protocol import codec
from ottla.protocol.api import APIS
from ottla.protocol.connection import ClientConnection, open_envelope
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.wire import PeerError

HEARTBEAT = 12
OLD, FLEXIBLE = 3, 4
REQUEST = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def request_frame(version: int, client_id: str | None, tags: dict[int, bytes] | None = None) -> bytes:
    header = RequestHeader(
        request_api_key=HEARTBEAT, request_api_version=version, correlation_id=-7, client_id=client_id
    )
    header.unknown_tags = tags
    return codec.encode(REQUEST, version, codec.encode(header, APIS[HEARTBEAT].request_header_version(version)))


@pytest.mark.parametrize("version", [OLD, FLEXIBLE])
@pytest.mark.parametrize("client_id", [None, "", "client", "klient-ß", "x" * 32_767], ids=lambda text: repr(text)[:9])
def test_request_headers(version: int, client_id: str | None) -> None:
    frame = request_frame(version, client_id)
    envelope = open_envelope(frame)
    assert (envelope.api.key, envelope.asked, envelope.version) == (HEARTBEAT, version, version)
    assert (envelope.correlation_id, envelope.client_id) == (-7, client_id)
    assert codec.decode(HeartbeatRequest, version, frame, envelope.body) == (REQUEST, len(frame))


def test_a_request_header_with_tagged_fields() -> None:
    frame = request_frame(FLEXIBLE, "client", {3: b"more", 200: bytes(200)})
    envelope = open_envelope(frame)
    assert envelope.client_id == "client"
    assert codec.decode(HeartbeatRequest, FLEXIBLE, frame, envelope.body) == (REQUEST, len(frame))


@pytest.mark.parametrize("version", [OLD, FLEXIBLE])
def test_request_headers_that_are_cut_off(version: int) -> None:
    frame = request_frame(version, "client", {3: b"more"} if version == FLEXIBLE else None)
    body = open_envelope(frame).body
    for kept in range(body):
        with pytest.raises(PeerError):
            open_envelope(frame[:kept])


def test_a_client_id_of_negative_length() -> None:
    frame = bytearray(request_frame(OLD, "client"))
    frame[8:10] = b"\xff\xfe"
    # As in Kafka, any negative length is null; the body begins after it.
    assert (open_envelope(bytes(frame)).client_id, open_envelope(bytes(frame)).body) == (None, 10)


@pytest.mark.parametrize("client_id", [None, "", "client", "klient-ß"])
@pytest.mark.parametrize("version", [OLD, FLEXIBLE])
def test_the_client_writes_the_header_of_the_declaration(version: int, client_id: str | None) -> None:
    connection = ClientConnection(client_id)
    for number in range(2):
        frame = b"".join(connection.request(REQUEST, version))
        header = RequestHeader(
            request_api_key=HEARTBEAT, request_api_version=version, correlation_id=number, client_id=client_id
        )
        head = codec.encode(header, APIS[HEARTBEAT].request_header_version(version))
        body = codec.encode(REQUEST, version, head)
        assert frame == len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("tags", [None, {0: b"", 5: b"more"}])
def test_response_headers(tags: dict[int, bytes] | None) -> None:
    connection = ClientConnection("client")
    response = HeartbeatResponse(throttle_time_ms=5, error_code=27)
    connection.request(REQUEST, FLEXIBLE)
    header = ResponseHeader(correlation_id=0)
    header.unknown_tags = tags
    assert connection.response(codec.encode(response, FLEXIBLE, codec.encode(header, 1))) == response


def test_a_response_to_another_request() -> None:
    connection = ClientConnection("client")
    connection.request(REQUEST, FLEXIBLE)
    header = codec.encode(ResponseHeader(correlation_id=-1), 1)
    with pytest.raises(PeerError, match="correlation id -1, 0 was expected"):
        connection.response(codec.encode(HeartbeatResponse(), FLEXIBLE, header))


@pytest.mark.parametrize("kept", range(5))
def test_response_headers_that_are_cut_off(kept: int) -> None:
    connection = ClientConnection("client")
    connection.request(REQUEST, FLEXIBLE)
    with pytest.raises(PeerError):
        connection.response(bytes(kept))
