"""ShareFetch: records for one member of a share group, locked for it for a while (KIP-932).

Authorization
    group: READ   GROUP_AUTHORIZATION_FAILED
    topic: READ   TOPIC_AUTHORIZATION_FAILED for its partitions

Behaviour
    share.version 0                  UNSUPPORTED_VERSION
    no group id; a member id that is missing, empty or longer than 36 characters
                                     INVALID_REQUEST
    a renewal with anything to fetch INVALID_REQUEST (KIP-1222): limits and wait must be 0, and nothing is fetched
    sessions                         coordinators/share/session.py; acknowledgements in the first request INVALID_REQUEST; no
                                     session SHARE_SESSION_NOT_FOUND, another epoch INVALID_SHARE_SESSION_EPOCH; too many
                                     sessions SHARE_SESSION_LIMIT_REACHED after max_wait_ms
    acknowledgements                 taken before anything is fetched, answered once written, for all named partitions if there
                                     is one; see ShareAcknowledge
    last epoch                       acknowledgements are applied, the member's other records are released, nothing is fetched
    fewer than min_bytes there       waits for appends and releases, at most max_wait_ms
    many partitions                  share max_bytes equally; the one that was served last comes last
    more than the quota              the records, and a throttle time
    state not loaded yet             the request waits, no error; not initialised UNKNOWN_SERVER_ERROR
    unknown topic or partition       UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
    the answer                       records may hold more than was acquired: whole batches; a partition without news is left
                                     out, but for its first response in a session and the one after an error

Versions
    1  max_records and batch_size
    2  acquire mode record_limit (KIP-1206), renewals (KIP-1222)
"""

import logging
from collections.abc import Generator
from functools import partial
from typing import Final

from ottla.broker.broker import Broker
from ottla.broker.requests.current_leaders import MovedPartition, add_current_leaders
from ottla.broker.requests.delayed import DelayedAnswer
from ottla.broker.requests.dispatch import handles
from ottla.broker.requests.parts import run_paced
from ottla.broker.security.permission import may_use_group
from ottla.broker.share_partitions.led_partition import AcknowledgementResult, AcquiredRegion, LedSharePartition
from ottla.broker.share_partitions.permission import is_denied, split_acknowledgements
from ottla.coordinators.share.acquisition import AcquireRequest
from ottla.coordinators.share.session import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, TopicIdPartition
from ottla.log.log import StorageError
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    NONE,
    SHARE_SESSION_LIMIT_REACHED,
    SHARE_SESSION_NOT_FOUND,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
)
from ottla.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.protocol.rows import ROWS_OF_PART
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer, Deferred, after

_logger = logging.getLogger("ottla.broker")
_BATCH_OPTIMIZED: Final = 0
_RECORD_LIMIT: Final = 1
_Read = list[tuple[TopicIdPartition, PartitionData]]
_Steps = Generator[None, None, Answer[ShareFetchResponse]]


@handles(ShareFetchRequest, rows="topics.partitions", is_whole=True)
def share_fetch(request: ShareFetchRequest, broker: Broker) -> Answer[ShareFetchResponse]:
    steps = _steps(request, broker)
    if len(request.topics) > ROWS_OF_PART or sum([len(topic.partitions) for topic in request.topics]) > ROWS_OF_PART:
        return broker.tasks.start(_in_parts(steps, broker))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: Answer[ShareFetchResponse] = end.value
            return answer


async def _in_parts(steps: _Steps, broker: Broker) -> ShareFetchResponse:
    """Take the steps of a request with many rows, with pauses between them."""
    answer = await run_paced(steps, broker.tasks)
    return await answer if isinstance(answer, Deferred) else answer


