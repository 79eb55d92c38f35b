"""Produce: append batches to partitions.

Authorization
    topic: WRITE              TOPIC_AUTHORIZATION_FAILED for its partitions; an unknown id is UNKNOWN_TOPIC_ID for every client
    transactional id: WRITE   TRANSACTIONAL_ID_AUTHORIZATION_FAILED for all partitions, if any batch is transactional

Behaviour
    acks 0                        no answer; an error closes the connection, as the client gets no response
    acks 1                        answered when appended here, and flushed where flush.messages demands it
    acks -1                       answered when all replicas in sync have it. With fewer than min.insync.replicas in sync
                                  NOT_ENOUGH_REPLICAS, and nothing is appended; NOT_ENOUGH_REPLICAS_AFTER_APPEND if they become
                                  fewer; REQUEST_TIMED_OUT after the request's timeout. The batch is in the log then, and the
                                  answer has its offset
    acks 2 and more               in version 0: answered when so many replicas have it, or all that are in sync if they are
                                  fewer, as Kafka 0.8 did
    other acks                    INVALID_REQUIRED_ACKS for every partition that exists, nothing is appended
    unknown topic or partition    UNKNOWN_TOPIC_OR_PARTITION; an unknown id UNKNOWN_TOPIC_ID
    an internal topic             INVALID_TOPIC_EXCEPTION, but for the client id __admin_client
    null records                  INVALID_RECORD (Kafka 4.4 never answers them)
    an invalid batch              Kafka's code and text, with the records that were refused (KIP-467), 10,000 at most
    records without a schema that the topic accepts   INVALID_RECORD (an extension); it waits for the schema registry
    not one whole batch           INVALID_RECORD, also from a broker that is not the leader
    a repeated idempotent batch   success, with the offset it had
    a transactional batch         the first of a transaction in a partition is verified with the coordinator (KIP-890), which
                                  from version 12 on adds the partition; without a transactional id
                                  TRANSACTIONAL_ID_AUTHORIZATION_FAILED for all partitions, with an empty one INVALID_REQUEST,
                                  of several producers or epochs INVALID_PRODUCER_ID_MAPPING for all partitions
    the disk fails                KAFKA_STORAGE_ERROR

Versions
    0  message sets of magic 0 and 1, converted up; a RecordBatch v2 is taken too
    3  RecordBatch v2 only
    5  log start offset in the answer
    7  zstd
    8  record errors
    10 the current leader (KIP-951)
    11 TRANSACTION_ABORTABLE (KIP-890)
    12 transaction.version 2: partitions are added to the transaction here
    13 topic ids
"""

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.broker import Broker
from ottla.broker.coordination.verification import Client, VerificationGuard, is_concurrent
from ottla.broker.requests.context_fields import log_fields
from ottla.broker.requests.current_leaders import MovedPartition, add_current_leaders
from ottla.broker.requests.delayed import DelayedCommit, Uncommitted
from ottla.broker.requests.dispatch import PositionalRequest, handles
from ottla.broker.requests.pending_append import PendingAppend
from ottla.broker.security.permission import may_use_topic, may_use_transactional_id
from ottla.coordinators.runtime import COORDINATOR_UNAVAILABLE
from ottla.coordinators.transactions.partitions import Codes, PartitionsOf
from ottla.log.log import AppendResult, StorageError, Unfinished
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_RECORD,
    INVALID_REQUEST,
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC_EXCEPTION,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    RECORD_LIST_TOO_LARGE,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    name_of,
)
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.wire import PeerError
from ottla.records.batch import MAGIC, base_sequence, magic_of, transactional_producer
from ottla.records.compression import newer_than_produce
from ottla.records.validation import check_whole
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer, Deferred, after

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.broker")
_FIRST_WITH_BATCHES_ONLY: Final = 3
_FIRST_WITH_LEADERS: Final = 10
_FIRST_THAT_ABORTS: Final = 11
_FIRST_THAT_ADDS: Final = 12
_FIRST_WITH_TOPIC_IDS: Final = 13
_MOST_ATTEMPTS: Final = 10
_MOST_ERRORS: Final = 10_000
"""Number of rejected records of a batch that a response names: 100,000 would hold up other requests for 0.3 s."""
_NO_CODES: Final[Codes] = {}
_OF_SEVERAL_PRODUCERS: Final[Codes] = {}
"""Stands for the error of a request whose batches are of several producers or epochs."""
_SEVERAL_PRODUCERS: Final = "Transactional records contained more than one producer ID"
_WRITER_OF_INTERNAL_TOPICS: Final = "__admin_client"
"""Client id whose requests Kafka lets write to internal topics."""
Place = tuple[str, int]
Producer = tuple[int, int]
_Guards = dict[Place, tuple[Producer, "VerificationGuard | None"]]
"""Producer and guard of each partition with a transactional batch; no guard where this broker was not the leader."""
_UNKNOWN_TOPIC: Final = frozenset((UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID))
_WITHOUT_LOG_START: Final = frozenset((CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE))
"""Errors of a batch for which Kafka returns no log start offset: of some exceptions of the append it returns only the code."""


