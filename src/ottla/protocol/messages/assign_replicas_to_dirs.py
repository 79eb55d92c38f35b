"""AssignReplicasToDirs: API 73, versions 0 (flexible from 0).

Versions by release: 0 in 3.7.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, Struct, Uuid, field, message


class PartitionData(Struct):
    partition_index: int = field(Int32)


class TopicData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[PartitionData] = field(Array(PartitionData))


class DirectoryData(Struct):
    id: bytes = field(Uuid)
    topics: list[TopicData] = field(Array(TopicData))


@message(api=73, versions="0", flexible="0+")
class AssignReplicasToDirsRequest(Request["AssignReplicasToDirsResponse"]):
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)
    directories: list[DirectoryData] = field(Array(DirectoryData))


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: bytes = field(Uuid)
    partitions: list[AssignReplicasToDirsResponsePartitionData] = field(
        Array(AssignReplicasToDirsResponsePartitionData)
    )


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: bytes = field(Uuid)
    topics: list[AssignReplicasToDirsResponseTopicData] = field(Array(AssignReplicasToDirsResponseTopicData))


@message(api=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    directories: list[AssignReplicasToDirsResponseDirectoryData] = field(
        Array(AssignReplicasToDirsResponseDirectoryData)
    )
