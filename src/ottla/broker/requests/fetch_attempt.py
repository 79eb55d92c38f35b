"""One fetch of a client or follower: its session, its attempts to read, and the rows of its response.

One file, because the attempts of a fetch share its session, the bytes that are left to it, and the rows that they fill.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ottla.broker.broker import Broker
from ottla.broker.requests.current_leaders import LOST_LEADERSHIP, MovedPartition, add_current_leaders
from ottla.broker.requests.delayed import Watched
from ottla.broker.requests.dispatch import PositionalRequest
from ottla.broker.requests.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession, RequestedPartition
from ottla.broker.requests.replica_selection import preferred_replica
from ottla.broker.security.permission import may_use_cluster, may_use_topic
from ottla.environment.files import Region
from ottla.log import reading
from ottla.log.log import READ_COMMITTED, OffsetNotInLog, StorageError
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.records.batch import HEADER_SIZE, read_header
from ottla.records.compression import newer_than_fetch
from ottla.records.errors import CorruptRecords
from ottla.records.legacy import NotForOldClients
from ottla.replication.throttle import UNLIMITED
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer, after

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.replication.partition import Partition

_ABSENT: Final = frozenset((UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED))
_FIRST_WITH_MAGIC_1: Final = 2
_FIRST_WITH_WHOLE_MESSAGES: Final = 3
_FIRST_WITH_BATCHES: Final = 4
_FIRST_WITH_SESSIONS: Final = 7
_FIRST_AT_FOLLOWERS: Final = 11
_FIRST_WITH_TOPIC_IDS: Final = 13
_FIRST_WITH_REPLICA_STATE: Final = 15
_FIRST_WITH_LEADERS: Final = 16
_CONVERTED_AT_ONCE: Final = 1 << 20
"""Bytes of a partition that one response holds as a message set."""
_BYTES_OF_A_PARTITION: Final = 50
"""Approximate size of a partition in a response besides its records."""


def open_fetch(request: PositionalRequest, broker: Broker) -> "FetchResponse | FetchAttempt":
    """Return the attempt of a fetch in its session, still without its partitions, or the response with the error."""
    fields, context = request.fields, request.context
    session_id, epoch = fields.session_id, fields.session_epoch
    by_id = context.version >= _FIRST_WITH_TOPIC_IDS
    reader = _Reader.of(fields, context)
    session: FetchSession | None = None
    incremental = False
    now = broker.clock.now_ms()
    if context.version < _FIRST_WITH_SESSIONS or epoch == FINAL_EPOCH:
        if session_id != NO_SESSION:
            broker.sessions.end(session_id)
    elif epoch == INITIAL_EPOCH:
        session = broker.sessions.begin(session_id, now, by_id=by_id, is_of_follower=reader.is_follower)
    else:
        code, session = broker.sessions.resume(session_id, epoch, now, by_id=by_id)
        if session is None:
            return FetchResponse(error_code=code)
        session.update((), _forgotten(fields.forgotten_topics_data))
        incremental = True
        if broker.authorization is not None and session.permissions is not broker.authorization.current:
            session.permissions = broker.authorization.current
            session.look_at_all()
        if not session.partitions and not fields.topics:
            broker.sessions.end(session_id)
            return FetchResponse()
    max_bytes = fields.max_bytes
    if reader.is_follower:
        context.peer.is_follower = True
    elif broker.throttling is not None:
        max_bytes = broker.throttling.most_fetched(context, max_bytes)
    max_bytes = min(max_bytes, broker.config.integer("fetch.max.bytes"))
    return FetchAttempt(
        broker, min(fields.min_bytes, max_bytes), max_bytes, reader, session, context, incremental=incremental
    )


def requested_partitions(topics: Iterable[Any]) -> list[RequestedPartition]:
    return [requested_partition(topic, partition) for topic in topics for partition in topic.partitions]


def requested_partition(topic: Any, partition: Any) -> RequestedPartition:
    return RequestedPartition(
        topic.topic,
        topic.topic_id,
        partition.partition,
        partition.current_leader_epoch,
        partition.fetch_offset,
        partition.partition_max_bytes,
        partition.last_fetched_epoch,
        partition.log_start_offset,
    )


def _forgotten(topics: Iterable[Any]) -> Iterable[tuple[str, bytes, int]]:
    return ((topic.topic, topic.topic_id, index) for topic in topics for index in topic.partitions)


class _Reader(NamedTuple):
    """Sender of a fetch.

    replica_id    node id of a follower, below zero for a consumer
    is_follower   True for a follower
    broker_epoch  broker epoch of a follower, -1 if it sends none
    committed     whether a consumer reads committed records only
    rack          rack of a consumer, "" if it sends none
    context       context of its request
    """

    replica_id: int
    is_follower: bool
    broker_epoch: int
    committed: bool
    rack: str
    context: RequestContext

    @classmethod
    def of(cls, fields: Any, context: RequestContext) -> "_Reader":
        """Return the sender of a request."""
        if context.version >= _FIRST_WITH_REPLICA_STATE:
            replica_id, broker_epoch = fields.replica_state.replica_id, fields.replica_state.replica_epoch
        else:
            replica_id, broker_epoch = fields.replica_id, -1
        committed = fields.isolation_level == READ_COMMITTED
        return cls(replica_id, replica_id >= 0, broker_epoch, committed, fields.rack_id or "", context)

    def find(self, requested: RequestedPartition, broker: Broker) -> "Partition | int":
        """Return the replica that serves the reader, or an error code."""
        version = self.context.version
        if self.context.authorizer is not None and self._is_denied(requested, broker):
            return TOPIC_AUTHORIZATION_FAILED
        partition = broker.replicas.readable(
            requested.topic,
            requested.index,
            requested.current_epoch,
            leader_only=self.is_follower or version < _FIRST_AT_FOLLOWERS,
            topic_id=requested.topic_id if version >= _FIRST_WITH_TOPIC_IDS else None,
        )
        if not self.is_follower or isinstance(partition, int):
            return partition
        leadership = partition.leadership
        if leadership is None or self.replica_id not in leadership.followers:
            return UNKNOWN_LEADER_EPOCH if requested.current_epoch >= 0 else NOT_LEADER_OR_FOLLOWER
        registered = broker.image.registered.get(self.replica_id)
        if registered is None or -1 < self.broker_epoch < registered.epoch:
            return NOT_LEADER_OR_FOLLOWER
        return partition

    def _is_denied(self, requested: RequestedPartition, broker: Broker) -> bool:
        if self.is_follower:
            return not may_use_cluster(self.context, AclOperation.CLUSTER_ACTION)
        name = requested.topic
        if self.context.version >= _FIRST_WITH_TOPIC_IDS:
            topic = broker.image.topics_by_id.get(requested.topic_id)
            if topic is None:
                return False
            name = topic.name
        return not may_use_topic(self.context, AclOperation.READ, name)


def _record_positions(requested: Iterable[RequestedPartition], reader: _Reader, broker: Broker) -> bool:
    """Take the fetch offsets of a follower as its acknowledgement, where its log does not diverge from this one. Return False
    if one was not taken: the partition is not led here, or the offset not in its log.
    """
    now_ms = broker.clock.now_ms()
    are_recorded = True
    for row in requested:
        partition = reader.find(row, broker)
        if isinstance(partition, int) or not _has_position(partition.log, row):
            are_recorded = False
        else:
            partition.record_fetch(reader.replica_id, row.fetch_offset, row.start_offset, reader.broker_epoch, now_ms)
    return are_recorded


def _has_position(log: "Log", row: RequestedPartition) -> bool:
    """Return True if a follower's log does not differ from this one up to its fetch offset."""
    try:
        return log.start_offset <= row.fetch_offset <= log.end_offset and _divergence(log, row) is None
    except OffsetNotInLog:
        return False