@handles(ProduceRequest, positions=True, rows="topic_data.partition_data")
def produce(request: PositionalRequest, broker: Broker) -> Answer[ProduceResponse] | None:
    if request.context.authorizer is None:
        return _produced(request, broker)
    allowed, denied = _split(request, broker)
    if not denied:
        return _produced(request, broker)
    request.fields.topic_data = allowed
    answer: Answer[Any] = _produced(request, broker)
    if request.fields.acks == 0:
        raise PeerError("Produce with acks=0 failed: the client may not write to a topic")

    def completed(response: ProduceResponse | None) -> ProduceResponse:
        response = response or ProduceResponse()
        response.responses += denied
        return response

    return after(answer, completed)


def _split(request: PositionalRequest, broker: Broker) -> tuple[list[Any], list[TopicProduceResponse]]:
    """Return the topics to which the sender may write, and the rows of the others."""
    context, fields = request.context, request.fields
    transactional_id = fields.transactional_id
    if _is_transactional(request) and (
        transactional_id is None or not may_use_transactional_id(context, AclOperation.WRITE, transactional_id)
    ):
        return [], [_denied(topic, TRANSACTIONAL_ID_AUTHORIZATION_FAILED) for topic in fields.topic_data]
    by_id = context.version >= _FIRST_WITH_TOPIC_IDS
    allowed, denied = [], []
    for topic in fields.topic_data:
        known = broker.image.topics_by_id.get(topic.topic_id) if by_id else None
        name = topic.name if known is None else known.name
        if (by_id and known is None) or may_use_topic(context, AclOperation.WRITE, name):
            allowed.append(topic)
        else:
            denied.append(_denied(topic, TOPIC_AUTHORIZATION_FAILED))
    return allowed, denied


def _is_transactional(request: PositionalRequest) -> bool:
    """Return True if any batch is transactional."""
    frame = request.frame
    for topic in request.fields.topic_data:
        for data in topic.partition_data:
            if data.records is not None and transactional_producer(frame, *data.records) is not None:
                return True
    return False


def _denied(topic: Any, code: int, message: str | None = None) -> TopicProduceResponse:
    rows = [
        PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1, error_message=message)
        for data in topic.partition_data
    ]
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)


def _refused(request: PositionalRequest, code: int, message: str | None = None) -> ProduceResponse | None:
    """Refuse the whole request."""
    rows = [_denied(topic, code, message) for topic in request.fields.topic_data]
    return _at_once(ProduceResponse(responses=rows), request.fields.acks, code)


