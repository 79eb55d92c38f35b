"""Faults that a test injects between the socket and the handler of a request.

Without faults the broker serves requests as usual: `Pipeline.answer` is `Pipeline.serve`. Otherwise it is `Faults.answer`,
which applies in this order:

    a pinned release     rejects versions that the release did not serve, and answers ApiVersions as the release did
    the faults           in the order in which they were added; the first one for this API with hits left acts.
                         After a delay the remaining faults apply.
    a moved coordinator  returns with a FindCoordinator request for it

Everything here runs on the broker's thread.
"""

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from ottla.broker.requests.dispatch import route_of
from ottla.broker.requests.fetch_session import INITIAL_EPOCH, FetchSession, RequestedPartition
from ottla.broker.requests.handlers import SERVED
from ottla.coordinators.partitions import partition_of
from ottla.coordinators.share import session as share
from ottla.metadata.image import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol import api, codec
from ottla.protocol.api import APIS
from ottla.protocol.connection import EncodedResponse
from ottla.protocol.context import RequestContext
from ottla.protocol.error_responses import error_response, is_partition_error
from ottla.protocol.errors import NONE, UNSUPPORTED_VERSION
from ottla.protocol.messages import share_fetch
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.schema import Response, VersionRange
from ottla.protocol.wire import PeerError
from ottla.spelling import did_you_mean
from ottla.tasks.deferred import Answer, Deferred, after
from ottla.testing.calls import checks_calls, refuse_running_loop

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.lifecycle import BrokerServer
    from ottla.protocol.connection import Envelope

_POLL_INTERVAL_S: Final = 0.005
_NextHandler = Callable[[], Answer[Response] | None]
"""Remaining faults and the handler: a fault calls it to let the request pass."""

_FIRST_WITH_RANGE: Final = (2, 4)
"""First release that answers ApiVersions in an unknown version with its supported range (KIP-511)."""
_FIRST_WITH_FEATURES: Final = (4, 0)
_ADVERTISED_PRODUCE_VERSION: Final = 0
"""Kafka 4 advertises Produce from version 0 for librdkafka, although it does not serve it (KAFKA-18659)."""
_FIRST_WITH_CODE_OF_METADATA: Final = 13
_FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_TOPIC_IDS: Final = 13
_COORDINATED: Final = {0: OFFSETS_TOPIC, 1: TRANSACTION_STATE_TOPIC}


@checks_calls
class ActiveChange:
    """Change of the broker's behaviour that a test has made; it lasts until `end`, or until its `with` block is left."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end

    def end(self) -> None:
        """Undo the change."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


@checks_calls
class RequestFault(ActiveChange, ABC):
    """Fault in the handling of requests of one API.

    hits  number of requests that it has affected
    left  number of requests that it will still affect; None: all until `end`
    """

    def __init__(self, key: int, count: int | None, end: Callable[["RequestFault"], object]) -> None:
        super().__init__(lambda: end(self))
        if count is not None and count < 1:
            raise ValueError(f"count must be positive or None, but is {count}")
        self.key = key
        self.hits = 0
        self.left = count
        self._was_hit = threading.Condition()

    def applies_to(self, key: int) -> bool:
        """Return whether the fault acts on the next request of this API."""
        return key == self.key and (self.left is None or self.left > 0)

    def record_hit(self) -> None:
        """Count an affected request."""
        with self._was_hit:
            self.hits += 1
            if self.left is not None:
                self.left -= 1
            self._was_hit.notify_all()

    def wait(self, hits: int = 1, timeout: float = 10.0) -> None:
        """Wait until it has affected `hits` requests.

        Raises TimeoutError after `timeout` seconds, and RuntimeError on a running event loop: `wait_async` is for that.
        """
        refuse_running_loop("wait", "wait_async(...)")
        with self._was_hit:
            if not self._was_hit.wait_for(lambda: self.hits >= hits, timeout):
                raise self._too_few(hits, timeout)

    async def wait_async(self, hits: int = 1, timeout: float = 10.0) -> None:
        """Wait as `wait` does, without blocking the event loop."""
        deadline = time.monotonic() + timeout
        while self.hits < hits:
            if time.monotonic() >= deadline:
                raise self._too_few(hits, timeout)
            await asyncio.sleep(_POLL_INTERVAL_S)

    def _too_few(self, hits: int, timeout: float) -> TimeoutError:
        return TimeoutError(f"{APIS[self.key].name}: {self.hits} of {hits} requests arrived within {timeout} s")

    @abstractmethod
    def act(
        self, envelope: "Envelope", context: RequestContext, server: "BrokerServer", next_handler: _NextHandler
    ) -> Answer[Response] | None:
        """Answer a request, or let it through to `next_handler`. Raises PeerError to close the connection."""


