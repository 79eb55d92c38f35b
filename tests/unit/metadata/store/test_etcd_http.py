"""The HTTP connection of etcd's client, byte by byte, and the errors of endpoints that are no usable etcd."""

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.queues import ImmediateTimers, immediate_queue, unexpected
from tests.unit.metadata.stores import Replica, VirtualTime

from ottla.environment import Address, Receiver
from ottla.metadata.store import Change, ChangeOutcome
from ottla.metadata.store.etcd.gateway import Lines
from ottla.metadata.store.etcd.http import HttpConnection, HttpError, HttpResponse
from ottla.metadata.store.etcd.store import EtcdMetadataStore
from ottla.metadata.store.etcd.url import parse
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.scheduler import Scheduler


class Line:
    """One connection as the server sees it."""

    def __init__(self, address: Address, receiver: Receiver) -> None:
        self.address = address
        self.receiver = receiver
        self.written = b""
        self.is_closed = False
        self.is_cancelled = False
        self._unread = b""

    def write(self, pieces: Sequence[Any]) -> None:
        assert not self.is_closed
        self.written += b"".join(pieces)

    def close(self) -> None:
        self.is_closed = True

    def cancel(self) -> None:
        self.is_cancelled = True

    def connect(self) -> "Line":
        self.receiver.connected(self)
        return self

    def give(self, data: bytes) -> None:
        """Deliver bytes; none is the end of the stream."""
        self._unread = data
        while True:
            self.receiver.readable(self._receive_into)
            if not self._unread or self.is_closed:
                return

    def _receive_into(self, room: Any) -> int:
        count = min(len(room), len(self._unread))
        room[:count], self._unread = self._unread[:count], self._unread[count:]
        return count


class FakeTransport:
    """A transport that records connection attempts."""

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def open(
        self, address: Address, receiver: Receiver, *, send_buffer: int = -1, receive_buffer: int = -1
    ) -> Callable[[], None]:
        line = Line(address, receiver)
        self.lines.append(line)
        return line.cancel


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def connection(transport: FakeTransport) -> HttpConnection:
    return HttpConnection(transport, ("host", 2379), immediate_queue())


OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{"a":1}'
CHUNKED = (
    b"HTTP/1.1 404 Not Found\r\nTrailer: Grpc-Trailer-Content-Type\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'4\r\n{"er\r\n6\r\nror":1\r\n1\r\n}\r\n0\r\nGrpc-Trailer-Content-Type: application/grpc\r\n\r\n'
)


def test_a_request_as_bytes(transport: FakeTransport, connection: HttpConnection) -> None:
    connection.request("POST", "/v3/kv/range", b'{"key":"AA=="}', [("Authorization", "token.1")])
    (line,) = transport.lines
    assert line.written == b""
    line.connect()
    assert line.written == (
        b"POST /v3/kv/range HTTP/1.1\r\nHost: host:2379\r\nContent-Type: application/json\r\nContent-Length: 14\r\n"
        b'Authorization: token.1\r\n\r\n{"key":"AA=="}'
    )


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(("data", "response"), [(OK, (200, b'{"a":1}')), (CHUNKED, (404, b'{"error":1}'))])
def test_responses_in_pieces_on_one_connection(
    transport: FakeTransport, connection: HttpConnection, size: int, data: bytes, response: tuple[int, bytes]
) -> None:
    line = transport.lines[0].connect()
    for _ in range(3):
        promise = connection.request("POST", "/x")
        for start in range(0, len(data), size):
            assert not promise.done
            line.give(data[start : start + size])
        assert promise.result() == response
    assert line.written.count(b"POST /x HTTP/1.1") == 3
    assert len(transport.lines) == 1