def _divergence(log: "Log", requested: RequestedPartition) -> tuple[int, int] | None:
    """Return the (epoch, end offset) after which the reader's log differs from this one, None if it does not. Raises
    OffsetNotInLog.
    """
    if requested.last_fetched_epoch < 0:
        return None
    return log.divergence(requested.last_fetched_epoch, requested.fetch_offset)


class _LogEnd:
    """Log end of a partition, for whose growth a follower without a session waits."""

    def __init__(self, partition: "Partition") -> None:
        self.watchers = partition.end_watchers


@final
class _Reading:
    """Partitions and answers of one attempt of a fetch.

    partitions   those that it looks at, of `count`; `absent` ones do not exist, or are hidden
    total, left  bytes that it returns, and may still return; it must be answered if it is `done`
    """

    def __init__(self, partitions: list[RequestedPartition], count: int, left: int, done: bool) -> None:
        self.partitions = partitions
        self.count = count
        self.left = left
        self.total = self.absent = 0
        self.done = done
        self.answers: list[tuple[RequestedPartition, PartitionData]] = []


@final
class FetchRows:
    """Rows of a response, and the partitions that move to the end of the session."""

    def __init__(self) -> None:
        self.topics: list[FetchableTopicResponse] = []
        self.last: FetchableTopicResponse | None = None
        self.moved: list[RequestedPartition] = []


