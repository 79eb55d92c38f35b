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
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.broker import Broker
from ottla.broker.requests.context_fields import log_fields
from ottla.broker.requests.current_leaders import MovedPartition, add_current_leaders
from ottla.broker.requests.dispatch import PositionalRequest, handles
from ottla.broker.requests.pending_append import PendingAppends, immediate_response, row_of
from ottla.broker.requests.produce_version import ProduceVersion, produce_version
from ottla.broker.requests.transactional_batches import (
    OF_SEVERAL_PRODUCERS,
    UNKNOWN_TOPIC,
    has_transactional,
    verify_batches,
)
from ottla.broker.security.permission import may_use_topic, may_use_transactional_id
from ottla.coordinators.runtime import COORDINATOR_UNAVAILABLE
from ottla.coordinators.transactions.partitions import Codes
from ottla.log.log import StorageError, Unfinished
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TOPIC_EXCEPTION,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_ENOUGH_REPLICAS,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
    name_of,
)
from ottla.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.wire import PeerError
from ottla.records.batch import MAGIC, magic_of, transactional_producer
from ottla.records.validation import check_whole
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer, Deferred, after

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.broker")
_NO_CODES: Final[Codes] = {}
_SEVERAL_PRODUCERS: Final = "Transactional records contained more than one producer ID"
_WRITER_OF_INTERNAL_TOPICS: Final = "__admin_client"
"""Client id whose requests Kafka lets write to internal topics."""


@handles(ProduceRequest, positions=True, rows="topic_data.partition_data")
def produce(request: PositionalRequest, broker: Broker) -> Answer[ProduceResponse] | None:
    if request.context.authorizer is None:
        return _verify_and_append(request, broker)
    allowed, denied = _split(request, broker)
    if not denied:
        return _verify_and_append(request, broker)
    request.fields.topic_data = allowed
    answer: Answer[Any] = _verify_and_append(request, broker)
    if request.fields.acks == 0:
        raise PeerError("Produce with acks=0 failed: the client may not write to a topic")

    def add_denied(response: ProduceResponse | None) -> ProduceResponse:
        response = response or ProduceResponse()
        response.responses += denied
        return response

    return after(answer, add_denied)


def _split(request: PositionalRequest, broker: Broker) -> tuple[list[Any], list[TopicProduceResponse]]:
    """Return the topics to which the sender may write, and the rows of the others."""
    context, fields = request.context, request.fields
    transactional_id = fields.transactional_id
    if has_transactional(request) and (
        transactional_id is None or not may_use_transactional_id(context, AclOperation.WRITE, transactional_id)
    ):
        return [], [_refuse_topic(topic, TRANSACTIONAL_ID_AUTHORIZATION_FAILED) for topic in fields.topic_data]
    by_id = produce_version(context.version).by_id
    allowed, denied = [], []
    for topic in fields.topic_data:
        known = broker.image.topics_by_id.get(topic.topic_id) if by_id else None
        name = topic.name if known is None else known.name
        if (by_id and known is None) or may_use_topic(context, AclOperation.WRITE, name):
            allowed.append(topic)
        else:
            denied.append(_refuse_topic(topic, TOPIC_AUTHORIZATION_FAILED))
    return allowed, denied


def _refuse_topic(topic: Any, code: int, message: str | None = None) -> TopicProduceResponse:
    rows = [
        PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1, error_message=message)
        for data in topic.partition_data
    ]
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows)


def _refuse(request: PositionalRequest, code: int, message: str | None = None) -> ProduceResponse | None:
    """Refuse the whole request."""
    rows = [_refuse_topic(topic, code, message) for topic in request.fields.topic_data]
    return immediate_response(ProduceResponse(responses=rows), request.fields.acks, code)


