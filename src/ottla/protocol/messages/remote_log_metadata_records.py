"""Records of `__remote_log_metadata`: which segments tiered storage has elsewhere (KIP-405).

A value is framed as in the metadata log: `uvarint 1 | uvarint record type | uvarint version | body`; the record type is a
message's API here.
"""

from ottla.protocol.schema import Array, Bool, Bytes, Int8, Int32, Int64, Message, String, Struct, Uuid, field, message


class TopicIdPartitionEntry(Struct):
    name: str = field(String)
    id: bytes = field(Uuid)
    partition: int = field(Int32)


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = field(TopicIdPartitionEntry)
    id: bytes = field(Uuid)


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int = field(Int32)
    offset: int = field(Int64)


@message(api=0, versions="0", flexible="0+")
class RemoteLogSegmentMetadataRecord(Message):
    remote_log_segment_id: RemoteLogSegmentIdEntry = field(RemoteLogSegmentIdEntry)
    start_offset: int = field(Int64)
    end_offset: int = field(Int64)
    broker_id: int = field(Int32)
    max_timestamp_ms: int = field(Int64)
    event_timestamp_ms: int = field(Int64)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(Array(SegmentLeaderEpochEntry))
    segment_size_in_bytes: int = field(Int32)
    custom_metadata: bytes | None = field(Bytes, nullable="0+", default=None)
    remote_log_segment_state: int = field(Int8)
    txn_index_empty: bool = field(Bool, tag=0, default=False)


@message(api=1, versions="0", flexible="0+")
class RemoteLogSegmentMetadataUpdateRecord(Message):
    remote_log_segment_id: RemoteLogSegmentIdEntry = field(RemoteLogSegmentIdEntry)
    broker_id: int = field(Int32)
    event_timestamp_ms: int = field(Int64)
    custom_metadata: bytes | None = field(Bytes, nullable="0+", default=None)
    remote_log_segment_state: int = field(Int8)


@message(api=2, versions="0", flexible="0+")
class RemotePartitionDeleteMetadataRecord(Message):
    topic_id_partition: TopicIdPartitionEntry = field(TopicIdPartitionEntry)
    broker_id: int = field(Int32)
    event_timestamp_ms: int = field(Int64)
    remote_partition_delete_state: int = field(Int8)


@message(api=3, versions="0", flexible="0+")
class RemoteLogSegmentMetadataSnapshotRecord(Message):
    segment_id: bytes = field(Uuid)
    start_offset: int = field(Int64)
    end_offset: int = field(Int64)
    broker_id: int = field(Int32)
    max_timestamp_ms: int = field(Int64)
    event_timestamp_ms: int = field(Int64)
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(Array(SegmentLeaderEpochEntry))
    segment_size_in_bytes: int = field(Int32)
    custom_metadata: bytes | None = field(Bytes, nullable="0+", default=None)
    remote_log_segment_state: int = field(Int8)
    txn_index_empty: bool = field(Bool, tag=0, default=False)
