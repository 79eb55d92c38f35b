"""AlterReplicaLogDirs: API 34, versions 0-2 (flexible from 2).

Versions by release: 0 in 1.0, 1 in 2.0, 2 in 2.8.
"""

from ottla.protocol.schema import (
    MOST_OF_CHANGES,
    Array,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


class AlterReplicaLogDirTopic(Struct):
    name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class AlterReplicaLogDir(Struct):
    path: str = field(String)
    topics: list[AlterReplicaLogDirTopic] = field(Array(AlterReplicaLogDirTopic))


@message(api=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    ELEMENTS = MOST_OF_CHANGES
    dirs: list[AlterReplicaLogDir] = field(Array(AlterReplicaLogDir))


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(String)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(Array(AlterReplicaLogDirPartitionResult))


@message(api=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse(Response):
    throttle_time_ms: int = field(Int32)
    results: list[AlterReplicaLogDirTopicResult] = field(Array(AlterReplicaLogDirTopicResult))
