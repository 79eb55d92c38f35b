"""AlterReplicaLogDirs: move partitions between the log directories of this broker (KIP-113).

Authorization
    cluster: ALTER   CLUSTER_AUTHORIZATION_FAILED for each partition

Behaviour
    the answer comes at once          DescribeLogDirs shows how far the copy is (is_future_key)
    no such directory                 LOG_DIR_NOT_FOUND
    a directory that is offline       KAFKA_STORAGE_ERROR, also when the partition lies in one
    a directory that is cordoned      INVALID_REPLICA_ASSIGNMENT, also when the partition is in it
    a topic name over 249 characters  INVALID_TOPIC_EXCEPTION: its directory would have too long a name
    unknown topic or partition        UNKNOWN_TOPIC_OR_PARTITION
    the partition's own directory     success; a move that is under way is cancelled
    a partition twice                 the last one counts

Versions
    2  flexible
"""

import logging
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.broker.requests.dispatch import handles
from ottla.broker.security.permission import may_use_cluster
from ottla.log.log import StorageError
from ottla.metadata.plans.topics import LONGEST_TOPIC_NAME
from ottla.protocol.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    LOG_DIR_NOT_FOUND,
    NONE,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.security.operations import AclOperation

_logger = logging.getLogger("ottla.broker")


@handles(AlterReplicaLogDirsRequest, rows="dirs.topics.partitions", is_whole=True)
async def alter_replica_log_dirs(request: AlterReplicaLogDirsRequest, broker: Broker) -> AlterReplicaLogDirsResponse:
    target_directories = {
        (topic.name, index): wish.path for wish in request.dirs for topic in wish.topics for index in topic.partitions
    }
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    is_allowed = may_use_cluster(request.context, AclOperation.ALTER)
    for (topic, index), path in target_directories.items():
        await broker.tasks.pace()
        code = _begin_move(topic, index, Path(path), broker) if is_allowed else CLUSTER_AUTHORIZATION_FAILED
        result = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
        results.setdefault(topic, []).append(result)
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=parts) for name, parts in results.items()]
    )


def _begin_move(topic: str, index: int, path: Path, broker: Broker) -> int:
    """Begin the move of one partition, and return its error code."""
    if len(topic) > LONGEST_TOPIC_NAME:
        return INVALID_TOPIC_EXCEPTION
    if path in [missing.absolute() for missing in broker.replicas.missing]:
        return KAFKA_STORAGE_ERROR
    target = next((directory for directory in broker.replicas.directories if directory.path.absolute() == path), None)
    if target is None:
        return LOG_DIR_NOT_FOUND
    if target.offline is not None:
        return KAFKA_STORAGE_ERROR
    if target.is_cordoned:
        return INVALID_REPLICA_ASSIGNMENT
    partition = broker.replicas.find(topic, index)
    if partition is None:
        return broker.replicas.absence(topic, index)
    try:
        broker.moves.begin(partition, target)
    except StorageError as cause:
        _logger.error("%s", cause)
        return KAFKA_STORAGE_ERROR
    return NONE
