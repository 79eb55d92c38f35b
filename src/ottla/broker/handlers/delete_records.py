"""DeleteRecords: delete all records below an offset (KIP-107).

Behaviour
    offset -1                     the high watermark: everything that is committed
    below the log start offset    no error, nothing changes
    beyond the high watermark     OFFSET_OUT_OF_RANGE, as for other negative numbers
    an internal topic             INVALID_TOPIC_EXCEPTION
    cleanup.policy without delete POLICY_VIOLATION
    unknown topic or partition    UNKNOWN_TOPIC_OR_PARTITION
    the answer                    the log start offset; segments below it are deleted by the next retention check

Versions
    1  throttled
"""

import logging

from ottla.broker.broker import Broker
from ottla.broker.dispatch import handles
from ottla.log.log import OffsetNotInLog, StorageError
from ottla.protocol.answer import Answer
from ottla.protocol.errors import (
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    POLICY_VIOLATION,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_logger = logging.getLogger("ottla.broker")


@handles(DeleteRecordsRequest)
def delete_records(request: DeleteRecordsRequest, broker: Broker) -> Answer[DeleteRecordsResponse]:
    topics = []
    for topic in request.topics:
        offsets = {part.partition_index: part.offset for part in topic.partitions}
        results = [_deleted(topic.name, index, offset, broker) for index, offset in offsets.items()]
        if results:
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(topics=topics)


def _deleted(topic: str, index: int, offset: int, broker: Broker) -> DeleteRecordsPartitionResult:
    partition = broker.replicas.leader(topic, index)
    low = -1
    if isinstance(partition, int):
        code = partition
    elif broker.image.topics[topic].is_internal:
        code = INVALID_TOPIC_EXCEPTION
    elif "delete" not in partition.log.config.cleanup_policy:
        code = POLICY_VIOLATION
    else:
        code = NONE
        try:
            low = partition.log.delete_records(offset)
            partition.wake()  # fetch sessions return the new log start offset
        except OffsetNotInLog:
            code = OFFSET_OUT_OF_RANGE
        except (StorageError, OSError) as error:
            _logger.error("%s", error)
            code = KAFKA_STORAGE_ERROR
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low, error_code=code)