class Failure(RequestFault):
    """Requests are answered with an error code instead of being executed."""

    def __init__(self, key: int, count: int | None, end: Callable[[RequestFault], object], code: int) -> None:
        super().__init__(key, count, end)
        self._code = code

    def act(
        self,
        envelope: "Envelope",
        context: RequestContext,
        server: "BrokerServer",
        next_handler: _NextHandler,  # noqa: ARG002
    ) -> Answer[Response] | None:
        request: Any = codec.decode(APIS[self.key].request_class(), envelope.version, envelope.frame, envelope.body)[0]
        if isinstance(request, ProduceRequest) and request.acks == 0:
            raise PeerError("Produce with acks=0 fails: injected fault")
        if isinstance(request, MetadataRequest):
            return self._metadata_error(request, envelope, context, server.broker)
        if is_partition_error(self._code):
            if isinstance(request, FetchRequest):
                return self._fetch_error(request, envelope.version, server.broker)
            if isinstance(request, ShareFetchRequest | ShareAcknowledgeRequest):
                return self._share_error(request, envelope.version, context, server.broker)
        return error_response(request, envelope.version, self._code)

    def _fetch_error(self, request: FetchRequest, version: int, broker: "Broker") -> Response:
        """Return the error for each requested partition, including those of the fetch session."""
        session: FetchSession | None = None
        now_ms, by_id = broker.clock.now_ms(), version >= _FIRST_WITH_TOPIC_IDS
        partitions = [
            RequestedPartition(
                topic.topic, topic.topic_id, part.partition, -1, part.fetch_offset, part.partition_max_bytes
            )
            for topic in request.topics
            for part in topic.partitions
        ]
        if request.session_epoch == INITIAL_EPOCH and version >= _FIRST_WITH_SESSIONS:
            session = broker.sessions.begin(request.session_id, now_ms, by_id=by_id)
        elif request.session_epoch > INITIAL_EPOCH:
            code, session = broker.sessions.resume(request.session_id, request.session_epoch, now_ms, by_id=by_id)
            if session is None:
                return FetchResponse(error_code=code)
        if session is not None:
            forgotten = [(t.topic, t.topic_id, index) for t in request.forgotten_topics_data for index in t.partitions]
            session.update(partitions, forgotten)
            partitions = list(session.partitions.values())
            for partition in partitions:
                partition.last_high_watermark = -1  # include it in the next response
            session.look_at_all()
            request.session_id = session.id
        request.topics = _topics_of(partitions)
        return error_response(request, version, self._code)

    def _share_error(
        self,
        request: ShareFetchRequest | ShareAcknowledgeRequest,
        version: int,
        context: RequestContext,
        broker: "Broker",
    ) -> Response:
        """Return the error for each partition that a share group member fetches from or acknowledges records of."""
        member = request.group_id or "", request.member_id or ""
        epoch = request.share_session_epoch
        code, session = NONE, None
        if epoch > share.INITIAL_EPOCH:
            code, session = broker.share_partitions.sessions.resume(member, epoch)
        elif epoch == share.INITIAL_EPOCH and isinstance(request, ShareFetchRequest):
            session = broker.share_partitions.join(member, context.peer)
        if code != NONE:
            return error_response(request, version, code)
        if session is not None and isinstance(request, ShareFetchRequest):
            named = [(topic.topic_id, part.partition_index) for topic in request.topics for part in topic.partitions]
            gone = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
            session.update(named, gone)
            request.topics += _other_session_partitions(named, session)
        return error_response(request, version, self._code)

    def _metadata_error(
        self, request: MetadataRequest, envelope: "Envelope", context: RequestContext, broker: "Broker"
    ) -> Answer[Response]:
        """Return the metadata with the error for each topic; brokers are kept, because clients rely on them."""
        request.context = context
        request.allow_auto_topic_creation = False
        answer: Answer[Response] = broker.tasks.start(route_of(self.key).handler(request, broker))  # type: ignore[arg-type]

        def with_error(response: Any) -> Response:
            if isinstance(response, EncodedResponse):  # it is shared with other requests
                response = codec.decode(MetadataResponse, envelope.version, response.body)[0]
            if envelope.version >= _FIRST_WITH_CODE_OF_METADATA and not is_partition_error(self._code):
                response.error_code = self._code
            for topic in response.topics:
                topic.error_code, topic.partitions = self._code, []
            stripped: Response = response
            return stripped

        return after(answer, with_error)


