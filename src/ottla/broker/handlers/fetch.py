"""Fetch: records from partitions, at once or when enough of them are available.

Behaviour
    fewer than min_bytes there       waits for appends, at most max_wait_ms; an error answers at once, but for partitions
                                     that do not exist: they end the wait only when there are no others
    first batch larger than limits   is returned whole (KIP-74); other partitions' batches must fit
    offset out of range              OFFSET_OUT_OF_RANGE
    unknown topic or partition       UNKNOWN_TOPIC_OR_PARTITION; by id UNKNOWN_TOPIC_ID
    leader epoch                     older than ours FENCED_LEADER_EPOCH, newer UNKNOWN_LEADER_EPOCH (KIP-320)
    sessions                         broker/sessions.py; a response in a session holds only changes; a session that
                                     has lost its last partition is over
    read committed                   up to the last stable offset, with a list of aborted transactions
    log offline or damaged           KAFKA_STORAGE_ERROR
    more than the quota              an answer without records, and a throttle time

    zstd                             UNSUPPORTED_COMPRESSION_TYPE below version 10 where the topic is configured so (KIP-110),
                                     below 4 where a batch is so

Versions
    0  message sets of magic 0, converted down; max_bytes of a partition cuts even the first message
    2  message sets of magic 1
    3  max_bytes of the request; the first message is whole (KIP-74)
    4  RecordBatch v2; isolation level
    5  log start offset
    7  sessions
    9  current leader epoch
    12 flexible; epochs that diverge (for followers)
    13 topic ids
    15 the replica's state is tagged
    16 endpoints of leaders (KIP-951)
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.broker import Broker
from ottla.broker.current_leaders import Unled, add_current_leaders
from ottla.broker.delayed import DelayedAnswer, Watched
from ottla.broker.dispatch import PositionalRequest, handles
from ottla.broker.sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, RequestedPartition
from ottla.log.log import READ_COMMITTED, OffsetNotInLog, StorageError
from ottla.protocol.answer import Answer, Pending, after
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.records.compression import newer_than_fetch
from ottla.records.legacy import NotForOldClients

if TYPE_CHECKING:
    from ottla.environment.files import Region
    from ottla.log.log import Log
    from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.broker")
_ABSENT: Final = frozenset((UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID))
_FIRST_WITH_MAGIC_1: Final = 2
_FIRST_WITH_WHOLE_MESSAGES: Final = 3
_FIRST_WITH_BATCHES: Final = 4
_FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_TOPIC_IDS: Final = 13
_FIRST_WITH_LEADERS: Final = 16
_CONVERTED_AT_ONCE: Final = 1 << 20
"""Bytes of a partition that one response holds as a message set."""
_BYTES_OF_A_PARTITION: Final = 50
"""Approximate size of a partition in a response besides its records."""


@handles(FetchRequest, positions=True)
def fetch(request: PositionalRequest, broker: Broker) -> Answer[FetchResponse]:
    version = request.context.version
    fields = request.fields
    session_id, epoch, max_bytes = fields.session_id, fields.session_epoch, fields.max_bytes
    by_id = version >= _FIRST_WITH_TOPIC_IDS
    requested = _requested_partitions(fields.topics)
    session: FetchSession | None = None
    incremental = False
    now = broker.clock.now_ms()
    if version < _FIRST_WITH_SESSIONS or epoch == FINAL_EPOCH:
        if session_id != NO_SESSION:
            broker.sessions.end(session_id)
    elif epoch == INITIAL_EPOCH:
        session = broker.sessions.begin(session_id, now, by_id=by_id)
        if session is not None:
            session.update(requested, ())
    else:
        code, session = broker.sessions.resume(session_id, epoch, now, by_id=by_id)
        if session is None:
            return FetchResponse(error_code=code)
        session.update(requested, _forgotten(fields.forgotten_topics_data))
        incremental = True
        if not session.partitions:
            broker.sessions.end(session_id)
            return FetchResponse()
    if broker.throttling is not None:
        max_bytes = broker.throttling.most_fetched(request.context, max_bytes)
    attempt = _FetchAttempt(
        broker,
        requested,
        fields.min_bytes,
        max_bytes,
        fields.isolation_level,
        session,
        request.context,
        incremental=incremental,
    )
    response = attempt.attempt(fields.max_wait_ms <= 0 or not (requested or incremental))
    answer: Answer[FetchResponse]
    if response is not None:
        answer = response
    else:
        answer = DelayedAnswer(attempt.attempt, attempt.watched()).begin(broker.timers, fields.max_wait_ms)
    return answer if version >= _FIRST_WITH_BATCHES else after(answer, attempt.converted)


def _requested_partitions(topics: Iterable[Any]) -> list[RequestedPartition]:
    return [
        RequestedPartition(
            topic.topic,
            topic.topic_id,
            partition.partition,
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.partition_max_bytes,
        )
        for topic in topics
        for partition in topic.partitions
    ]


def _forgotten(topics: Iterable[Any]) -> Iterable[tuple[str, bytes, int]]:
    return ((topic.topic, topic.topic_id, index) for topic in topics for index in topic.partitions)


class _FetchAttempt:
    """One fetch, attempted again whenever one of its partitions grows."""

    __slots__ = (
        "_broker",
        "_by_id",
        "_committed",
        "_context",
        "_incremental",
        "_max_bytes",
        "_min_bytes",
        "_requested",
        "_session",
        "_version",
    )

    def __init__(
        self,
        broker: Broker,
        requested: list[RequestedPartition],
        min_bytes: int,
        max_bytes: int,
        isolation: int,
        session: FetchSession | None,
        context: RequestContext,
        *,
        incremental: bool,
    ) -> None:
        self._broker = broker
        self._requested = requested
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._committed = isolation == READ_COMMITTED
        self._session = session
        self._incremental = incremental
        self._context = context
        self._version = context.version
        self._by_id = context.version >= _FIRST_WITH_TOPIC_IDS

    def _partition(self, requested: RequestedPartition) -> "Partition | int":
        if self._by_id:
            return self._broker.replicas.leader_by_id(requested.topic_id, requested.index)
        return self._broker.replicas.leader(requested.topic, requested.index)

    def watched(self) -> Sequence[Watched]:
        """The session or the partitions whose growth may complete the fetch."""
        if self._session is not None:
            return (self._session,)
        leaders = (self._partition(requested) for requested in self._requested)
        return [partition for partition in leaders if not isinstance(partition, int)]

    def attempt(self, last: bool) -> FetchResponse | None:
        """Return the response, None while less than min_bytes are available; the `last` attempt always returns one."""
        left = self._max_bytes
        total = absent = 0
        done = last
        answers: list[tuple[RequestedPartition, PartitionData]] = []
        session = self._session
        if session is not None and self._incremental:
            partitions, count = session.due(), len(session.partitions)
        else:
            partitions, count = self._requested, len(self._requested)
        for requested in partitions:
            whole_first = total == 0 or self._version < _FIRST_WITH_WHOLE_MESSAGES  # these are cut after conversion
            data = self._read(requested, min(requested.max_bytes, left), whole_first=whole_first)
            if data.error_code in _ABSENT:
                absent += 1
            elif data.error_code != NONE:
                done = True
            elif data.records is not None:
                size = len(data.records)
                total += size
                left = max(0, left - size)
            answers.append((requested, data))
        if not done and total < self._min_bytes and absent < count:
            return None
        throttling = self._broker.throttling
        if throttling is not None:
            throttle_ms = throttling.fetched(self._context, total + _BYTES_OF_A_PARTITION * count)
            if throttle_ms > 0:
                return self._empty(throttle_ms)
        return self._response(answers)

    def _empty(self, throttle_ms: int) -> FetchResponse:
        """Return a response without records for a client over its quota; no session begins, an existing one continues."""
        session = self._session
        if session is not None and not self._incremental:
            self._broker.sessions.end(session.id)
            session = None
        return FetchResponse(throttle_time_ms=throttle_ms, session_id=NO_SESSION if session is None else session.id)

    def _read(self, requested: RequestedPartition, max_bytes: int, *, whole_first: bool) -> PartitionData:
        partition = self._partition(requested)
        if isinstance(partition, int):
            requested.watch(None)
            return _failed(requested.index, partition)
        if self._session is not None:
            requested.watch(partition)
        epoch = requested.current_epoch
        if epoch >= 0 and epoch != partition.leader_epoch:
            code = FENCED_LEADER_EPOCH if epoch < partition.leader_epoch else UNKNOWN_LEADER_EPOCH
            return _failed(requested.index, code)
        log = partition.log
        if log.config.rules.codec in newer_than_fetch(self._version):
            return _failed(requested.index, UNSUPPORTED_COMPRESSION_TYPE)
        committed = self._committed
        stable = log.last_stable_offset
        limit = stable if committed else log.high_watermark
        try:
            region = log.read(requested.fetch_offset, max_bytes, limit, whole_first=whole_first)
            aborted = None if not committed else _aborted(log, region, requested.fetch_offset)
        except OffsetNotInLog:
            return _failed(requested.index, OFFSET_OUT_OF_RANGE)
        except (StorageError, OSError) as error:
            _logger.error("%s", error)
            return _failed(requested.index, KAFKA_STORAGE_ERROR)
        return PartitionData(
            partition_index=requested.index,
            high_watermark=log.high_watermark,
            last_stable_offset=stable,
            log_start_offset=log.start_offset,
            aborted_transactions=aborted,
            records=region,
        )

    def converted(self, response: FetchResponse) -> Answer[FetchResponse]:
        """Convert the batches of a response to message sets, in steps between other requests."""
        answer = Pending[FetchResponse]()
        self._broker.slices.run(self._convert(response), lambda: answer.complete(response), answer.abandon)
        return answer

    def _convert(self, response: FetchResponse) -> Iterator[None]:
        offsets = {(requested.topic, requested.index): requested for requested in self._requested}
        for topic in response.responses:
            for data in topic.partitions:
                if data.records:
                    yield from self._convert_partition(offsets[topic.topic, data.partition_index], data)
                    yield

    def _convert_partition(self, requested: RequestedPartition, data: PartitionData) -> Iterator[None]:
        partition = self._partition(requested)
        if isinstance(partition, int):
            _fail(data, partition)
            return
        max_bytes = requested.max_bytes
        magic = 1 if self._version >= _FIRST_WITH_MAGIC_1 else 0
        try:
            message_set = yield from partition.log.read_message_set(
                requested.fetch_offset, min(max_bytes, _CONVERTED_AT_ONCE), data.high_watermark, magic
            )
        except NotForOldClients as error:
            _fail(data, error.code)
        except OffsetNotInLog as error:
            _fail(data, error.code)
        except (StorageError, OSError) as error:
            _logger.error("%s", error)
            _fail(data, KAFKA_STORAGE_ERROR)
        else:
            data.records = message_set if self._version >= _FIRST_WITH_WHOLE_MESSAGES else message_set[:max_bytes]

    def _limit(self, data: PartitionData) -> int:
        """First offset that the client may not read (exclusive limit)."""
        return data.last_stable_offset if self._committed else data.high_watermark

    def _response(self, answers: list[tuple[RequestedPartition, PartitionData]]) -> FetchResponse:
        session = self._session
        topics: list[FetchableTopicResponse] = []
        last: FetchableTopicResponse | None = None
        moved = []
        for requested, data in answers:
            if session is not None:
                has_changed = _has_changed(requested, data)
                if data.error_code == NONE and requested.fetch_offset >= self._limit(data):
                    session.settle(requested)
                if self._incremental:
                    if not has_changed:
                        continue
                    if data.records is not None:
                        moved.append(requested)
            if data.records is None:
                data.records = b""
            if last is None or (last.topic, last.topic_id) != (requested.topic, requested.topic_id):
                last = FetchableTopicResponse(topic=requested.topic, topic_id=requested.topic_id)
                topics.append(last)
            last.partitions.append(data)
        response = FetchResponse(responses=topics, session_id=NO_SESSION if session is None else session.id)
        if self._version >= _FIRST_WITH_LEADERS and any(data.error_code != NONE for _, data in answers):
            response.node_endpoints = self._leaders(topics)
        if session is not None:
            for requested in moved:
                session.move_to_end(requested)
        return response

    def _leaders(self, topics: list[FetchableTopicResponse]) -> list[NodeEndpoint]:
        """Add the current leaders of the partitions that this broker does not lead; returns their endpoints."""
        by_id = self._broker.image.topics_by_id
        rows = [
            Unled(by_id.get(topic.topic_id), data.partition_index, data)
            for topic in topics
            for data in topic.partitions
        ]
        return add_current_leaders(self._broker, self._context, rows, LeaderIdAndEpoch, NodeEndpoint)


def _aborted(log: "Log", region: "Region | None", offset: int) -> list[AbortedTransaction]:
    """Aborted transactions that a reader of committed data must skip in `region`. Raises StorageError."""
    if region is None:
        return []
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in log.aborted_in(region, offset)
    ]


def _has_changed(requested: RequestedPartition, data: PartitionData) -> bool:
    """Return whether a response within a session must hold this partition, and store the values returned."""
    has_changed = (
        data.records is not None
        or data.error_code != NONE
        or data.high_watermark != requested.last_high_watermark
        or data.last_stable_offset != requested.last_stable_offset
        or data.log_start_offset != requested.last_start_offset
    )
    # After an error no value counts as returned, so that the next response holds the partition again.
    failed = data.error_code != NONE
    requested.last_high_watermark = -1 if failed else data.high_watermark
    requested.last_stable_offset = data.last_stable_offset
    requested.last_start_offset = data.log_start_offset
    return has_changed


def _fail(data: PartitionData, code: int) -> None:
    data.error_code, data.high_watermark, data.records = code, -1, b""


def _failed(index: int, code: int) -> PartitionData:
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None)
