"""Produce: append batches to partitions.

Behaviour
    acks 0                        no answer; an error closes the connection, which is all the client can be told
    acks -1, 1                    answered when appended: with one in-sync replica both are the same. Where flush.messages wants
                                  the batch on the medium, answered when it is; REQUEST_TIMED_OUT after the request's timeout
    other acks                    INVALID_REQUIRED_ACKS for every partition, nothing is appended
    unknown topic or partition    UNKNOWN_TOPIC_OR_PARTITION; an unknown id UNKNOWN_TOPIC_ID
    null records                  INVALID_RECORD (Kafka 4.4 never answers them)
    a batch that is not right     Kafka's code and text, with the records that were refused (KIP-467)
    a repeated idempotent batch   success, with the offset it had
    transactional batches         INVALID_TXN_STATE, as long as no transaction can be open here; without a transactional id
                                  TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    the disk fails                KAFKA_STORAGE_ERROR

Versions
    0  message sets of magic 0 and 1, converted up; a RecordBatch v2 is taken too
    3  RecordBatch v2 only
    5  log start offset in the answer
    7  zstd
    8  record errors
    10 the current leader (KIP-951)
    13 topic ids
"""

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.dispatch import Positions, handles
from ottla.broker.waiting import DelayedAnswer
from ottla.log.log import Appended, StorageError
from ottla.protocol.answer import Answer
from ottla.protocol.errors import (
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TXN_STATE,
    KAFKA_STORAGE_ERROR,
    NONE,
    REQUEST_TIMED_OUT,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    name_of,
)
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.wire import PeerError

if TYPE_CHECKING:
    from ottla.broker.lifecycle import Broker
    from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.broker")
_ATTRIBUTES_LOW: Final = 22
_TRANSACTIONAL: Final = 0x10
_MAGIC: Final = 16
_FIRST_WITH_BATCHES_ONLY: Final = 3
_FIRST_WITH_ZSTD: Final = 7
_FIRST_WITH_TOPIC_IDS: Final = 13


@handles(ProduceRequest, positions=True)
def produce(request: Positions, broker: "Broker") -> Answer[ProduceResponse] | None:
    transactional_id, acks, timeout_ms, topics = request.fields
    by_id = request.context.version >= _FIRST_WITH_TOPIC_IDS
    find = broker.replicas.find_by_id if by_id else broker.replicas.find
    transactional = INVALID_TXN_STATE if transactional_id else TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    responses = []
    first_error = NONE
    unsettled: list[_Unsettled] = []
    for name, topic_id, partitions in topics:
        answers = []
        for index, records in partitions:
            if acks not in (-1, 0, 1):
                answer = PartitionProduceResponse(index=index, error_code=INVALID_REQUIRED_ACKS, base_offset=-1)
            else:
                partition = find(topic_id if by_id else name, index)
                if partition is None:
                    code = _absence(broker, name, topic_id, index, by_id=by_id)
                    answer = PartitionProduceResponse(index=index, error_code=code, base_offset=-1)
                else:
                    answer = _append(request, partition, records, broker, transactional)
                    log = partition.log
                    if log.high_watermark != log.end_offset and answer.error_code == NONE:
                        unsettled.append(_Unsettled(partition, log.end_offset, answer))
            first_error = first_error or answer.error_code
            answers.append(answer)
        if answers:
            responses.append(TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=answers))
    if acks == 0:
        if first_error != NONE:
            raise PeerError(f"Produce with acks=0 failed with {name_of(first_error)}")
        return None
    response = ProduceResponse(responses=responses)
    if not unsettled:
        return response
    attempt = partial(_settled, broker, unsettled, response)
    return DelayedAnswer(attempt, [each.partition for each in unsettled]).begin(broker.timers, timeout_ms)


class _Unsettled(NamedTuple):
    """A batch that does not count yet: not before `end_offset` (exclusive) is below the high watermark."""

    partition: "Partition"
    end_offset: int
    answer: PartitionProduceResponse


def _settled(
    broker: "Broker", unsettled: list[_Unsettled], response: ProduceResponse, last: bool
) -> ProduceResponse | None:
    """The response, once every batch counts or never will; with `last` whatever is the case."""
    failures = []
    for partition, end_offset, answer in unsettled:
        if partition.log.high_watermark >= end_offset:
            continue
        if broker.replicas.find(partition.topic, partition.index) is not partition:
            failures.append((answer, broker.replicas.absence(partition.topic, partition.index)))
        elif last:
            failures.append((answer, REQUEST_TIMED_OUT))
        else:
            return None
    for answer, code in failures:
        answer.error_code, answer.base_offset = code, -1
    return response


def _absence(broker: "Broker", name: str, topic_id: bytes, index: int, *, by_id: bool) -> int:
    """The error code for a partition that is not here."""
    if by_id:
        topic = broker.image.topics_by_id.get(topic_id)
        if topic is None:
            return UNKNOWN_TOPIC_ID
        name = topic.name
    return broker.replicas.absence(name, index)


def _append(
    request: Positions,
    partition: "Partition",
    records: tuple[int, int] | None,
    broker: "Broker",
    transactional: int,
) -> PartitionProduceResponse:
    """The answer for one partition; `transactional` is the error code of a transactional batch."""
    if records is None:
        return PartitionProduceResponse(index=partition.index, error_code=INVALID_RECORD, base_offset=-1)
    start, end = records
    frame = request.frame
    version = request.context.version
    old = version < _FIRST_WITH_BATCHES_ONLY and frame[start + _MAGIC : start + _MAGIC + 1] != b"\2"
    if not old and end - start > _ATTRIBUTES_LOW and frame[start + _ATTRIBUTES_LOW] & _TRANSACTIONAL:
        return PartitionProduceResponse(index=partition.index, error_code=transactional, base_offset=-1)
    now_ms = broker.clock.wall_ms()
    try:
        if old:
            appended = partition.append_message_set(frame, start, end, now_ms)
        else:
            appended = partition.append(frame, start, end, now_ms, zstd_allowed=version >= _FIRST_WITH_ZSTD)
    except StorageError as error:
        _logger.error("%s", error)
        return PartitionProduceResponse(index=partition.index, error_code=KAFKA_STORAGE_ERROR, base_offset=-1)
    if appended.error_code != NONE:
        return _refused(partition, appended)
    return PartitionProduceResponse(
        index=partition.index,
        error_code=NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.append_time,
        log_start_offset=partition.log.start_offset,
    )


def _refused(partition: "Partition", appended: Appended) -> PartitionProduceResponse:
    fields: dict[str, Any] = {}
    if appended.record_errors:
        fields["record_errors"] = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in appended.record_errors
        ]
    return PartitionProduceResponse(
        index=partition.index,
        error_code=appended.error_code,
        base_offset=-1,
        error_message=appended.error_message,
        **fields,
    )