def _topics_of(partitions: Sequence[RequestedPartition]) -> list[FetchTopic]:
    """Return the partitions of a fetch session as topics of a fetch request."""
    topics: dict[tuple[str, bytes], FetchTopic] = {}
    for partition in partitions:
        topic = topics.setdefault(
            (partition.topic, partition.topic_id), FetchTopic(topic=partition.topic, topic_id=partition.topic_id)
        )
        topic.partitions.append(FetchPartition(partition=partition.index))
    return list(topics.values())


def _other_session_partitions(
    named: Sequence[share.TopicIdPartition], session: share.ShareSession
) -> list[share_fetch.FetchTopic]:
    """Return the partitions of a share session that a fetch request does not list."""
    topics: dict[bytes, share_fetch.FetchTopic] = {}
    for topic_id, index in session.partitions:
        if (topic_id, index) not in named:
            topic = topics.setdefault(topic_id, share_fetch.FetchTopic(topic_id=topic_id))
            topic.partitions.append(share_fetch.FetchPartition(partition_index=index))
    return list(topics.values())


class Delay(RequestFault):
    """Requests are executed after a delay on the broker's clock."""

    def __init__(self, key: int, count: int | None, end: Callable[[RequestFault], object], ms: int) -> None:
        super().__init__(key, count, end)
        self._ms = ms

    def act(
        self,
        envelope: "Envelope",  # noqa: ARG002
        context: RequestContext,
        server: "BrokerServer",
        next_handler: _NextHandler,
    ) -> Answer[Response] | None:
        pending: Deferred[Response] = Deferred(server.tasks)

        def over() -> None:
            connection = server.sockets.connection_of(context.peer)
            try:
                answer = next_handler()
            except PeerError as error:
                if connection is not None:
                    connection.drop(error)
                return
            if answer is not None:
                pending.follow(answer)
            elif connection is not None:
                connection.serve_again()

        server.tasks.call_later(self._ms, over)
        return pending


class Drop(RequestFault):
    """The connection is closed instead of answering, before or after the request is executed."""

    def __init__(
        self, key: int, count: int | None, end: Callable[[RequestFault], object], *, carried_out: bool
    ) -> None:
        super().__init__(key, count, end)
        self._carried_out = carried_out

    def act(
        self, envelope: "Envelope", context: RequestContext, server: "BrokerServer", next_handler: _NextHandler
    ) -> Answer[Response] | None:
        after_it = "after" if self._carried_out else "before"
        error = PeerError(f"{envelope.api.name} is dropped {after_it} its execution: injected fault")
        answer = next_handler() if self._carried_out else None
        if not isinstance(answer, Deferred):
            raise error

        def on_response(_: Deferred[Response]) -> None:
            connection = server.sockets.connection_of(context.peer)
            if connection is not None:
                connection.drop(error)

        answer.listen(on_response)
        return Deferred(server.tasks)


class Pinned:
    """API versions of an older release of Apache Kafka.

    release  one of RELEASES
    served   its versions by API key
    """

    def __init__(self, release: str, served: dict[int, VersionRange]) -> None:
        self._release = tuple(map(int, release.split(".")))
        self._served = served

    def check(self, envelope: "Envelope") -> Response | None:
        """Raise PeerError for a version that the release did not serve; for ApiVersions return an error response."""
        key, version = envelope.api.key, envelope.asked
        if version in self._served.get(key, ()):
            return None
        if key != api.API_VERSIONS or key not in self._served:
            raise PeerError(f"{envelope.api.name} version {version} is not served by the pinned release")
        envelope.version = 0
        known = [self._row(key)] if self._release >= _FIRST_WITH_RANGE else []
        return ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=known)

    def rewrite(self, response: Any) -> Response:
        """Change the broker's ApiVersions response into that of the release."""
        response.api_keys = [self._row(row.api_key) for row in response.api_keys if row.api_key in self._served]
        if self._release < _FIRST_WITH_FEATURES:
            response.supported_features, response.finalized_features = [], []
            response.finalized_features_epoch = -1
        pinned: Response = response
        return pinned

    def _row(self, key: int) -> ApiVersion:
        first, last = self._served[key]
        if key == api.PRODUCE:
            first = _ADVERTISED_PRODUCE_VERSION
        return ApiVersion(api_key=key, min_version=first, max_version=last)