class FetchAttempt:
    """One fetch, attempted again whenever one of its partitions grows."""

    __slots__ = (
        "_broker",
        "_committed",
        "_context",
        "_incremental",
        "_max_bytes",
        "_min_bytes",
        "_requested",
        "_session",
        "_version",
        "reader",
    )

    def __init__(
        self,
        broker: Broker,
        min_bytes: int,
        max_bytes: int,
        reader: _Reader,
        session: FetchSession | None,
        context: RequestContext,
        *,
        incremental: bool,
    ) -> None:
        self._broker = broker
        self._requested: list[RequestedPartition] = []
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self.reader = reader
        self._committed = reader.committed and not reader.is_follower
        self._session = session
        self._incremental = incremental
        self._context = context
        self._version = context.version

    def _partition(self, requested: RequestedPartition) -> "Partition | int":
        return self.reader.find(requested, self._broker)

    def watched(self) -> Sequence[Watched]:
        """The session or the partitions whose growth may complete the fetch."""
        if self._session is not None:
            return (self._session,)
        results = (self._partition(requested) for requested in self._requested)
        partitions = [partition for partition in results if not isinstance(partition, int)]
        return [_LogEnd(partition) for partition in partitions] if self.reader.is_follower else partitions

    @property
    def has_batches(self) -> bool:
        """True if the client takes record batches as they are."""
        return self._version >= _FIRST_WITH_BATCHES

    def add(self, requested: list[RequestedPartition]) -> None:
        """Add partitions of the request."""
        self._requested += requested
        if self._session is not None:
            self._session.update(requested, ())

    def record_positions(self, requested: Iterable[RequestedPartition]) -> bool:
        """See `_record_positions`; True for a consumer."""
        return _record_positions(requested, self.reader, self._broker) if self.reader.is_follower else True

    def is_at_once(self, wait_ms: int) -> bool:
        """Return whether the fetch does not wait for records."""
        return wait_ms <= 0 or not (self._requested or self._incremental)

    def expiry_counter(self) -> Callable[[], None]:
        """Return what counts a wait that ended at its timeout."""
        expirations = self._broker.expirations
        return expirations.follower_fetch if self.reader.is_follower else expirations.fetch

    def attempt(self, last: bool) -> FetchResponse | None:
        """Return the response, None while less than min_bytes are available; the `last` attempt always returns one."""
        reading = self.begin(last)
        self.read(reading.partitions, reading)
        if not self.is_enough(reading):
            return None
        throttled = self.throttle_response(reading)
        if throttled is not None:
            return throttled
        rows = FetchRows()
        self.respond(reading.answers, rows)
        return self.end(reading, rows)

    def begin(self, last: bool) -> "_Reading":
        """Begin an attempt."""
        session = self._session
        if session is not None and self._incremental:
            return _Reading(session.due(), len(session.partitions), self._max_bytes, last)
        return _Reading(self._requested, len(self._requested), self._max_bytes, last)

    def read(self, partitions: Iterable[RequestedPartition], reading: "_Reading") -> None:
        """Read partitions of an attempt."""
        total, left, done = reading.total, reading.left, reading.done
        for requested in partitions:
            whole_first = total == 0 or self._version < _FIRST_WITH_WHOLE_MESSAGES  # these are cut after conversion
            data = self._read(requested, min(requested.max_bytes, left), whole_first=whole_first)
            if data.error_code in _ABSENT:
                reading.absent += 1
                # A follower must name a partition again that this broker learns of later: its position is not recorded yet.
                done = done or self.reader.is_follower
            elif data.error_code != NONE or data.preferred_read_replica >= 0 or data.diverging_epoch.epoch >= 0:
                done = True
            elif data.records is not None:
                size = len(data.records)
                total += size
                if not done and total < self._min_bytes and isinstance(data.records, Region):
                    done = self._is_cut(requested, data.records)  # Kafka sends parts of batches: it would be full
                left = max(0, left - size)
            reading.answers.append((requested, data))
        reading.total, reading.left, reading.done = total, left, done

    def is_enough(self, reading: "_Reading") -> bool:
        """Return whether an attempt has what the client waits for; its answers are in the order of the response then."""
        if not reading.done and reading.total < self._min_bytes and reading.absent < reading.count:
            return False
        if reading.absent:  # the order of Kafka: topics that do not exist, or are hidden, come last
            reading.answers.sort(key=lambda answer: answer[1].error_code in _ABSENT)
        return True

    def _is_cut(self, requested: RequestedPartition, region: Region) -> bool:
        """Return whether a limit in bytes, not the end of what may be read, has ended a region of a partition."""
        end = region.position + region.length
        partition = self._partition(requested)
        if isinstance(partition, int) or end + HEADER_SIZE > region.file.size:
            return False
        try:
            return read_header(region.file.read(end, HEADER_SIZE), 0).base_offset < self._limit(partition.log)
        except (CorruptRecords, OSError):
            return False  # the next read reports it

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
            return _error_row(requested.index, partition)
        if self._session is not None:
            requested.watch(partition)
        log = partition.log
        if log.config.rules.codec in newer_than_fetch(self._version):
            return _error_row(requested.index, UNSUPPORTED_COMPRESSION_TYPE)
        committed = self._committed
        stable = log.last_stable_offset
        preferred = -1
        try:
            if requested.fetch_offset < log.start_offset:
                return _error_row(requested.index, OFFSET_OUT_OF_RANGE)
            diverging = _divergence(log, requested)
            if diverging is not None:
                return _divergence_row(requested.index, log, diverging)
            if self.reader.rack:
                preferred = preferred_replica(partition, requested.fetch_offset, self.reader.rack, self._broker)
            if preferred >= 0 or self._is_throttled(partition):
                region, aborted = None, None
            else:
                region = log.read(requested.fetch_offset, max_bytes, self._limit(log), whole_first=whole_first)
                aborted = None if not committed else _find_aborted(log, region, requested.fetch_offset)
        except OffsetNotInLog:
            return _error_row(requested.index, OFFSET_OUT_OF_RANGE)
        except (StorageError, OSError) as error:
            code = self._broker.replicas.read_failed(partition, requested.fetch_offset, error)
            return _error_row(requested.index, code)
        return PartitionData(
            partition_index=requested.index,
            high_watermark=log.high_watermark,
            last_stable_offset=stable,
            log_start_offset=log.start_offset,
            aborted_transactions=aborted,
            preferred_read_replica=preferred,
            records=region,
        )

    def _is_throttled(self, partition: "Partition") -> bool:
        """Return True if a follower must wait for the records of a partition."""
        if not self.reader.is_follower:
            return False
        throttle, leadership = self._broker.replication_throttles.leader, partition.leadership
        is_out_of_sync = leadership is not None and self.reader.replica_id not in leadership.state.isr
        return (
            is_out_of_sync
            and throttle.names(partition.topic, partition.index)
            and throttle.wait_ms(self._broker.clock.now_ms()) > 0
        )

    def _count(self, answers: list[tuple[RequestedPartition, PartitionData]]) -> None:
        """Count the records that are sent to a follower for the throttle."""
        throttle = self._broker.replication_throttles.leader
        for requested, data in answers:
            if data.records:
                partition = self._partition(requested)
                if not isinstance(partition, int) and throttle.names(partition.topic, partition.index):
                    throttle.record(len(data.records), self._broker.clock.now_ms())

    def convert(self, response: FetchResponse) -> Answer[FetchResponse]:
        """Convert the batches of a response to message sets, in steps between other requests."""
        converted = self._broker.tasks.run_pieces(self._convert(response), "the conversion of batches")
        return after(converted, lambda _: response)

    def _convert(self, response: FetchResponse) -> Iterator[None]:
        read = [(topic.topic, data) for topic in response.responses for data in topic.partitions if data.records]
        if not read:
            return
        offsets = {(requested.topic, requested.index): requested for requested in self._requested}
        for name, data in read:
            yield from self._convert_partition(offsets[name, data.partition_index], data)
            yield

    def _convert_partition(self, requested: RequestedPartition, data: PartitionData) -> Iterator[None]:
        partition = self._partition(requested)
        if isinstance(partition, int):
            _fail(data, partition)
            return
        max_bytes = requested.max_bytes
        magic = 1 if self._version >= _FIRST_WITH_MAGIC_1 else 0
        try:
            message_set = yield from reading.read_message_set(
                partition.log, requested.fetch_offset, min(max_bytes, _CONVERTED_AT_ONCE), data.high_watermark, magic
            )
        except NotForOldClients as unconvertible:
            _fail(data, unconvertible.code)
        except OffsetNotInLog as missing:
            _fail(data, missing.code)
        except (StorageError, OSError) as cause:
            _fail(data, self._broker.replicas.read_failed(partition, requested.fetch_offset, cause))
        else:
            data.records = message_set if self._version >= _FIRST_WITH_WHOLE_MESSAGES else message_set[:max_bytes]

    def _limit(self, log: "Log") -> int:
        """First offset that the reader may not read (exclusive limit)."""
        if self.reader.is_follower:
            return log.end_offset
        return log.last_stable_offset if self._committed else log.high_watermark

    def _has_all(self, requested: RequestedPartition, data: PartitionData) -> bool:
        """Return True if the reader has everything that it may read of a partition."""
        if data.error_code != NONE or data.diverging_epoch.epoch >= 0:
            return False
        if not self.reader.is_follower:
            return requested.fetch_offset >= (data.last_stable_offset if self._committed else data.high_watermark)
        partition = requested.watched
        return partition is not None and requested.fetch_offset >= partition.log.end_offset

    def throttle_response(self, reading: "_Reading") -> FetchResponse | None:
        """Return a response without records for a consumer over its quota, None below it: what was read counts."""
        throttling = self._broker.throttling
        if throttling is None or self.reader.is_follower:
            return None
        size = reading.total + _BYTES_OF_A_PARTITION * reading.count
        throttle_ms = throttling.record_fetch(self._context, size)
        return self._empty(throttle_ms) if throttle_ms > 0 else None

    def respond(self, answers: Sequence[tuple[RequestedPartition, PartitionData]], rows: "FetchRows") -> None:
        """Add answers to the rows of a response."""
        session, last = self._session, rows.last
        for requested, data in answers:
            if session is not None:
                has_changed = _has_changed(requested, data)
                if self._has_all(requested, data):
                    session.settle(requested)
                if self._incremental:
                    if not has_changed:
                        continue
                    if data.records is not None:
                        rows.moved.append(requested)
            if data.records is None:
                data.records = b""
            if last is None or (last.topic, last.topic_id) != (requested.topic, requested.topic_id):
                last = FetchableTopicResponse(topic=requested.topic, topic_id=requested.topic_id)
                rows.topics.append(last)
            last.partitions.append(data)
        rows.last = last

    def end(self, reading: "_Reading", rows: "FetchRows") -> FetchResponse:
        """Return the response with these rows."""
        session, answers = self._session, reading.answers
        if self.reader.is_follower and self._broker.replication_throttles.leader.limit != UNLIMITED:
            self._count(answers)
        response = FetchResponse(responses=rows.topics, session_id=NO_SESSION if session is None else session.id)
        if self._version >= _FIRST_WITH_LEADERS:
            response.node_endpoints = self._leaders(rows.topics)
        if session is not None:
            for requested in rows.moved:
                session.move_to_end(requested)
        return response

    def _leaders(self, topics: list[FetchableTopicResponse]) -> list[NodeEndpoint]:
        """Add the current leaders of the partitions that this broker does not lead; returns their endpoints."""
        by_id = self._broker.image.topics_by_id
        moved = [(topic, row) for topic in topics for row in topic.partitions if row.error_code in LOST_LEADERSHIP]
        if not moved:
            return []
        rows = [MovedPartition(by_id.get(topic.topic_id), row.partition_index, row) for topic, row in moved]
        return add_current_leaders(self._broker, self._context, rows, LeaderIdAndEpoch, NodeEndpoint)


def _find_aborted(log: "Log", region: Region | None, offset: int) -> list[AbortedTransaction]:
    """Aborted transactions that a reader of committed data must skip in `region`. Raises StorageError."""
    if region is None:
        return []
    return [
        AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
        for aborted in reading.aborted_in(log, region, offset)
    ]


def _has_changed(requested: RequestedPartition, data: PartitionData) -> bool:
    """Return whether a response within a session must hold this partition, and store the values returned."""
    has_changed = (
        data.records is not None
        or data.error_code != NONE
        or data.preferred_read_replica >= 0
        or data.diverging_epoch.epoch >= 0
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


def _error_row(index: int, code: int) -> PartitionData:
    aborted: list[AbortedTransaction] | None = [] if code in _ABSENT else None
    return PartitionData(partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=aborted)


def _divergence_row(index: int, log: "Log", diverging: tuple[int, int]) -> PartitionData:
    """Return the row for a reader whose log differs from this one after (epoch, end offset)."""
    return PartitionData(
        partition_index=index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        diverging_epoch=EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        aborted_transactions=None,
    )
