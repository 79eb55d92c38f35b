"""Connection without a socket: converts bytes to requests or responses, and back.

The broker's side returns `Envelope`s: the header is decoded, the body is still bytes, because the handler determines how it is
decoded (records are copied, or positions in the frame). The client's side keeps its requests in order, since Kafka answers the
requests of one connection in order. A test can connect two of them in memory.
"""

import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.protocol import codec
from ottla.protocol.api import API_VERSIONS, APIS, Api
from ottla.protocol.frames import FrameReader
from ottla.protocol.messages.header import RequestHeader, ResponseHeader
from ottla.protocol.rows import EncodedRows
from ottla.protocol.schema import Request, Response
from ottla.protocol.wire import PeerError

_START: Final = struct.Struct(">hh")
_CORRELATION_AND_LENGTH: Final = struct.Struct(">ih")
_SHORTEST_HEADER: Final = 10
"""Bytes of a request header up to its client id."""
_REQUEST_START: Final = struct.Struct(">ihhi")
_SIZE_AND_CORRELATION: Final = struct.Struct(">ii")


class PositionalResponse(NamedTuple):
    """Response whose records are positions in its frame, see `codec.decode_positions`."""

    frame: bytes
    fields: Any

    @property
    def throttle_time_ms(self) -> int:
        """Return the throttle time of the response, 0 if it has none."""
        throttle_ms: int = getattr(self.fields, "throttle_time_ms", 0)
        return throttle_ms


class EncodedResponse(Response):
    """Response that is encoded already: the same answer to many requests.

    body    the encoded body, in the version of the requests
    errors  how often it has each error code
    """

    __slots__ = ("body", "errors")

    def __init__(self, body: bytes, errors: Mapping[int, int]) -> None:
        self.body = body
        self.errors = errors


class Envelope:
    """Received request: its header, and the position in `frame` at which the body begins.

    `version` is 0 for an ApiVersions request of an unsupported version: it is answered in version 0 (KIP-511), and its body
    is not decoded. `asked` is the version in the header.
    """

    __slots__ = ("api", "asked", "body", "client_id", "correlation_id", "frame", "version")

    def __init__(
        self, api: Api, asked: int, version: int, correlation_id: int, client_id: str | None, frame: bytes, body: int
    ) -> None:
        self.api = api
        self.asked = asked
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.frame = frame
        self.body = body

    def __repr__(self) -> str:
        return f"{self.api.name} version {self.asked} from client {self.client_id!r}"


def open_envelope(frame: bytes) -> Envelope:
    """Decode the header of a request. Raises PeerError for an invalid header or an unknown API."""
    if len(frame) < 8:
        raise PeerError(f"a frame of {len(frame)} bytes is too short for a request header")
    key, asked = _START.unpack_from(frame)
    api = APIS.get(key)
    if api is None:
        raise PeerError(f"API key {key} is not known")
    if not 0 <= asked <= api.newest:
        if key != API_VERSIONS or asked < 0:
            raise PeerError(f"{api.name} version {asked} is not known, the newest is {api.newest}")
        version, header_version = 0, 1
    else:
        version, header_version = asked, api.request_header_version(asked)
    if header_version and len(frame) > _SHORTEST_HEADER:
        correlation_id, size = _CORRELATION_AND_LENGTH.unpack_from(frame, 4)
        end = _SHORTEST_HEADER + size
        # Nearly always: a client id in ASCII, and no tagged field.
        if size >= 0 and end < len(frame) and (header_version == 1 or frame[end] == 0):
            client_id = frame[_SHORTEST_HEADER:end]
            if client_id.isascii():
                body = end if header_version == 1 else end + 1
                return Envelope(api, asked, version, correlation_id, client_id.decode(), frame, body)
    header, body = codec.decode(RequestHeader, header_version, frame)
    return Envelope(api, asked, version, header.correlation_id, header.client_id, frame, body)