class Faults:
    """Active faults of a broker."""

    def __init__(self) -> None:
        self._faults: list[RequestFault] = []
        self.pinned: Pinned | None = None
        self._moved: set[tuple[str, int]] = set()
        """Topic and partition of the coordinators moved away from this broker."""

    def attach(self, server: "BrokerServer") -> None:
        """Route requests through the faults if there are any, otherwise directly to the handlers."""
        pipeline = server.pipeline
        if self._faults or self._moved or self.pinned is not None:
            pipeline.answer = partial(self.answer, server)
        else:
            pipeline.answer = pipeline.serve

    def add(self, fault: RequestFault) -> None:
        """Append a fault."""
        self._faults.append(fault)

    def remove(self, fault: RequestFault) -> None:
        """Remove a fault."""
        if fault in self._faults:
            self._faults.remove(fault)

    def clear(self, broker: "Broker | None") -> None:
        """Remove all faults; `broker` is the running one, None if it is down."""
        self._faults.clear()
        self.pinned = None
        for topic, index in tuple(self._moved):
            if broker is not None:
                self._restore_coordinator(topic, index, broker)
        self._moved.clear()

    def answer(self, server: "BrokerServer", envelope: "Envelope", context: RequestContext) -> Answer[Response] | None:
        """Serve one request, in place of `Pipeline.serve`."""
        if self.pinned is None:
            return self._serve_through(tuple(self._faults), envelope, context, server)
        error = self.pinned.check(envelope)
        if error is not None:
            return error
        answer = self._serve_through(tuple(self._faults), envelope, context, server)
        if envelope.api.key == api.API_VERSIONS and answer is not None:
            return after(answer, self.pinned.rewrite)
        return answer

    def _serve_through(
        self, faults: tuple[RequestFault, ...], envelope: "Envelope", context: RequestContext, server: "BrokerServer"
    ) -> Answer[Response] | None:
        for number, fault in enumerate(faults):
            if fault.applies_to(envelope.api.key) and fault in self._faults:
                fault.record_hit()
                next_handler = partial(self._serve_through, faults[number + 1 :], envelope, context, server)
                return fault.act(envelope, context, server, next_handler)
        if self._moved and envelope.api.key == api.FIND_COORDINATOR:
            self._restore_requested(envelope, server.broker)
        return server.pipeline.serve(envelope, context)

    def move_coordinator(self, key_type: int, key: str, broker: "Broker") -> None:
        """Resign as coordinator of a key until a FindCoordinator request for it. Raises LookupError if it has none yet."""
        name = _COORDINATED[key_type]
        topic = broker.image.topics.get(name)
        if topic is None:
            raise LookupError(f"{key} has no coordinator yet: no client has looked it up")
        index = partition_of(key, len(topic.partitions))
        self._moved.add((name, index))
        broker.coordination.resign(name, index)

    def _restore_requested(self, envelope: "Envelope", broker: "Broker") -> None:
        """Move back the coordinators that a FindCoordinator request looks up."""
        request = codec.decode(FindCoordinatorRequest, envelope.version, envelope.frame, envelope.body)[0]
        name = _COORDINATED.get(request.key_type)
        topic = broker.image.topics.get(name or "")
        if topic is not None:
            for key in request.coordinator_keys if envelope.version >= 4 else (request.key,):
                self._restore_coordinator(topic.name, partition_of(key, len(topic.partitions)), broker)

    def _restore_coordinator(self, name: str, index: int, broker: "Broker") -> None:
        topic = broker.image.topics.get(name)
        if (name, index) in self._moved:
            self._moved.discard((name, index))
            if topic is not None:
                broker.coordination.take_back(topic, index)

    def forget_moved(self) -> None:
        """Drop the moved coordinators: a new broker has taken over."""
        self._moved.clear()


def api_named(name: str) -> int:
    """Return the key of a served API by name, such as "Produce". Raises ValueError with the nearest name."""
    names = {APIS[key].name: key for key in SERVED}
    if name not in names:
        raise ValueError(f"unknown API {name}{did_you_mean(name, names, inf)}")
    return names[name]