def _produced(request: PositionalRequest, broker: Broker) -> Answer[ProduceResponse] | None:
    acks = request.fields.acks
    if request.fields.transactional_id is None:
        if _is_transactional(request):
            return _refused(request, TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _append_all(request, broker, _NO_CODES)
    answer = broker.coordination.verification.repeated(partial(_verified, request, broker), is_concurrent)
    if not isinstance(answer, Deferred):
        return _append_verified(request, broker, answer)

    def append(codes: Codes) -> Answer[Any]:
        try:
            return _append_verified(request, broker, codes)
        except PeerError as error:  # acks=0: by now the connection serves another request
            _logger.info("%s: %s", request.context.client_id, error, extra=log_fields(request.context))
            return None

    appended = after(answer, append)
    return appended if acks != 0 else None


def _append_verified(request: PositionalRequest, broker: Broker, codes: Codes) -> Answer[ProduceResponse] | None:
    if codes is _OF_SEVERAL_PRODUCERS:
        return _refused(request, INVALID_PRODUCER_ID_MAPPING, _SEVERAL_PRODUCERS)
    return _append_all(request, broker, codes)


def _verified(request: PositionalRequest, broker: Broker) -> Answer[Codes]:
    """Verify the transactional batches as the partitions are now; returns the error codes of those that are not appended."""
    unverified, codes, guards = _unverified(request, broker)
    if unverified is None:
        return codes
    client = Client.of(request.context.version, aborts_from=_FIRST_THAT_ABORTS, adds_from=_FIRST_THAT_ADDS)
    is_enabled = broker.config.flag("transaction.partition.verification.enable")
    answer = broker.coordination.verification.verified(unverified, client, is_enabled=is_enabled)
    if not isinstance(answer, Deferred):
        return {**codes, **answer}

    def complete(verified: Codes) -> Codes:
        return {**codes, **verified, **_outdated(guards, broker)}

    return after(answer, complete)


def _is_valid(acks: int, version: int) -> bool:
    return acks in (-1, 0, 1) or (acks > 1 and version == 0)


def _unverified(request: PositionalRequest, broker: Broker) -> tuple[PartitionsOf | None, Codes, "_Guards"]:
    """Return the partitions whose transactional batches must be verified, or None without such batches; the error codes of
    batches that fail without verification, or _OF_SEVERAL_PRODUCERS; and the guards of all partitions with transactional
    batches.
    """
    frame = request.frame
    transactional_id = request.fields.transactional_id
    by_id = request.context.version >= _FIRST_WITH_TOPIC_IDS
    find = broker.replicas.leader_by_id if by_id else broker.replicas.leader
    producers_of_batches: set[Producer] = set()
    places: set[Place] = set()
    codes: dict[Place, int] = {}
    led: list[tuple[Place, Producer, Partition, int]] = []
    guards: _Guards = {}
    for topic in request.fields.topic_data:
        for data in topic.partition_data:
            producer = None if data.records is None else transactional_producer(frame, *data.records)
            if producer is None:
                continue
            partition = find(topic.topic_id if by_id else topic.name, data.index)
            if partition not in _UNKNOWN_TOPIC:
                producers_of_batches.add(producer)
            if isinstance(partition, int):
                guards[_place(request, topic, data.index, broker)] = producer, None
                continue
            place = partition.topic, data.index
            led.append((place, producer, partition, base_sequence(frame, data.records[0])))
            producers = partition.log.producers
            if producers.is_fenced(*producer):
                codes[place] = INVALID_PRODUCER_EPOCH
            elif not producers.has_open_transaction(*producer):
                places.add(place)
    if len(producers_of_batches) > 1:
        return None, _OF_SEVERAL_PRODUCERS, guards
    if not transactional_id:
        return None, {place: INVALID_REQUEST for place, *_ in led}, guards
    if not places:
        return None, codes, guards
    now_ms = broker.clock.wall_ms()
    begins_at_zero = request.context.version >= _FIRST_THAT_ADDS
    for place, producer, partition, sequence in led:
        if place in places:
            producers = partition.log.producers
            producers.begin_verification(*producer, sequence, now_ms, begins_at_zero=begins_at_zero)
        guards[place] = producer, VerificationGuard.of(partition, producer[0])
    return PartitionsOf(transactional_id, *producers_of_batches.pop(), frozenset(places)), codes, guards


def _place(request: PositionalRequest, topic: Any, index: int, broker: Broker) -> Place:
    """Return topic and partition of a batch; the name is empty for an unknown topic id."""
    if request.context.version < _FIRST_WITH_TOPIC_IDS:
        return topic.name, index
    known = broker.image.topics_by_id.get(topic.topic_id)
    return "" if known is None else known.name, index


def _outdated(guards: "_Guards", broker: Broker) -> Codes:
    """Return error codes for the partitions whose state is not that in which their verification began."""
    codes: dict[Place, int] = {}
    for place, (producer, guard) in guards.items():
        partition = broker.replicas.leader(*place)
        if isinstance(partition, int):
            continue  # not appended
        if guard is None or guard.leader_epoch != partition.leader_epoch:
            codes[place] = NOT_LEADER_OR_FOLLOWER
        elif guard != VerificationGuard.of(partition, producer[0]):
            # The marker may be that of the transaction before: the client sends the batch again, and it is verified again.
            codes[place] = CONCURRENT_TRANSACTIONS
            if partition.log.producers.is_fenced(*producer):
                codes[place] = INVALID_PRODUCER_EPOCH
    return codes


def _append_all(request: PositionalRequest, broker: Broker, codes: Codes) -> Answer[ProduceResponse] | None:
    """Append all permitted batches; `codes` are the errors of transactional batches of (topic, partition)."""
    fields = request.fields
    acks = fields.acks
    version = request.context.version
    by_id = version >= _FIRST_WITH_TOPIC_IDS
    find = broker.replicas.leader_by_id if by_id else broker.replicas.leader
    has_valid_acks = _is_valid(acks, version)
    responses = []
    first_error = NONE
    appends: _Appends | None = None  # created only for a request with an append that has to wait
    for topic in fields.topic_data:
        answers = []
        for data in topic.partition_data:
            partition = find(topic.topic_id if by_id else topic.name, data.index)
            if isinstance(partition, int):
                answer = _refused_row(request, data, partition)
            elif (code := codes.get((partition.topic, data.index), NONE)) != NONE:
                answer = _not_verified(request, data, code)
            elif not has_valid_acks:
                answer = _refused_row(request, data, INVALID_REQUIRED_ACKS)
            elif partition.topic in INTERNAL_TOPICS and request.context.client_id != _WRITER_OF_INTERNAL_TOPICS:
                answer = _refused_row(request, data, INVALID_TOPIC_EXCEPTION)
            elif acks == -1 and partition.lacks_replicas:
                answer = _refused_row(request, data, NOT_ENOUGH_REPLICAS, log_start=partition.log.start_offset)
            else:
                answer, unfinished, end = _append(request, partition, data.records, broker)
                if unfinished is not None or (answer.error_code == NONE and not partition.has_acknowledged(acks, end)):
                    appends = appends or _Appends(broker, acks, fields.timeout_ms)
                    appends.add(partition, unfinished, answer, end, _producer(request, data, unfinished))
            first_error = first_error or answer.error_code
            answers.append(answer)
        if answers:
            row = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            responses.append(row)
    response = ProduceResponse(responses=responses)
    if appends is not None:
        pending: Answer[ProduceResponse] | None = appends.answer(response, first_error)
        return pending if pending is None else after(pending, partial(_with_leaders, request.context, broker))
    if first_error != NONE:
        _with_leaders(request.context, broker, response)
    return _at_once(response, acks, first_error)


def _producer(request: PositionalRequest, data: Any, unfinished: Unfinished | None) -> Producer | None:
    """Return the producer of a transactional batch whose append is unfinished."""
    return None if unfinished is None else transactional_producer(request.frame, *data.records)


def _with_leaders(context: RequestContext, broker: Broker, response: Any) -> Any:
    """Return the response with the current leaders of the partitions that this broker does not lead, from version 10 on."""
    if context.version >= _FIRST_WITH_LEADERS and isinstance(response, ProduceResponse):
        topics, topics_by_id = broker.image.topics, broker.image.topics_by_id
        rows = [
            MovedPartition(topics.get(topic.name) or topics_by_id.get(topic.topic_id), row.index, row)
            for topic in response.responses
            for row in topic.partition_responses
            if row.error_code != NONE
        ]
        response.node_endpoints = add_current_leaders(broker, context, rows, LeaderIdAndEpoch, NodeEndpoint)
    return response


def _at_once(response: ProduceResponse, acks: int, first_error: int) -> ProduceResponse | None:
    """Return the response of a request without pending appends; with acks=0 None, or a PeerError."""
    if acks != 0:
        return response
    if first_error != NONE:
        raise PeerError(f"Produce with acks=0 failed with {name_of(first_error)}")
    return None


class _Appends:
    """Deferred appends of one request: batches that are still being validated, or are not committed yet."""

    __slots__ = ("_acks", "_attempts", "_broker", "_timeout_ms", "_uncommitted", "_unfinished", "_unknown")

    def __init__(self, broker: Broker, acks: int, timeout_ms: int) -> None:
        self._broker = broker
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._attempts = 0
        self._unfinished: list[PendingAppend] = []
        self._unknown: list[PendingAppend] = []
        """Those with schemas that have to be looked up."""
        self._uncommitted: list[Uncommitted] = []

    def add(
        self,
        partition: "Partition",
        unfinished: Unfinished | None,
        answer: PartitionProduceResponse,
        end_offset: int,
        producer: Producer | None,
    ) -> None:
        """Add a pending append; its row is filled in, or corrected, when the append is committed.

        end_offset  offset behind the batch; of a duplicate behind the batch that it repeats, as later ones are not waited for
        producer    of a transactional batch
        """
        if unfinished is None:
            self._wait_for(partition, answer, end_offset)
            return
        guard = None if producer is None else VerificationGuard.of(partition, producer[0])
        self._validate(PendingAppend(partition, partition.leader_epoch, unfinished, answer, producer, guard))

    def _validate(self, append: PendingAppend) -> None:
        """Add an append to those that wait for a schema registry, or for their turn."""
        (self._unknown if append.unfinished.unknown else self._unfinished).append(append)

    def _wait_for(self, partition: "Partition", answer: PartitionProduceResponse, end_offset: int) -> None:
        decided = partial(_decided, partition, self._acks, answer)
        self._uncommitted.append(Uncommitted(partition, partition.leader_epoch, end_offset, decided, self._acks))

    def _fill_in(self, answer: PartitionProduceResponse, partition: "Partition", appended: AppendResult) -> None:
        row = _row(partition, appended)
        for declared in row.FIELDS:
            setattr(answer, declared.name, getattr(row, declared.name))
        if answer.error_code == NONE and not partition.has_acknowledged(self._acks, appended.end_offset):
            self._wait_for(partition, answer, appended.end_offset)

    def answer(self, response: ProduceResponse, first_error: int) -> Answer[ProduceResponse] | None:
        """Answer the request once every append is committed; None with acks=0."""
        if self._unknown:
            return after(self._learn(), lambda _: self._finished(response))
        if self._unfinished:
            # One request at a time, because each may take 16 MB and more of memory (a zstd window alone 128 MB).
            return after(self._broker.large_checks.take(self._check), lambda _: self._finished(response))
        if self._acks == 0 or not self._uncommitted:
            return _at_once(response, self._acks, first_error)
        whole: Deferred[ProduceResponse] = Deferred(self._broker.tasks)
        delayed = DelayedCommit(lambda: whole.complete(response), self._broker.expirations.produce)
        delayed.begin(self._uncommitted, self._broker.timeouts, self._timeout_ms)
        return whole

    def _learn(self) -> Answer[None]:
        """Look unknown schemas up, and begin these appends again."""
        appends, self._unknown = self._unknown, []
        self._attempts += 1
        unknown = [
            (one.rules, one.unknown) for one in (append.unfinished for append in appends) if one.rules is not None
        ]
        learned = self._broker.schema_validation.learn(unknown)
        return after(learned, lambda _: self._begin_again(appends))

    def _begin_again(self, appends: list[PendingAppend]) -> None:
        for append in appends:
            code = append.refusal(self._broker, self._acks)
            if code == NONE and self._attempts > _MOST_ATTEMPTS:
                code = REQUEST_TIMED_OUT  # what was learned is outdated again and again
            if code != NONE:
                append.answer.error_code, append.answer.base_offset = code, -1
                continue
            try:
                self._continue(append)
            except StorageError as error:
                self._failed(append, error)

    def _continue(self, append: PendingAppend) -> None:
        """Append a batch that is valid as far as it was checked."""
        appended = append.unfinished.append()
        if appended.unfinished is None:
            self._fill_in(append.answer, append.partition, appended)
        else:
            self._validate(append._replace(unfinished=appended.unfinished))

    def _failed(self, append: PendingAppend, error: StorageError) -> None:
        _logger.error("%s", error)
        append.answer.error_code, append.answer.base_offset = KAFKA_STORAGE_ERROR, -1

    def _check(self) -> Answer[None]:
        return self._broker.tasks.run_pieces(self._finish(), "the check of a large batch")

    def _finish(self) -> Iterator[None]:
        while self._unfinished:  # a message set comes back: it is rebuilt, then the batch is checked
            append = self._unfinished.pop(0)
            try:
                yield from append.unfinished.steps
                code = append.refusal(self._broker, self._acks)
                if code != NONE:
                    append.answer.error_code, append.answer.base_offset = code, -1
                else:
                    self._continue(append)
            except StorageError as error:
                self._failed(append, error)

    def _finished(self, response: ProduceResponse) -> Answer[Any]:
        answers = [answer for topic in response.responses for answer in topic.partition_responses]
        first_error = next((answer.error_code for answer in answers if answer.error_code != NONE), NONE)
        try:
            return self.answer(response, first_error)
        except PeerError as error:
            return error


def _decided(partition: "Partition", acks: int, answer: PartitionProduceResponse, error_code: int) -> None:
    if error_code == NONE and acks == -1 and partition.lost_replicas:
        error_code = NOT_ENOUGH_REPLICAS_AFTER_APPEND
    answer.error_code = error_code  # the batch keeps its offset: it is in the log


def _append(
    request: PositionalRequest,
    partition: "Partition",
    records: tuple[int, int] | None,
    broker: Broker,
) -> tuple[PartitionProduceResponse, Unfinished | None, int]:
    """Append to one partition; returns its row, the unfinished append if it takes long, and the offset behind the batch."""
    if records is None:
        return PartitionProduceResponse(index=partition.index, error_code=INVALID_RECORD, base_offset=-1), None, -1
    start, end = records
    frame = request.frame
    version = request.context.version
    old = version < _FIRST_WITH_BATCHES_ONLY and magic_of(frame, start, end) != MAGIC
    now_ms = broker.clock.wall_ms()
    try:
        if old:
            appended = partition.append_message_set(frame, start, end, now_ms)
        else:
            appended = partition.append(frame, start, end, now_ms, refused_codecs=newer_than_produce(version))
    except StorageError as error:
        _logger.error("%s", error)
        return PartitionProduceResponse(index=partition.index, error_code=KAFKA_STORAGE_ERROR, base_offset=-1), None, -1
    if appended.unfinished is not None:  # the row is filled in when the append is done; no success before
        row = PartitionProduceResponse(index=partition.index, error_code=UNKNOWN_SERVER_ERROR, base_offset=-1)
        return row, appended.unfinished, -1
    return _row(partition, appended), None, appended.end_offset


def _row(partition: "Partition", appended: AppendResult) -> PartitionProduceResponse:
    """Return the row of a completed append."""
    if appended.error_code == NONE:
        return PartitionProduceResponse(
            index=partition.index,
            error_code=NONE,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time,
            log_start_offset=partition.log.start_offset,
        )
    has_log_start = appended.is_whole and appended.error_code not in _WITHOUT_LOG_START
    return PartitionProduceResponse(
        index=partition.index,
        error_code=appended.error_code,
        base_offset=-1,
        log_start_offset=partition.log.start_offset if has_log_start else -1,
        error_message=appended.error_message,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in (appended.record_errors or ())[:_MOST_ERRORS]
        ],
    )