def response_pieces(envelope: Envelope, response: Response) -> list[Any]:
    """Encode a response as buffers for a socket, with its size and header; file regions are kept."""
    tags = b"" if envelope.api.response_header_version(envelope.version) == 0 else b"\x00"
    if type(response) is EncodedResponse:
        size = 4 + len(tags) + len(response.body)
        return [_SIZE_AND_CORRELATION.pack(size, envelope.correlation_id) + tags, response.body]
    if type(response) is EncodedRows:
        pieces: list[Any] = codec.joined([tags, *response.pieces()])
    else:
        pieces = codec.encode_pieces(response, envelope.version, tags)
    size = 4 + (len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces)))
    pieces[0] = _SIZE_AND_CORRELATION.pack(size, envelope.correlation_id) + pieces[0]
    return pieces


class ClientConnection:
    """Client's side of a connection."""

    def __init__(self, client_id: str | None, limit: int = 0x7FFFFFFF) -> None:
        self._client_id = client_id
        self._frames = FrameReader(limit)
        self._sent: deque[tuple[Api, int, int, bool]] = deque()
        self._next_correlation_id = 0
        self._header_ends: dict[int, bytes] = {}
        """Rest of a header after the correlation id, by the version of the header."""

    def _header_end(self, header_version: int) -> bytes:
        known = self._header_ends.get(header_version)
        if known is None:
            header = RequestHeader(
                request_api_key=0, request_api_version=0, correlation_id=0, client_id=self._client_id
            )
            start = _REQUEST_START.size - 4  # without the size of the frame
            known = self._header_ends[header_version] = codec.encode(header, header_version)[start:]
        return known

    def request(
        self, request: Request, version: int, *, expect_answer: bool = True, positions: bool = False
    ) -> list[Any]:
        """Encode a request as buffers for the socket. A Produce with acks=0 expects no response.

        positions  the response is returned as a `PositionalResponse`
        """
        api = APIS[request.API]
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        pieces = codec.encode_pieces(request, version, self._header_end(api.request_header_version(version)))
        size = 8 + (len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces)))
        pieces[0] = _REQUEST_START.pack(size, api.key, version, correlation_id) + pieces[0]
        if expect_answer:
            self._sent.append((api, version, correlation_id, positions))
        return pieces

    @property
    def waiting(self) -> int:
        """Return the number of requests without a response."""
        return len(self._sent)

    @property
    def sent(self) -> int:
        """Return the number of requests so far, modulo 2**31."""
        return self._next_correlation_id

    def feed(self, data: bytes | bytearray) -> Sequence[Response | PositionalResponse]:
        """Return the responses that `data` completes, in the order of their requests. Raises PeerError."""
        shared = data if isinstance(data, bytearray) else bytearray(data)
        room = self._frames.room()
        if room is None:
            frames = self._frames.feed(shared, len(shared))
        else:
            fitted = min(len(room), len(shared))
            room[:fitted] = shared[:fitted]
            room.release()
            del shared[:fitted]
            frames = self._frames.feed_rest(shared, fitted + len(shared))
        return [self.response(frame) for frame in frames]

    def response(self, frame: bytes) -> Response | PositionalResponse:
        """Decode the response in `frame`, which is for the oldest open request. Raises PeerError."""
        if not self._sent:
            raise PeerError("an answer came that nothing asked for")
        api, version, correlation_id, positions = self._sent.popleft()
        header_version = api.response_header_version(version)
        if header_version == 1 and frame[4:5] == b"\x00":  # nearly always: no tagged field
            answered, body = int.from_bytes(frame[:4], "big", signed=True), 5
        else:
            header, body = codec.decode(ResponseHeader, header_version, frame)
            answered = header.correlation_id
        if answered != correlation_id:
            raise PeerError(f"an answer has correlation id {answered}, {correlation_id} was expected")
        if api.key == API_VERSIONS and version > 0 and frame[body : body + 2] == b"\x00\x23":
            version = 0  # a response with UNSUPPORTED_VERSION is encoded in version 0 (KIP-511)
        if positions:
            return PositionalResponse(frame, codec.decode_positions(api.response_class(), version, frame, body)[0])
        return codec.decode(api.response_class(), version, frame, body)[0]
