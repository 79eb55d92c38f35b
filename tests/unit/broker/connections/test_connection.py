"""One connection without a socket: order, back-pressure, throttling, and what is sent before it closes."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.queues import manual_queue, run_queue

from ottla.broker.connections.connection import ServedConnection
from ottla.broker.connections.memory import FrameTurns, Unread
from ottla.broker.connections.read_turns import ReadTurns
from ottla.broker.requests.pipeline import Pipeline
from ottla.broker.security.session import Session
from ottla.protocol.codec import encode
from ottla.protocol.connection import ClientConnection, EncodedResponse, Envelope
from ottla.protocol.context import RequestContext
from ottla.protocol.frames import FrameReader
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.schema import Response
from ottla.protocol.wire import PeerError
from ottla.tasks.deferred import Answer, Deferred


class Stream:
    """The data sent, and the pauses and resumptions of reading; with `full` the kernel accepts no data."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.full = False
        self.reading: list[str] = []
        self.is_closed = False

    def write(self, pieces: Sequence[Any]) -> bool:
        self.writes.append(b"".join(pieces))
        return not self.full

    def pause_reading(self) -> None:
        self.reading.append("paused")

    def resume_reading(self) -> None:
        self.reading.append("resumed")

    def close(self) -> None:
        self.is_closed = True


class Requests:
    """Requests of a pipeline, which are answered by the test's wish.

    served      group ids of the requests that came
    throttling  quotas of the broker: this object, or None
    """

    def __init__(self) -> None:
        self.served: list[str] = []
        self.responses: dict[str, Answer[Response] | PeerError] = {}
        self.throttling: Requests | None = None
        self.throttle_ms = 0
        self.now = 0
        self.tasks = manual_queue()
        broker: Any = self
        self.pipeline = Pipeline(broker, lambda: self.now)
        self.pipeline.answer = self.answer

    def answer(self, envelope: Envelope, context: RequestContext) -> Answer[Response] | None:
        assert context.principal == "User:ANONYMOUS"
        group = envelope.frame[envelope.body + 2 :].split(b"\0")[0].decode()
        self.served.append(group)
        response = self.responses.get(group, HeartbeatResponse(error_code=0))
        if isinstance(response, PeerError):
            raise response
        return response

    def record_request(self, api: int, context: RequestContext, size: int, spent_ns: int) -> int:
        """Return the throttle time after a request."""
        del api, context, size, spent_ns
        return self.throttle_ms


class Timers:
    def __init__(self) -> None:
        self.calls: list[tuple[int, Callable[[], None]]] = []

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Any:
        self.calls.append((delay_ms, callback))


class World:
    """A client, and the connection that serves it."""

    def __init__(self) -> None:
        self.stream, self.requests, self.timers = Stream(), Requests(), Timers()
        self.queue = self.requests.tasks
        self.closed: list[ServedConnection] = []
        clock: Any = self
        self.turns = FrameTurns(1 << 17, 1 << 18, clock, self.timers)
        self.unread = Unread(1 << 20)
        self.session = Session(("10.0.0.7", 4711), ("10.0.0.1", 9092))
        self.connection = ServedConnection(
            self.requests.pipeline,
            self.session,
            self.stream,
            frames=FrameReader(1 << 20),
            shared=bytearray(1 << 16),
            turns=self.turns,
            unread=self.unread,
            reads=ReadTurns(self.timers, lambda: 0),
            timers=self.timers,
            tick=lambda: 0,
            closed=self.closed.append,
        )
        self._client = ClientConnection("test")

    def send(self, *groups: str) -> None:
        """Deliver a heartbeat of each group, all in one read."""
        requests = [HeartbeatRequest(group_id=group, member_id="") for group in groups]
        self.receive(b"".join(b"".join(self._client.request(request, 0)) for request in requests))

    def receive(self, data: bytes) -> None:
        def receive(buffers: Sequence[Any]) -> int:
            room = memoryview(b"".join(bytes(len(buffer)) for buffer in buffers))
            assert len(data) <= len(room)
            rest = data
            for buffer in buffers:
                taken = min(len(buffer), len(rest))
                memoryview(buffer)[:taken] = rest[:taken]
                rest = rest[taken:]
            return len(data)

        self.connection.readable(receive)

    @property
    def answers(self) -> int:
        """Number of responses that were sent."""
        return len(self.received)

    @property
    def received(self) -> Sequence[Any]:
        """The responses that were sent."""
        return self._client.feed(b"".join(self.stream.writes))


@pytest.fixture
def world() -> World:
    return World()


def test_requests_of_one_read_are_answered_by_one_write(world: World) -> None:
    world.send("a", "b", "c")
    assert world.requests.served == ["a", "b", "c"]
    assert len(world.stream.writes) == 1
    assert world.answers == 3


def test_a_response_that_is_encoded_already_is_sent_in_order(world: World) -> None:
    body = encode(HeartbeatResponse(error_code=27), 0)
    world.requests.responses["b"] = EncodedResponse(body, {27: 1})
    world.send("a", "b", "c")
    assert [answer.error_code for answer in world.received] == [0, 27, 0]


def test_a_pending_answer_holds_the_requests_behind_it(world: World) -> None:
    pending: Deferred[Response] = Deferred(world.queue)
    world.requests.responses["b"] = pending
    world.send("a", "b", "c")
    assert world.requests.served == ["a", "b"]
    assert len(world.stream.writes) == 1  # the answer to a does not wait for b
    assert world.stream.reading == ["paused"]
    pending.complete(HeartbeatResponse(error_code=27))
    run_queue(world.queue)
    assert world.requests.served == ["a", "b", "c"]
    assert world.stream.reading == ["paused", "resumed"]
    assert world.answers == 3


