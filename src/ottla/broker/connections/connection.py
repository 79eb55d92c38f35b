"""One client connection: frames in, answers out in order, back-pressure and throttling. Uses no socket itself.

Order. Like Kafka, a connection serves one request at a time. A connection is in one of these states:

    idle       `_waiting` and `_writing` are false: a frame is served as it arrives
    waiting    an answer is pending, the connection is throttled, or it has used up its part of this pass of the event loop:
               frames go into `_backlog`
    writing    an answer is not yet sent in full: frames go into `_backlog`
    closed     nothing happens any more

Answers leave in the order of requests. When data arrives while the backlog is not empty, reading from the stream pauses: TCP
then slows the client down, and the backlog does not fill the memory.

A frame of more than 1 MB is received in its turn (`memory.py`): reading pauses until it begins.

Turns. One read may bring 18,000 small requests, and all connections share one thread. In a pass of the event loop a connection
is served 64 requests, or requests for 2 ms; the rest waits in the backlog for the next pass, after those of other connections.

Small answers to pipelined requests are collected in `_held` and leave by one call into the system, at the latest when all
frames that have arrived are served, or an answer has to wait.

One file, because every rule above is about the same few fields: which of them a frame, an answer or a timer may change is seen
only where all are.
"""

import logging
import struct
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.connections.memory import FrameTurns, Unread
from ottla.broker.connections.read_turns import ReadTurns
from ottla.broker.requests import dispatch
from ottla.broker.requests.pipeline import Pipeline
from ottla.broker.security.session import Session
from ottla.environment import Cancellable, ServedStream, Timers
from ottla.environment.files import Region
from ottla.observability import logs
from ottla.observability.distribution import Distribution
from ottla.protocol.api import FETCH
from ottla.protocol.codec import UnsupportedField
from ottla.protocol.connection import Envelope, open_envelope, response_pieces
from ottla.protocol.errors import UNKNOWN_SERVER_ERROR
from ottla.protocol.frames import FrameReader
from ottla.protocol.schema import Response
from ottla.protocol.wire import PeerError
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Task

if TYPE_CHECKING:
    from ottla.broker.metrics.meter import ApiVersionMeter, RequestMeter
    from ottla.broker.security.login import Login
    from ottla.protocol.api import Api

_logger = logging.getLogger("ottla.broker")
_ANSWERS_A_SEND: Final = 64
_BEFORE_LOGIN: Final = 1 << 12
"""Number of bytes that are received at a time from a client that is not authenticated."""
_MOST_HELD: Final = 1 << 16
"""Size of a response from which on it is sent at once, and not collected with others."""
_REQUESTS_A_PASS: Final = 64
_NS_A_PASS: Final = 2_000_000
"""Requests of one connection, and time for them in ns, after which other connections are served first."""


def _refuse_failed(envelope: Envelope) -> Response | PeerError:
    """Return the answer to a waiting request whose handler failed, which is logged already: the connection stays open."""
    try:
        return dispatch.refusal(envelope, UNKNOWN_SERVER_ERROR)
    except PeerError as error:
        return error