def test_a_streamed_response(transport: FakeTransport, connection: HttpConnection) -> None:
    received: list[bytes] = []
    line = transport.lines[0].connect()
    promise = connection.request("POST", "/v3/watch", b"{}", receive=received.append)
    line.give(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nd")
    assert b"".join(received) == b"abcd"
    line.give(b"e\r\n")
    assert not promise.done
    line.give(b"0\r\n\r\n")
    assert b"".join(received) == b"abcde"
    assert promise.result() == (200, b"")


def test_the_error_of_a_streamed_request_is_not_streamed(transport: FakeTransport, connection: HttpConnection) -> None:
    received: list[bytes] = []
    line = transport.lines[0].connect()
    promise = connection.request("POST", "/v3/watch", b"{}", receive=received.append)
    line.give(CHUNKED)
    assert received == []
    assert promise.result() == (404, b'{"error":1}')


def failure(promise: Deferred[HttpResponse]) -> HttpError:
    assert isinstance(promise.error, HttpError)
    return promise.error


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([b""], "etcd closed the connection"),
        ([OK[:-1], b""], "etcd closed the connection"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], "malformed HTTP response"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"], "malformed HTTP response"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], "malformed HTTP response"),
    ],
)
def test_broken_responses(
    transport: FakeTransport, connection: HttpConnection, data: Sequence[bytes], reason: str
) -> None:
    line = transport.lines[0].connect()
    promise = connection.request("POST", "/x")
    for piece in data:
        line.give(piece)
    assert reason in str(failure(promise))
    assert failure(promise).was_sent
    assert line.is_closed
    assert connection.lost_because is not None
    assert not failure(connection.request("POST", "/x")).was_sent


def test_a_refused_connection_has_sent_nothing(transport: FakeTransport, connection: HttpConnection) -> None:
    promise = connection.request("POST", "/x")
    transport.lines[0].receiver.lost("Connection refused")
    assert (str(failure(promise)), failure(promise).was_sent) == ("Connection refused", False)
    assert connection.opened.done


def test_a_connection_that_the_server_ends_is_not_used_again(
    transport: FakeTransport, connection: HttpConnection
) -> None:
    line = transport.lines[0].connect()
    promise = connection.request("POST", "/x")
    line.give(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    assert promise.result() == (200, b"{}")
    assert connection.lost_because is not None
    assert line.is_closed


def test_a_response_without_a_request_ends_the_connection(transport: FakeTransport, connection: HttpConnection) -> None:
    line = transport.lines[0].connect()
    line.give(OK)
    assert connection.lost_because is not None
    assert line.is_closed


def test_closing_cancels_an_attempt(transport: FakeTransport, connection: HttpConnection) -> None:
    promise = connection.request("POST", "/x")
    connection.close()
    assert transport.lines[0].is_cancelled
    assert not failure(promise).was_sent
    assert connection.is_closed


def test_lines_of_a_stream() -> None:
    lines = Lines()
    assert list(lines.feed(b'{"a":1}\n{"b"')) == [{"a": 1}]
    assert list(lines.feed(b"")) == []
    assert list(lines.feed(b":2")) == []
    assert list(lines.feed(b'}\n\n{"c":3}\n')) == [{"b": 2}, {"c": 3}]
    with pytest.raises(ValueError):
        list(lines.feed(b"[]\n"))


# Endpoints that are no usable etcd, and time limits.


def respond(body: Any, status: int = 200) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s" % (status, len(data), data)


class Store:
    """A store on a scripted transport and virtual time."""

    def __init__(self, transport: FakeTransport, url: str = "etcd://one:1,two:2/p") -> None:
        self.time = VirtualTime()
        self.transport = transport
        self.store = EtcdMetadataStore(parse(url), Scheduler(self.time, ImmediateTimers(self.time)), transport)

    def outcome(self, answer: Answer[Any]) -> list[Any]:
        arrived: list[Any] = []
        assert isinstance(answer, Deferred)
        answer.then(arrived.append, unexpected)
        return arrived


HEADER = {"cluster_id": "7", "revision": "5"}


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (respond({"etcdserver": "3.3.27"}), "etcd 3.3.27 at one:1 is too old: 3.4 or newer is required"),
        (respond({"etcdserver": "2.3.8"}), "etcd 2.3.8 at one:1 is too old: 3.4 or newer is required"),
        (
            respond({"etcdserver": "3.5.1"}),
            "etcd at one:1 has its JSON gateway switched off (--enable-grpc-gateway=false)",
        ),
    ],
)
def test_an_endpoint_without_the_gateway_is_explained(transport: FakeTransport, version: bytes, reason: str) -> None:
    store = Store(transport)
    arrived = store.outcome(store.store.load())
    line = transport.lines[0].connect()
    line.give(respond(b"404 page not found\n", 404))
    assert b"GET /version HTTP/1.1\r\nHost: one:1\r\n" in line.written
    line.give(version)
    assert [snapshot.error for snapshot in arrived] == [reason]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([respond(b"<html>", 404), respond(b"<html>", 404)], "is no etcd"),
        ([respond(b"<html>", 200)], "HTTP status 200 without JSON"),
        ([respond(b"bad gateway", 502)], "HTTP status 502 without JSON"),
        ([b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", b""], "requires TLS"),
        ([b"SSH-2.0\r\n\r\n"], "malformed HTTP response"),
    ],
)
def test_another_server_is_passed_over(transport: FakeTransport, answers: list[bytes], reason: str) -> None:
    store = Store(transport)
    arrived = store.outcome(store.store.load())
    line = transport.lines[0].connect()
    for answer in answers:
        line.give(answer)
    assert transport.lines[-1].address == ("two", 2)
    transport.lines[-1].receiver.lost("Connection refused")
    for _ in range(40):
        store.time.advance(100)
        if not transport.lines[-1].is_cancelled:
            transport.lines[-1].receiver.lost("Connection refused" if transport.lines[-1].address[1] == 2 else reason)
    (snapshot,) = arrived
    message = snapshot.error
    assert message.startswith("no endpoint of etcd answers: one:1 (")
    assert reason in message
    assert "two:2 (Connection refused)" in message