def _refused_row(
    request: PositionalRequest, data: Any, code: int, message: str | None = None, log_start: int = -1
) -> PartitionProduceResponse:
    """Return the row of a batch that is refused before it is read. An error of the request comes first, as in Kafka, if the
    partition is known: it must have exactly one whole batch.
    """
    if code not in _UNKNOWN_TOPIC and data.records is not None:
        frame, version, (start, end) = request.frame, request.context.version, data.records
        if version >= _FIRST_WITH_BATCHES_ONLY or magic_of(frame, start, end) == MAGIC:
            checked = check_whole(frame, start, end, newer_than_produce(version))
            if checked.error_code != NONE:
                code, message, log_start = checked.error_code, checked.error_message, -1
    return PartitionProduceResponse(
        index=data.index, error_code=code, base_offset=-1, error_message=message, log_start_offset=log_start
    )


def _not_verified(request: PositionalRequest, data: Any, code: int) -> PartitionProduceResponse:
    """Return the row of a batch whose verification failed with `code`. A temporary error is replaced by one after which
    clients resend without a metadata request.
    """
    message = None
    if code == INVALID_TXN_STATE:
        message = "Partition was not added to the transaction"
    elif code in COORDINATOR_UNAVAILABLE or (
        code == CONCURRENT_TRANSACTIONS and request.context.version < _FIRST_THAT_ADDS
    ):
        message = f"Unable to verify the partition has been added to the transaction. Underlying error: {name_of(code)}"
        code = NOT_ENOUGH_REPLICAS
    return _refused_row(request, data, code, message)
