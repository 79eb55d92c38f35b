"""DeleteRecords: delete all records below an offset (KIP-107).

Authorization
    topic: DELETE   TOPIC_AUTHORIZATION_FAILED

Behaviour
    offset -1                     the high watermark: everything that is committed
    below the log start offset    no error, nothing changes
    beyond the high watermark     OFFSET_OUT_OF_RANGE, as for other negative numbers
    an internal topic             INVALID_TOPIC_EXCEPTION
    cleanup.policy=compact        POLICY_VIOLATION
    unknown topic or partition    UNKNOWN_TOPIC_OR_PARTITION
    the answer                    the low watermark: the smallest log start offset of all live replicas, once it has reached
                                  the offset; after the request's timeout REQUEST_TIMED_OUT, with the low watermark that there
                                  was at first. Segments below it are deleted by the next retention check

Versions
    1  throttled
"""

import logging
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.broker import Broker
from ottla.broker.requests.delayed import DelayedCommit, Deleted
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_topic
from ottla.log.log import OffsetNotInLog, StorageError
from ottla.protocol.errors import (
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.security.operations import AclOperation
from ottla.tasks.deferred import Answer, Deferred

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.broker")


@handles(DeleteRecordsRequest, rows="topics.partitions")
def delete_records(request: DeleteRecordsRequest, broker: Broker) -> Answer[DeleteRecordsResponse]:
    topics = []
    waits: list[Deleted] = []
    for topic in request.topics:
        offsets = {part.partition_index: part.offset for part in topic.partitions}
        if may_use_topic(request.context, AclOperation.DELETE, topic.name):
            results = [_delete(topic.name, index, offset, broker, waits) for index, offset in offsets.items()]
        else:
            results = [_error_row(index, TOPIC_AUTHORIZATION_FAILED) for index in offsets]
        if results:
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    response = DeleteRecordsResponse(topics=topics)
    if not waits:
        return response
    answer: Deferred[DeleteRecordsResponse] = Deferred(broker.tasks)
    delayed = DelayedCommit(lambda: answer.complete(response), broker.expirations.delete_records)
    delayed.begin(waits, broker.timeouts, request.timeout_ms)
    return answer


def _delete(topic: str, index: int, offset: int, broker: Broker, waits: list[Deleted]) -> DeleteRecordsPartitionResult:
    partition = broker.replicas.leader(topic, index)
    if isinstance(partition, int):
        return _error_row(index, partition)
    if broker.image.topics[topic].is_internal:
        return _error_row(index, INVALID_TOPIC_EXCEPTION)
    config = partition.log.config
    if config.is_compacted and "delete" not in config.cleanup_policy:
        return _error_row(index, POLICY_VIOLATION)
    try:
        low = partition.log.delete_records(offset)
    except OffsetNotInLog:
        return _error_row(index, OFFSET_OUT_OF_RANGE)
    except (StorageError, OSError) as error:
        _logger.error("%s", error)
        return _error_row(index, KAFKA_STORAGE_ERROR)
    partition.wake()  # fetch sessions return the new log start offset
    result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=partition.low_watermark)
    limit = low if offset == -1 else offset
    if result.low_watermark < limit:
        waits.append(Deleted(partition, partition.leader_epoch, limit, partial(_fill_result, partition, result)))
    return result


def _fill_result(partition: "Partition", result: DeleteRecordsPartitionResult, error_code: int) -> None:
    result.error_code = error_code
    if error_code != REQUEST_TIMED_OUT:  # it keeps the low watermark of the beginning
        result.low_watermark = partition.low_watermark if error_code == NONE else -1


def _error_row(index: int, code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=code)