def test_a_change_is_never_sent_twice(transport: FakeTransport) -> None:
    store = Store(transport)
    arrived: list[ChangeOutcome] = store.outcome(store.store.change(Change(put={"/a": b"1"})))
    line = transport.lines[0].connect()
    assert line.written.startswith(b"POST /v3/kv/txn")
    store.time.advance(1999)
    assert arrived == []
    store.time.advance(1)
    (outcome,) = arrived
    assert outcome.is_unknown
    assert outcome.error == "etcd at one:1 did not confirm the change: no answer within 2 s"
    assert len(transport.lines) == 1
    assert store.store.unknown_outcomes == 1
    store.outcome(store.store.change(Change(put={"/b": b"1"})))
    assert [other.address for other in transport.lines] == [("one", 1), ("two", 2)]


def test_a_change_that_was_not_sent_goes_to_another_endpoint(transport: FakeTransport) -> None:
    store = Store(transport)
    arrived = store.outcome(store.store.change(Change(put={"/a": b"1"})))
    store.time.advance(1000)  # no connection
    assert transport.lines[0].is_cancelled
    line = transport.lines[1].connect()
    line.give(respond({"header": HEADER, "succeeded": True, "responses": [{"response_put": {}}]}))
    assert arrived == [ChangeOutcome(5)]


@pytest.mark.parametrize(("code", "is_unknown"), [(14, True), (4, True), (2, True), (3, False), (8, False)])
def test_errors_that_leave_the_outcome_of_a_change_unknown(
    transport: FakeTransport, code: int, is_unknown: bool
) -> None:
    store = Store(transport)
    arrived = store.outcome(store.store.change(Change(put={"/a": b"1"})))
    transport.lines[0].connect().give(
        respond({"error": "etcdserver: x", "message": "etcdserver: x", "code": code}, 500)
    )
    (outcome,) = arrived
    assert (outcome.is_unknown, outcome.revision) == (is_unknown, 0)
    assert "etcdserver: x" in outcome.error


def test_a_member_without_a_leader_is_passed_over(transport: FakeTransport) -> None:
    store = Store(transport)
    arrived = store.outcome(store.store.change(Change(put={"/a": b"1"})))
    line = transport.lines[0].connect()
    assert b"Grpc-Metadata-hasleader: true\r\n" in line.written
    line.give(respond({"message": "etcdserver: no leader", "code": 14}, 503))
    line = transport.lines[1].connect()
    line.give(respond({"header": HEADER, "succeeded": True, "responses": [{"response_put": {}}]}))
    assert arrived == [ChangeOutcome(5)]


def test_a_read_is_repeated_at_another_endpoint(transport: FakeTransport) -> None:
    store = Store(transport)
    arrived = store.outcome(store.store.load())
    transport.lines[0].connect()
    store.time.advance(2000)
    transport.lines[1].connect().give(respond({"header": HEADER}))
    ((entries, revision, _),) = arrived
    assert (entries, revision) == ([], 5)


def test_pages_get_smaller_when_the_gateway_refuses_their_size(transport: FakeTransport) -> None:
    store = Store(transport)
    arrived = store.outcome(store.store.load())
    line = transport.lines[0].connect()
    line.give(respond({"message": "grpc: received message larger than max (5 vs. 4)", "code": 8}, 429))
    assert b'"limit":"1000","revision":"0"' in line.written
    kvs = [{"key": "L3AvYQ==", "create_revision": "2", "mod_revision": "3", "value": "MQ=="}]
    line.give(respond({"header": HEADER, "kvs": kvs, "more": True}))
    assert line.written.endswith(b'"limit":"1000","revision":"5"}')
    line.give(respond({"header": {**HEADER, "revision": "9"}}))
    ((entries, revision, _),) = arrived
    assert ([entry.key for entry in entries], revision) == (["/a"], 5)