def test_a_slow_reader_is_not_read_from(world: World) -> None:
    world.stream.full = True
    world.send("a")
    world.send("b")
    assert world.requests.served == ["a"]
    assert world.stream.reading == ["paused"]
    world.stream.full = False
    world.connection.written()
    assert world.requests.served == ["a", "b"]
    assert world.stream.reading == ["paused", "resumed"]


def test_a_throttled_connection_waits_after_its_answer(world: World) -> None:
    world.requests.throttling = world.requests
    world.requests.throttle_ms = 500
    world.send("a", "b")
    assert world.requests.served == ["a"]
    assert world.answers == 1
    assert [delay for delay, _ in world.timers.calls] == [500]
    world.requests.throttle_ms = 0
    world.timers.calls[0][1]()
    assert world.requests.served == ["a", "b"]


def test_answers_before_a_malformed_request_are_sent(world: World) -> None:
    world.requests.responses["b"] = PeerError("malformed")
    world.send("a", "b", "c")
    assert world.requests.served == ["a", "b"]
    assert world.answers == 1
    assert world.stream.is_closed
    assert world.closed == [world.connection]


def test_a_handler_that_fails_later_is_answered_with_an_error(world: World) -> None:
    pending: Deferred[Response] = Deferred(world.queue)
    world.requests.responses["a"] = pending
    world.send("a", "b")
    pending.abandon()
    run_queue(world.queue)
    assert world.requests.served == ["a", "b"]
    assert world.answers == 2


@pytest.mark.parametrize("place", ["service", "sending", "sending later"])
def test_an_unexpected_exception_closes_the_connection_and_is_logged_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    def fail(*_: object) -> Any:
        raise ZeroDivisionError

    pending: Deferred[Response] = Deferred(world.queue)
    if place == "service":
        world.requests.pipeline.answer = fail
    else:
        monkeypatch.setattr(world.stream, "write", fail)
    if place == "sending later":
        world.requests.responses["a"] = pending
    world.send("a", "b")
    pending.complete(HeartbeatResponse(error_code=0))
    run_queue(world.queue)
    assert world.stream.is_closed
    assert world.closed == [world.connection]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "ZeroDivisionError" in caplog.text


def test_listeners_are_called_once_at_the_end_of_a_connection(world: World) -> None:
    ended: list[int] = []
    world.session.peer.closed += [lambda peer: ended.append(peer.port), lambda peer: ended.append(-peer.port)]
    world.connection.lost()
    world.connection.close()
    assert ended == [4711, -4711]


def test_a_closed_connection_serves_nothing(world: World) -> None:
    pending: Deferred[Response] = Deferred(world.queue)
    world.requests.responses["a"] = pending
    world.send("a", "b")
    world.connection.close()
    pending.complete(HeartbeatResponse(error_code=0))
    run_queue(world.queue)
    assert world.requests.served == ["a"]
    assert world.stream.writes == []


def test_64_requests_of_a_connection_are_served_in_a_pass_of_the_loop(world: World) -> None:
    groups = [f"g{number}" for number in range(150)]
    world.send(*groups)
    assert world.requests.served == groups[:64]
    assert world.answers == 64
    assert world.stream.reading == ["paused"]
    assert [delay for delay, _ in world.timers.calls] == [0]
    world.timers.calls[0][1]()
    assert world.requests.served == groups[:128]
    world.timers.calls[1][1]()
    assert world.requests.served == groups
    assert world.stream.reading == ["paused", "resumed"]
    assert len(world.timers.calls) == 2
    assert len(world.stream.writes) == 3


def test_requests_that_take_long_leave_the_next_ones_to_the_next_pass(world: World) -> None:
    answer = world.requests.answer

    def answer_slowly(envelope: Envelope, context: RequestContext) -> Answer[Response] | None:
        world.requests.now += 900_000
        return answer(envelope, context)

    world.requests.pipeline.answer = answer_slowly
    world.send("a", "b", "c", "d", "e", "f", "g")
    assert world.requests.served == ["a", "b", "c"]
    world.timers.calls[0][1]()
    assert world.requests.served == ["a", "b", "c", "d", "e", "f"]
    world.timers.calls[1][1]()
    assert world.requests.served == ["a", "b", "c", "d", "e", "f", "g"]
    assert world.answers == 7


def test_frames_that_arrive_while_others_are_served_keep_their_order(world: World) -> None:
    groups = [f"g{number}" for number in range(70)]
    world.send(*groups)
    world.send("last")
    assert world.requests.served == groups[:64]
    world.timers.calls[0][1]()
    assert world.requests.served == [*groups, "last"]


def test_a_connection_that_closes_before_its_turn_serves_nothing_more(world: World) -> None:
    world.send(*[f"g{number}" for number in range(70)])
    world.connection.close()
    world.timers.calls[0][1]()
    assert len(world.requests.served) == 64


def test_an_answer_that_was_pending_does_not_serve_the_whole_backlog_at_once(world: World) -> None:
    pending: Deferred[Response] = Deferred(world.queue)
    world.requests.responses["a"] = pending
    world.send("a", *[f"g{number}" for number in range(100)])
    pending.complete(HeartbeatResponse(error_code=0))
    run_queue(world.queue)
    assert len(world.requests.served) == 65
    world.timers.calls[0][1]()
    assert len(world.requests.served) == 101