def _verify_and_append(request: PositionalRequest, broker: Broker) -> Answer[ProduceResponse] | None:
    """Append the batches to whose topics the sender may write, transactional ones when they are verified."""
    acks = request.fields.acks
    if request.fields.transactional_id is None:
        if has_transactional(request):
            return _refuse(request, TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return _append_all(request, broker, _NO_CODES)
    verified = verify_batches(request, broker)
    if not isinstance(verified, Deferred):
        return _append_verified(request, broker, verified)

    def append(codes: Codes) -> Answer[Any]:
        try:
            return _append_verified(request, broker, codes)
        except PeerError as error:  # acks=0: by now the connection serves another request
            _logger.info("%s: %s", request.context.client_id, error, extra=log_fields(request.context))
            return None

    appended = after(verified, append)
    return appended if acks != 0 else None


def _append_verified(request: PositionalRequest, broker: Broker, codes: Codes) -> Answer[ProduceResponse] | None:
    if codes is OF_SEVERAL_PRODUCERS:
        return _refuse(request, INVALID_PRODUCER_ID_MAPPING, _SEVERAL_PRODUCERS)
    return _append_all(request, broker, codes)


def _append_all(request: PositionalRequest, broker: Broker, codes: Codes) -> Answer[ProduceResponse] | None:
    """Append the batches; `codes` are the errors of transactional batches of (topic, partition).

    The order of the checks is Kafka's (KafkaApis, then ReplicaManager.appendRecords): clients see which error comes first.
    """
    fields, version = request.fields, produce_version(request.context.version)
    acks = fields.acks
    has_valid_acks = acks in (-1, 0, 1) or (acks > 1 and version.takes_many_acks)
    find = broker.replicas.leader_by_id if version.by_id else broker.replicas.leader
    responses = []
    first_error = NONE
    pending: PendingAppends | None = None  # created only for a request with an append that has to wait
    for topic in fields.topic_data:
        rows = []
        for data in topic.partition_data:
            partition = find(topic.topic_id if version.by_id else topic.name, data.index)
            if isinstance(partition, int):
                row = _refuse_batch(request, data, partition)
            elif (code := codes.get((partition.topic, data.index), NONE)) != NONE:
                row = _not_verified(request, data, code)
            elif not has_valid_acks:
                row = _refuse_batch(request, data, INVALID_REQUIRED_ACKS)
            elif partition.topic in INTERNAL_TOPICS and request.context.client_id != _WRITER_OF_INTERNAL_TOPICS:
                row = _refuse_batch(request, data, INVALID_TOPIC_EXCEPTION)
            elif acks == -1 and partition.lacks_replicas:  # before the append: nothing may be in the log
                row = _refuse_batch(request, data, NOT_ENOUGH_REPLICAS, log_start=partition.log.start_offset)
            else:
                row, unfinished, end = _append(request, version, partition, data.records, broker)
                if unfinished is not None or (row.error_code == NONE and not partition.has_acknowledged(acks, end)):
                    pending = pending or PendingAppends(broker, acks, fields.timeout_ms)
                    pending.add(partition, unfinished, row, end, _producer(request, data, unfinished))
            first_error = first_error or row.error_code
            rows.append(row)
        if rows:
            responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))
    response = ProduceResponse(responses=responses)
    if pending is not None:
        answer: Answer[ProduceResponse] | None = pending.answer(response, first_error)
        return answer if answer is None else after(answer, partial(_with_leaders, request.context, broker))
    if first_error != NONE:
        _with_leaders(request.context, broker, response)
    return immediate_response(response, acks, first_error)


def _producer(request: PositionalRequest, data: Any, unfinished: Unfinished | None) -> tuple[int, int] | None:
    """Return the producer of a transactional batch whose append is unfinished."""
    return None if unfinished is None else transactional_producer(request.frame, *data.records)


def _with_leaders(context: RequestContext, broker: Broker, response: Any) -> Any:
    """Return the response with the current leaders of the partitions that this broker does not lead, from version 10 on."""
    if produce_version(context.version).tells_leaders and isinstance(response, ProduceResponse):
        topics, topics_by_id = broker.image.topics, broker.image.topics_by_id
        rows = [
            MovedPartition(topics.get(topic.name) or topics_by_id.get(topic.topic_id), row.index, row)
            for topic in response.responses
            for row in topic.partition_responses
            if row.error_code != NONE
        ]
        response.node_endpoints = add_current_leaders(broker, context, rows, LeaderIdAndEpoch, NodeEndpoint)
    return response


def _append(
    request: PositionalRequest,
    version: ProduceVersion,
    partition: "Partition",
    records: tuple[int, int] | None,
    broker: Broker,
) -> tuple[PartitionProduceResponse, Unfinished | None, int]:
    """Append to one partition; returns its row, the unfinished append if it takes long, and the offset behind the batch."""
    if records is None:
        return PartitionProduceResponse(index=partition.index, error_code=INVALID_RECORD, base_offset=-1), None, -1
    start, end = records
    frame = request.frame
    is_message_set = not version.refuses_message_sets and magic_of(frame, start, end) != MAGIC
    now_ms = broker.clock.wall_ms()
    try:
        if is_message_set:
            appended = partition.append_message_set(frame, start, end, now_ms)
        else:
            appended = partition.append(frame, start, end, now_ms, refused_codecs=version.refused_codecs)
    except StorageError as error:
        _logger.error("%s", error)
        return PartitionProduceResponse(index=partition.index, error_code=KAFKA_STORAGE_ERROR, base_offset=-1), None, -1
    if appended.unfinished is not None:  # the row is filled in when the append is done; no success before
        row = PartitionProduceResponse(index=partition.index, error_code=UNKNOWN_SERVER_ERROR, base_offset=-1)
        return row, appended.unfinished, -1
    return row_of(partition, appended), None, appended.end_offset


def _refuse_batch(
    request: PositionalRequest, data: Any, code: int, message: str | None = None, log_start: int = -1
) -> PartitionProduceResponse:
    """Return the row of a batch that is refused before it is read. An error of the request comes first, as in Kafka, if the
    partition is known: it must have exactly one whole batch.
    """
    if code not in UNKNOWN_TOPIC and data.records is not None:
        frame, (start, end) = request.frame, data.records
        version = produce_version(request.context.version)
        if version.refuses_message_sets or magic_of(frame, start, end) == MAGIC:
            checked = check_whole(frame, start, end, version.refused_codecs)
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
        code == CONCURRENT_TRANSACTIONS and not produce_version(request.context.version).adds
    ):
        message = f"Unable to verify the partition has been added to the transaction. Underlying error: {name_of(code)}"
        code = NOT_ENOUGH_REPLICAS
    return _refuse_batch(request, data, code, message)