def _steps(request: ShareFetchRequest, broker: Broker) -> _Steps:
    """Serve a request; other requests may be served at each `yield`, if it has many rows."""
    sharing = broker.share_partitions
    code = sharing.refusal(request.group_id, request.member_id)
    if code == NONE and not may_use_group(request.context, AclOperation.READ, request.group_id or ""):
        code = GROUP_AUTHORIZATION_FAILED
    if code == NONE and request.is_renew_ack and _wants_records(request):
        code = INVALID_REQUEST
    if code != NONE or request.group_id is None or request.member_id is None:
        return ShareFetchResponse(error_code=code)
    member = request.group_id, request.member_id
    acks = {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in request.topics
        for partition in topic.partitions
    }
    if not any(acks.values()):
        acks = {}
    yield
    acks, denied = split_acknowledgements(acks, request.context, broker)
    yield
    epoch = request.share_session_epoch
    answer = partial(_answer, broker, request.context, request.group_id, denied)
    if epoch == FINAL_EPOCH:
        if sharing.sessions.find(member) is None:
            return ShareFetchResponse(error_code=SHARE_SESSION_NOT_FOUND)
        outcomes = sharing.acknowledge(member, acks, is_renewal=request.is_renew_ack)
        sharing.leave(member)
        return after(outcomes, lambda outcomes: answer(outcomes, []))
    if epoch == INITIAL_EPOCH:
        if acks or denied:
            return ShareFetchResponse(error_code=INVALID_REQUEST)
        session = sharing.join(member, request.context.peer)
        if session is None:
            return _full(broker, request.max_wait_ms)
    else:
        code, resumed = sharing.sessions.resume(member, epoch)
        if resumed is None:
            return ShareFetchResponse(error_code=code)
        session = resumed
    places = [(topic.topic_id, partition.partition_index) for topic in request.topics for partition in topic.partitions]
    forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
    if epoch == INITIAL_EPOCH:
        session.partitions = dict.fromkeys(places, False)
    else:
        session.update(places, forgotten)
    yield
    outcomes = sharing.acknowledge(member, acks, is_renewal=request.is_renew_ack)
    if request.is_renew_ack or request.max_bytes <= 0:
        return after(outcomes, lambda outcomes: answer(outcomes, []))
    if session.partitions and request.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT):
        return after(outcomes, lambda _: ShareFetchResponse(error_code=UNKNOWN_SERVER_ERROR))
    if broker.throttling is not None:
        request.max_bytes = broker.throttling.most_fetched(request.context, request.max_bytes)
    request.max_bytes = min(request.max_bytes, broker.config.integer("fetch.max.bytes"))
    yield
    attempt = _ShareFetchAttempt(broker, request, session)
    yield
    reads = attempt.begin(request.max_wait_ms)
    yield
    whole = after(outcomes, lambda outcomes: after(reads, lambda reads: answer(outcomes, reads)))
    return after(whole, partial(_throttle, broker, request))


def _throttle(broker: Broker, request: ShareFetchRequest, response: ShareFetchResponse) -> ShareFetchResponse:
    """Return the response with the throttle time; acquired records are delivered. Apache Kafka withholds them, and they stay
    locked until their locks end.
    """
    if broker.throttling is not None:
        size = sum(len(partition.records or b"") for topic in response.responses for partition in topic.partitions)
        response.throttle_time_ms = broker.throttling.record_delivery(request.context, size)
    return response


def _wants_records(request: ShareFetchRequest) -> bool:
    return any((request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms))


def _full(broker: Broker, wait_ms: int) -> Answer[ShareFetchResponse]:
    """Answer SHARE_SESSION_LIMIT_REACHED after `wait_ms`, so that the client does not retry at once."""
    answer: Deferred[ShareFetchResponse] = Deferred(broker.tasks)
    refused = ShareFetchResponse(error_code=SHARE_SESSION_LIMIT_REACHED)
    broker.tasks.call_later(max(0, wait_ms), partial(answer.complete, refused))
    return answer