class ServedConnection:
    """A client's connection, a `ServedReceiver`.

    shared  memory for all connections of the broker, into which small frames are received
    turns   turns of large frames
    unread  unread responses of all connections
    reads   turns of reading
    tick    returns the number of the current tick, see `SocketServer`
    closed  called once with the connection when it is closed
    login   SASL state of the connection; None on a listener without SASL
    """

    __slots__ = (
        "_api",
        "_awaited",
        "_backlog",
        "_begun_ns",
        "_closed",
        "_delayed",
        "_entry",
        "_frames",
        "_has_turn",
        "_held",
        "_is_held",
        "_login",
        "_muted",
        "_parked_ns",
        "_pipeline",
        "_queued_ns",
        "_queued_since",
        "_reads",
        "_receiving",
        "_refusal_delay_ms",
        "_refused",
        "_sending",
        "_shared",
        "_spent_ns",
        "_stream",
        "_tick",
        "_timer",
        "_timers",
        "_turn_of",
        "_turn_size",
        "_turns",
        "_unread",
        "_version",
        "_waiting",
        "_waits_for_turn",
        "_weight",
        "_writing",
        "active_at",
        "is_closed",
        "session",
    )

    def __init__(
        self,
        pipeline: Pipeline,
        session: Session,
        stream: ServedStream,
        *,
        frames: FrameReader,
        shared: bytearray,
        turns: FrameTurns,
        unread: Unread,
        reads: ReadTurns,
        timers: Timers,
        tick: Callable[[], int],
        closed: "Callable[[ServedConnection], None]",
    ) -> None:
        self._pipeline = pipeline
        self.session = session
        self._stream = stream
        self._frames = frames
        self._shared = shared
        self._receiving: bytearray | memoryview = shared
        self._turns = turns
        self._unread = unread
        self._reads = reads
        self._waits_for_turn = False  # reading is paused, as others are read first
        self._has_turn = False  # the next read is in its turn
        self._turn_of = -1  # number of the large frame that has a turn, or waits for it; -1 without one
        self._turn_size = 0
        self._is_held = False  # reading is paused until a turn begins
        self._timers = timers
        self._tick = tick
        self._closed = closed
        self._login: Login | None = None
        self._refusal_delay_ms = 0
        self._refused: Callable[[str], object] = _logger.info
        self._backlog: deque[bytes] | None = (
            None  # frames that wait, while there are any: an empty deque takes 760 bytes
        )
        self._held: list[bytes] = []
        self._waiting = False
        self._timer: Cancellable | None = None  # ends the current wait of a throttled connection, or of a refused login
        self._awaited: Deferred[Response] | None = None
        self._delayed: Envelope | None = None
        self._writing = False
        self._muted = False
        self._begun_ns = 0  # start of the current request; 0 unless requests are measured
        self._spent_ns = self._parked_ns = 0  # time spent on a request whose answer is pending, and begin of its wait
        self._entry: ApiVersionMeter | None = None  # where the current request is counted
        self._api: Api | None = None  # API and version of the requests that are counted there
        self._version = -1
        self._weight = 0  # how often the times of the current request count in the metrics
        self._queued_ns = 0  # time that the current request has waited in the backlog
        self._queued_since: deque[int] | None = None  # begin of the wait of each of them, while there are metrics
        self._sending: tuple[Distribution, int, int] | None = (
            None  # where the time of a write is recorded, its begin, its weight
        )
        self.active_at = tick()
        self.is_closed = False

    def require_login(
        self, login: "Login", turns: FrameTurns, limit: int, refusal_delay_ms: int, refused: Callable[[str], object]
    ) -> None:
        """Serve only requests of an authenticated client.

        turns             turns of frames before
        limit             maximum size of a frame before, in bytes
        refusal_delay_ms  delay before a failed login is answered and the connection is closed
        refused           called with the reason of a failed login
        """
        self._login = login
        self._turns = turns
        self._receiving = memoryview(self._shared)[:_BEFORE_LOGIN]
        self._frames.limit = limit
        self._refusal_delay_ms = refusal_delay_ms
        self._refused = refused

    def admit(self, limit: int, turns: FrameTurns) -> None:
        """Accept frames of up to `limit` bytes: the client is authenticated."""
        self._frames.limit = limit
        if self._turn_of >= 0:
            self._turns.end(self)
            self._turn_of = -1
        self._turns = turns
        self._receiving = self._shared

    @property
    def delayed_api(self) -> int | None:
        """API of the request whose answer is pending; None without one."""
        return None if self._delayed is None else self._delayed.api.key

    @property
    def queued(self) -> int:
        """Number of received requests that wait for earlier ones of the connection."""
        return 0 if self._backlog is None else len(self._backlog)

    def readable(self, receive: Callable[[Sequence[Any]], int]) -> None:
        """Receive available bytes, split them into frames, serve them; then let what they completed take effect."""
        if self._has_turn:
            self._has_turn = False
        elif not self._reads.may_read(self):
            return
        tasks = self._pipeline.tasks
        is_begun = tasks.begin_event()
        try:
            self._receive(receive)
        finally:
            if is_begun:
                tasks.end_event()
            self._reads.has_read()

    def wait_for_turn(self) -> None:
        """See `ReadableConnection.wait_for_turn`."""
        self._waits_for_turn = True
        if not self._muted and not self._is_held:
            self._stream.pause_reading()

    def take_turn(self) -> None:
        """See `ReadableConnection.take_turn`."""
        self._waits_for_turn = False
        self._has_turn = True
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Resume reading, unless something else still pauses it."""
        if not self._muted and not self._is_held and not self._waits_for_turn and not self.is_closed:
            self._stream.resume_reading()

    def _receive(self, receive: Callable[[Sequence[Any]], int]) -> None:
        shared = self._shared
        try:
            room = self._frames.room()
            if room is None:
                received = receive((self._receiving,))
            else:
                with room:
                    received = receive((room, shared))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if received == 0:
            self.close()
            return
        try:
            frames = self._frames.feed(shared, received) if room is None else self._frames.feed_rest(shared, received)
            end_ns = self._pipeline.now_ns() + _NS_A_PASS if len(frames) > 1 else 0
            for number, frame in enumerate(frames):
                if self._waiting or self._writing:
                    self._wait_behind(frames[number:])
                    break
                if self.is_closed:
                    return
                if number and (number == _REQUESTS_A_PASS or self._pipeline.now_ns() > end_ns):
                    self._let_others_go_first()
                    self._wait_behind(frames[number:])
                    break
                self._serve(frame, more=number < len(frames) - 1)
        except PeerError as error:
            self.drop(error)
            return
        except Exception:  # noqa: BLE001
            self._fail()
            return
        if self._held:
            self._flush()
        self.active_at = self._tick()
        if self._turn_of >= 0 or (self._frames.partial is not None and self._frames.need > self._turns.least):
            self._settle_turn()

    def _settle_turn(self) -> None:
        """Take a turn for a large frame that has begun; end that of one whose request is answered."""
        if self.is_closed:
            return
        frames = self._frames
        if self._turn_of >= 0 and frames.finished > self._turn_of and not self._waiting and not self._backlog:
            self._turn_of = -1
            self._turns.end(self)
        if frames.partial is None or frames.need <= self._turns.least:
            return
        if self._turn_of < 0:
            self._turn_of = frames.finished
            self._turn_size = frames.need
            if self._turns.take(self, self.session.peer_address, frames.need):
                if self._is_held:
                    self.begin_turn()
                return
        elif self._turn_of == frames.finished:
            return
        if not self._muted and not self._waits_for_turn:
            self._stream.pause_reading()
        self._is_held = True

    @property
    def received(self) -> int:
        """See `LargeFrame.received`."""
        return self._frames.have if self._frames.finished == self._turn_of else self._turn_size

    def begin_turn(self) -> None:
        """See `LargeFrame.begin_turn`."""
        self._is_held = False
        self._resume_reading()

    def lose_turn(self) -> None:
        """See `LargeFrame.lose_turn`."""
        size = self._turn_size
        self._refuse_memory(f"a request of {size} bytes was too slow for others that wait for room")

    def lose_responses(self) -> None:
        """See `Reader.lose_responses`."""
        self._refuse_memory("it does not read its responses, and unread responses take too much memory")

    def _refuse_memory(self, reason: str) -> None:
        extra = {**logs.REPEATS, **self.session.log_fields}
        _logger.info("closing the connection of %s: %s", self.session.name, reason, extra=extra)
        self.close()

    def _begin_writing(self, pieces: Sequence[Any]) -> None:
        """Note that a response is not sent in full."""
        if self.is_closed:
            return
        self._writing = True
        self._unread.add(
            self, self.session.peer_address, sum(len(piece) for piece in pieces if type(piece) is not Region)
        )

    def _wait_behind(self, frames: list[bytes]) -> None:
        backlog, since = self._backlog, self._queued_since
        if backlog is None:
            backlog = self._backlog = deque()
            since = self._queued_since = deque() if self._pipeline.meter is not None else None
        if since is not None and len(since) == len(backlog):
            since.extend([self._pipeline.now_ns()] * len(frames))
        backlog.extend(frames)
        if backlog and not self._muted and not self.is_closed:
            self._muted = True
            if not self._waits_for_turn:
                self._stream.pause_reading()

    def _serve(self, frame: bytes, *, more: bool = False) -> None:
        """Answer one request. With `more` to come the answer may leave together with the next one: a client that pipelines
        small requests is woken once for all of them.
        """
        if self._login is not None and self._log_in(self._login, frame):
            return
        envelope = open_envelope(frame)
        pipeline = self._pipeline
        weight = 0
        if pipeline.meter is not None:
            entry = self._entry
            if entry is None or envelope.api is not self._api or envelope.version != self._version:
                entry = self._select_entry(pipeline.meter, envelope)
            self._weight = weight = entry.take() if entry.is_due else 0
        begun_ns = self._begun_ns = pipeline.now_ns() if weight or pipeline.has_quotas else 0
        answer = pipeline.answer(envelope, self.session.context(envelope))
        if answer is None:
            self._end_without_response(envelope)
        elif not isinstance(answer, Deferred):
            self._send(envelope, answer, more=more)
        else:
            self._flush()
            self._waiting = True
            self._awaited = answer
            self._delayed = envelope
            self._parked_ns = self._pipeline.now_ns() if begun_ns else 0
            self._spent_ns, self._begun_ns = self._parked_ns - begun_ns, 0
            answer.listen(partial(self._on_answer, envelope))

    def _select_entry(self, meter: "RequestMeter", envelope: Envelope) -> "ApiVersionMeter":
        """Return where a request is counted: kept for the next request of this API and version.

        A connection is known to be a follower's after its first Fetch, so the entry is cached from the second on.
        """
        before, entry = self._entry, meter.of(envelope, self.session.peer)
        self._entry = entry
        self._api = envelope.api if envelope.api.key != FETCH or entry is before else None
        self._version = envelope.version
        return entry

    def _log_in(self, login: "Login", frame: bytes) -> bool:
        """Answer a frame of the login; False if it is a request of an authenticated client. Raises PeerError."""
        clock = self._pipeline.clock
        answer = login.receive(frame, clock.now_ms(), clock.wall_ms())
        if answer is None:
            return False
        self._flush()
        if answer.refusal is None:
            if not self._stream.write(answer.pieces):
                self._begin_writing(answer.pieces)
        else:
            self._refused(answer.refusal)
            self._waiting = True
            self._timer = self._timers.call_later(self._refusal_delay_ms, partial(self._refuse, answer.pieces))
        return True

    def _refuse(self, pieces: list[Any]) -> None:
        """Send the answer to a failed login, and close the connection."""
        if not self.is_closed:
            if pieces:
                self._stream.write(pieces)
            self.close()

    def _on_answer(self, envelope: Envelope, answer: Deferred[Response | PeerError | None]) -> None:
        """Complete a pending answer."""
        if answer is not self._awaited:  # the connection was closed after the answer was completed
            return
        self._count_steps(answer)
        if answer.error is None:
            response = answer.result()
        else:
            response = answer.error if isinstance(answer.error, PeerError) else _refuse_failed(envelope)
        self._waiting = False
        self._awaited = self._delayed = None
        self.active_at = self._tick()
        try:
            self._deliver(envelope, response)
        except Exception:  # noqa: BLE001
            self._fail()
            return
        self._go_on()

    def _count_steps(self, answer: Deferred[Any]) -> None:
        """Count what a request that is served in pieces has taken while it seemed to wait."""
        if self._parked_ns and isinstance(answer, Task):
            self._spent_ns += answer.spent_ns
            self._parked_ns += answer.spent_ns

    def _deliver(self, envelope: Envelope, response: Response | PeerError | None) -> None:
        """Send the response to a request that had to wait; Produce with acks=0 has no response, and a PeerError closes."""
        if isinstance(response, PeerError):
            self.drop(response)
        elif response is not None:
            self._send(envelope, response)
        else:
            self._end_without_response(envelope)

    def _end_without_response(self, envelope: Envelope) -> None:
        """Record a request that has no response; its connection may be throttled like others."""
        if self._weight or self._pipeline.has_quotas:
            self._throttle(self._finish(envelope, None))
        else:
            self._count(None)

    def _count(self, response: Response | None) -> None:
        """Count the current request, if metrics are read."""
        if self._entry is not None:
            self._entry.count_response(response, self.session.peer)

    def _go_on(self) -> None:
        """Serve the frames of the backlog after an answer was sent."""
        number = 0
        backlog, since = self._backlog, self._queued_since
        end_ns = self._pipeline.now_ns() + _NS_A_PASS if backlog is not None and len(backlog) > 1 else 0
        try:
            while backlog and not self._waiting and not self._writing and not self.is_closed:
                if number and (number == _REQUESTS_A_PASS or self._pipeline.now_ns() > end_ns):
                    self._let_others_go_first()
                    break
                number += 1
                frame = backlog.popleft()
                if since:
                    self._queued_ns = self._pipeline.now_ns() - since.popleft()
                self._serve(frame, more=bool(backlog))
        except PeerError as error:
            self.drop(error)
        except Exception:  # noqa: BLE001
            self._fail()
        self._flush()
        if not backlog:
            self._backlog = self._queued_since = None
        if self._muted and not self._waiting and not self._writing and not self.is_closed:
            self._muted = False
            self._resume_reading()
        if self._turn_of >= 0:
            self._settle_turn()

    def _let_others_go_first(self) -> None:
        """Leave the next frame to the next pass of the event loop."""
        self._waiting = True
        self._timers.call_later(0, self.serve_again)

    def _finish(self, envelope: Envelope, response: Response | None) -> int:
        """Record a request and count it; returns the throttle time of the connection in ms."""
        pipeline, entry, weight = self._pipeline, self._entry, self._weight
        now_ns = pipeline.now_ns()
        local_ns, remote_ns = (
            (now_ns - self._begun_ns, 0)
            if self._begun_ns
            else (self._spent_ns, now_ns - self._parked_ns if self._parked_ns else 0)
        )
        throttle_ms = 0
        if pipeline.has_quotas:
            throttle_ms = pipeline.finish(envelope, self.session.context(envelope), response, local_ns)
        queued_ns, self._queued_ns = self._queued_ns, 0
        if entry is not None:
            if weight:
                sending = entry.measure(envelope, local_ns, remote_ns, queued_ns, throttle_ms, weight)
                if response is not None:
                    self._sending = sending, now_ns, weight
            entry.count_response(response, self.session.peer)
        return throttle_ms

    def _throttle(self, throttle_ms: int) -> None:
        """Pause serving for `throttle_ms` (KIP-219); a frame that arrives meanwhile waits, and further reading pauses."""
        if throttle_ms > 0 and not self.is_closed:
            self._waiting = True
            self._timer = self._timers.call_later(throttle_ms, self.serve_again)

    def serve_again(self) -> None:
        """Continue with the next frame, when the last request has no response or its throttle time is over."""
        if not self.is_closed:
            self._waiting = False
            self.active_at = self._tick()
            self._go_on()

    def _send(self, envelope: Envelope, response: Response, *, more: bool = False) -> None:
        pipeline = self._pipeline
        throttle_ms = 0
        if self._weight or pipeline.has_quotas:
            throttle_ms = self._finish(envelope, response)
        elif self._entry is not None:
            self._entry.count_response(response, self.session.peer)
        try:
            pieces = response_pieces(envelope, response)
        except (UnsupportedField, TypeError, ValueError, struct.error):
            # A response that cannot be encoded is a bug of the broker; the client would wait for it forever.
            _logger.exception("cannot encode the answer to %r", envelope)
            self.close()
            return
        held = self._held
        if (
            more
            and throttle_ms == 0
            and len(pieces) == 1
            and len(held) < _ANSWERS_A_SEND
            and len(pieces[0]) < _MOST_HELD
        ):
            held.append(pieces[0])
            return
        if held:
            pieces[0] = b"".join((*held, pieces[0]))
            held.clear()
        if not self._stream.write(pieces):
            self._begin_writing(pieces)
        elif self._sending is not None:
            self._record_send_time()
        if throttle_ms > 0:
            self._throttle(throttle_ms)

    def _record_send_time(self) -> None:
        """Record the time that a response took to send."""
        if self._sending is not None:
            (times, begun_ns, weight), self._sending = self._sending, None
            times.record(self._pipeline.now_ns() - begun_ns, weight)

    def _flush(self) -> None:
        """Send the answers collected in `_held`."""
        if self._held:
            joined = b"".join(self._held)
            self._held.clear()
            if not self._stream.write((joined,)):
                self._begin_writing((joined,))

    def written(self) -> None:
        """Continue after all answers have been sent."""
        if not self.is_closed:
            self.active_at = self._tick()
            self._writing = False
            self._unread.remove(self)
            if self._sending is not None:
                self._record_send_time()
            self._go_on()

    def lost(self) -> None:
        """Handle the loss of the connection."""
        self.close()

    def drop(self, error: PeerError) -> None:
        """Close the connection because of `error`."""
        if not self.is_closed:
            # The text alone: the error refers to the frames of its traceback, and to this connection by them.
            reason = str(error)
            _logger.warning(
                "closing the connection of %s: %s", self.session.name, reason, extra=self.session.log_fields
            )
            self._flush()  # earlier requests keep their answers
            self.close()

    def _fail(self) -> None:
        """Close the connection because of an exception that nothing expects; one in a handler is answered instead."""
        _logger.exception(
            "closing the connection of %s after a failure", self.session.name, extra=self.session.log_fields
        )
        self.close()

    def close(self) -> None:
        """Close the connection, and release everything that it holds; a pending answer is discarded.

        No cycle of references is left, nor a callback that refers to the connection: they would keep it in memory.
        """
        if self.is_closed:
            return
        self.is_closed = True
        self._stream.close()
        self._frames.release()
        self._unread.remove(self)
        if self._waits_for_turn:
            self._reads.remove(self)
        if self._turn_of >= 0:
            self._turns.end(self)
        self._held.clear()
        self._backlog = self._queued_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._awaited is not None and self._delayed is not None:
            awaited, delayed, self._awaited, self._delayed = self._awaited, self._delayed, None, None
            awaited.withdraw()
            self._count(None)
            self._count_steps(awaited)
            if self._pipeline.has_quotas:  # who closes the connection has used what it has used
                self._pipeline.finish(delayed, self.session.context(delayed), None, self._spent_ns)
        self._login = None
        self._refused = _logger.info
        self._closed(self)
        self.session.close()