# The stream of a watch.


def event(key: str, revision: int) -> Any:
    encoded = b64encode(f"/p{key}".encode()).decode()
    return {"kv": {"key": encoded, "create_revision": str(revision), "mod_revision": str(revision), "value": "MQ=="}}


def chunk(*messages: Any) -> bytes:
    data = b"".join(json.dumps({"result": {"header": HEADER, **message}}).encode() + b"\n" for message in messages)
    return b"%x\r\n%s\r\n" % (len(data), data)


STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk({"created": True})


def watching(transport: FakeTransport) -> tuple[Store, Replica, Line]:
    store, replica = Store(transport), Replica()
    replica.revision = 4
    store.store.watch(4, replica)
    line = transport.lines[-1].connect()
    assert line.written.endswith(b'"start_revision":"5","fragment":true}}')
    line.give(STREAM)
    return store, replica, line


def keys(replica: Replica) -> list[tuple[int, list[str]]]:
    return [(revision, [entry.key for entry in entries]) for revision, entries in replica.deliveries]


def test_fragments_of_a_revision_are_delivered_together(transport: FakeTransport) -> None:
    _, replica, line = watching(transport)
    line.give(chunk({"events": [event("/a", 5), event("/b", 6)], "fragment": True}))
    assert keys(replica) == []
    line.give(chunk({"events": [event("/c", 6)]}, {"events": [event("/d", 7)]}))
    assert keys(replica) == [(5, ["/a"]), (6, ["/b", "/c"]), (7, ["/d"])]


def test_fragments_of_a_stream_that_broke_are_dropped(transport: FakeTransport) -> None:
    store, replica, line = watching(transport)
    line.give(chunk({"events": [event("/a", 5)], "fragment": True}) + b"20\r\n{")
    line.give(b"")
    store.time.advance(0)
    line = transport.lines[-1].connect()
    assert line.address == ("two", 2)
    line.give(STREAM + chunk({"events": [event("/a", 5), event("/b", 5)]}))
    assert keys(replica) == [(5, ["/a", "/b"])]


def test_a_revision_is_delivered_once(transport: FakeTransport) -> None:
    _, replica, line = watching(transport)
    line.give(chunk({"events": [event("/a", 5)]}, {"events": [event("/a", 5), event("/b", 6)]}))
    assert keys(replica) == [(5, ["/a"]), (6, ["/b"])]


def test_changes_after_one_that_the_watcher_cannot_handle_are_delivered_again(transport: FakeTransport) -> None:
    store, replica, line = watching(transport)

    def fail(revision: int) -> None:
        replica.on_change = lambda revision: None
        raise ArithmeticError

    replica.on_change = fail
    with pytest.raises(ArithmeticError):
        line.give(chunk({"events": [event("/a", 5)]}, {"events": [event("/b", 6)]}))
    assert line.is_closed
    store.time.advance(0)
    line = transport.lines[-1].connect()
    assert b'"start_revision":"6"' in line.written
    line.give(STREAM + chunk({"events": [event("/b", 6)]}))
    assert keys(replica) == [(5, ["/a"]), (6, ["/b"])]


def test_a_renewal_with_an_old_revision_is_compared_by_a_read_by_quorum(transport: FakeTransport) -> None:
    """A member that lags behind answers it, too; the read shows that etcd went back."""
    store = Store(transport)
    changed = store.outcome(store.store.change(Change(put={"/a": b"1"})))
    line = transport.lines[0].connect()
    made = {"header": {**HEADER, "revision": "9"}, "succeeded": True, "responses": [{"response_put": {}}]}
    line.give(respond(made))
    renewed = store.outcome(store.store.renew(3))
    line.give(respond({"result": {"header": HEADER, "ID": "3", "TTL": "9"}}))
    assert (changed, renewed) == ([ChangeOutcome(9)], [(3, None)])
    line.give(respond({"header": HEADER}))
    loaded = store.outcome(store.store.load())
    store.time.advance(0)
    assert [snapshot.error for snapshot in loaded] == ["etcd was restored: its revision is 5 and was 9"]