class _ShareFetchAttempt:
    """The fetch of one request, attempted until it is complete."""

    __slots__ = (
        "_broker",
        "_failed",
        "_group_id",
        "_member_id",
        "_request",
        "_session",
        "_shared",
        "_wish",
    )

    def __init__(self, broker: Broker, request: ShareFetchRequest, session: ShareSession) -> None:
        self._broker = broker
        self._request = request
        self._session = session
        self._group_id, self._member_id = session.member
        is_exact = request.share_acquire_mode == _RECORD_LIMIT
        self._wish = AcquireRequest(request.max_records, request.batch_size, is_exact)
        self._failed: _Read = []
        self._shared: list[tuple[TopicIdPartition, LedSharePartition]] = []
        for place in session.partitions:
            partition = broker.replicas.leader_by_id(*place)
            if is_denied(place[0], request.context, broker):
                partition = TOPIC_AUTHORIZATION_FAILED
            if isinstance(partition, int):
                self._failed.append((place, _failure(place, partition)))
            else:
                self._shared.append((place, broker.share_partitions.get_or_load(self._group_id, partition)))

    def begin(self, wait_ms: int) -> Answer[_Read]:
        """Begin the fetch; it is answered at once, or when enough records are available."""
        reads = self.attempt(wait_ms <= 0 or not self._shared)
        if reads is not None:
            return reads
        expired = self._broker.expirations.share_fetch
        delayed = DelayedAnswer(self.attempt, [shared for _, shared in self._shared], self._broker.tasks, expired)
        session = self._session
        session.interrupt = partial(delayed.give_up, [])
        answer = delayed.begin(self._broker.timeouts, wait_ms)
        return after(answer, self._clear_interrupt)

    def _clear_interrupt(self, reads: _Read) -> _Read:
        self._session.interrupt = None
        return reads

    def attempt(self, last: bool) -> _Read | None:
        """Acquire the available records for the member; None while they are too few, unless it is the `last` attempt."""
        failed = list(self._failed)
        ready: list[tuple[TopicIdPartition, LedSharePartition]] = []
        for place, shared in self._shared:
            partition = self._broker.replicas.leader_by_id(*place)
            if isinstance(partition, int):
                failed.append((place, _failure(place, partition)))
            elif shared.failure != NONE:
                failed.append((place, _failure(place, shared.failure)))
            elif shared.state is not None:
                ready.append((place, shared))
        done = last or len(failed) > len(self._failed) or (self._request.min_bytes <= 0 and bool(ready))
        if not done and not self._is_enough(ready):
            return None
        reads = self._take(ready)
        if not done and not any(data.records or data.error_code for _, data in reads):
            return None
        return self._rows(failed + reads)

    def _rows(self, reads: _Read) -> _Read:
        """Leave out partitions without news, but in the first response of a session."""
        session = self._session
        is_first = self._request.share_session_epoch == INITIAL_EPOCH
        rows = []
        for place, data in reads:
            if data.records:
                session.move_last(place)
            elif not is_first and not session.is_due(place, has_error=data.error_code != NONE):
                continue
            rows.append((place, data))
        return rows

    def _share(self, ready: list[tuple[TopicIdPartition, LedSharePartition]]) -> int:
        return max(1, self._request.max_bytes // max(1, len(ready)))

    def _is_enough(self, ready: list[tuple[TopicIdPartition, LedSharePartition]]) -> bool:
        """Return whether min_bytes are available, or an error to be returned."""
        group = self._broker.share_partitions.rules(self._group_id)
        most = self._share(ready)
        total = 0
        for _, shared in ready:
            try:
                readable = shared.readable(group, most, whole_first=total == 0)
            except (StorageError, OSError):
                return True
            if readable is not None:
                total += len(readable[1])
                if total >= self._request.min_bytes:
                    return True
        return False

    def _take(self, ready: list[tuple[TopicIdPartition, LedSharePartition]]) -> _Read:
        group = self._broker.share_partitions.rules(self._group_id)
        most = self._share(ready)
        wish = self._wish
        reads: _Read = []
        has_some = False
        for place, shared in ready:
            acquisition: AcquiredRegion | None = None
            try:
                while wish.max_records > 0:
                    region = shared.readable(group, most, whole_first=not has_some)
                    if region is None:
                        break
                    acquisition = shared.acquire(self._member_id, *region, wish, group)
                    if acquisition is not None or not shared.has_moved(region[0]):
                        break
            except (StorageError, OSError) as cause:
                _logger.error("%s", cause)
                reads.append(
                    (place, _failure(place, KAFKA_STORAGE_ERROR if isinstance(cause, OSError) else cause.code))
                )
                continue
            data = PartitionData(partition_index=place[1], records=b"")
            if acquisition is not None:
                has_some = True
                acquired = acquisition.acquired
                wish = wish._replace(
                    max_records=wish.max_records - sum(last - first + 1 for first, last, _ in acquired)
                )
                data.records = acquisition.records  # type: ignore[assignment]
                data.acquired_records = [
                    AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                    for first, last, count in acquired
                ]
            reads.append((place, data))
        return reads


def _failure(place: TopicIdPartition, code: int) -> PartitionData:
    return PartitionData(partition_index=place[1], error_code=code, records=b"")


def _answer(
    broker: Broker,
    context: RequestContext,
    group_id: str,
    denied: dict[TopicIdPartition, AcknowledgementResult],
    outcomes: dict[TopicIdPartition, AcknowledgementResult],
    reads: _Read,
) -> ShareFetchResponse:
    """Return the response, built from the outcome of acknowledgements and the records read."""
    by_place = dict(reads)
    for place, outcome in (*denied.items(), *outcomes.items()):
        data = by_place.get(place)
        if data is None:
            data = by_place[place] = PartitionData(partition_index=place[1], records=b"")
        data.acknowledge_error_code, data.acknowledge_error_message = outcome
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for (topic_id, _), data in by_place.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareFetchableTopicResponse(topic_id=topic_id)
        topic.partitions.append(data)
    lock_ms = broker.share_partitions.rules(group_id).rules.lock_ms
    by_id = broker.image.topics_by_id
    rows = [
        MovedPartition(by_id.get(topic_id), index, data)
        for (topic_id, index), data in by_place.items()
        if data.error_code
    ]
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=list(topics.values()),
        node_endpoints=add_current_leaders(broker, context, rows, LeaderIdAndEpoch, NodeEndpoint) if rows else [],
    )
