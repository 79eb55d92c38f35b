"""Records of `__remote_log_metadata` (KIP-405) in the format of Kafka's tools: Java's toString."""

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from ottla.protocol.codec import decode
from ottla.protocol.messages import remote_log_metadata_records as records
from ottla.protocol.schema import Message
from ottla.protocol.uuids import uuid_text
from ottla.protocol.wire import PeerError, read_uvarint
from ottla.records.record import Record

_SEGMENT_STATES: Final = (
    "COPY_SEGMENT_STARTED",
    "COPY_SEGMENT_FINISHED",
    "DELETE_SEGMENT_STARTED",
    "DELETE_SEGMENT_FINISHED",
)
_PARTITION_STATES: Final = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")


def remote_log_metadata(value: bytes | None) -> str:
    """Return the text of one record. Raises ValueError for an invalid one."""
    if value is None:
        raise ValueError("a record without a value")
    try:
        _, position = read_uvarint(value, 0)
        kind, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
        cls, show = _KINDS.get(kind, (None, None))
        if cls is None or show is None or version not in cls.VERSIONS:
            raise ValueError(f"version {version} of record type {kind} is not known")
        message, _ = decode(cls, version, value, position)
    except (PeerError, IndexError) as error:
        raise ValueError(str(error)) from None
    name = cls.__name__.removesuffix("Record")
    return f"{name}{{{', '.join(f'{title}={text}' for title, text in show(message))}}}"


Shown = list[tuple[str, Any]]


def _segment(record: records.RemoteLogSegmentMetadataRecord) -> Shown:
    return [
        ("remoteLogSegmentId", _segment_id(record.remote_log_segment_id)),
        ("startOffset", record.start_offset),
        ("endOffset", record.end_offset),
        ("brokerId", record.broker_id),
        ("maxTimestampMs", record.max_timestamp_ms),
        ("eventTimestampMs", record.event_timestamp_ms),
        *_rest(record),
    ]


def _snapshot(record: records.RemoteLogSegmentMetadataSnapshotRecord) -> Shown:
    return [
        ("segmentId", uuid_text(record.segment_id)),
        ("startOffset", record.start_offset),
        ("endOffset", record.end_offset),
        ("maxTimestampMs", record.max_timestamp_ms),
        *_rest(record),
    ]


def _rest(record: Any) -> Shown:
    """Return the last fields of a segment's metadata."""
    epochs = sorted((entry.leader_epoch, entry.offset) for entry in record.segment_leader_epochs)
    return [
        ("segmentLeaderEpochs", f"{{{', '.join(f'{epoch}={offset}' for epoch, offset in epochs)}}}"),
        ("segmentSizeInBytes", record.segment_size_in_bytes),
        ("customMetadata", _custom(record.custom_metadata)),
        ("state", _state(_SEGMENT_STATES, record.remote_log_segment_state)),
        ("txnIdxEmpty", "true" if record.txn_index_empty else "false"),
    ]


def _update(record: records.RemoteLogSegmentMetadataUpdateRecord) -> Shown:
    return [
        ("remoteLogSegmentId", _segment_id(record.remote_log_segment_id)),
        ("customMetadata", _custom(record.custom_metadata)),
        ("state", _state(_SEGMENT_STATES, record.remote_log_segment_state)),
        ("eventTimestampMs", record.event_timestamp_ms),
        ("brokerId", record.broker_id),
    ]


def _deletion(record: records.RemotePartitionDeleteMetadataRecord) -> Shown:
    return [
        ("topicPartition", _partition(record.topic_id_partition)),
        ("state", _state(_PARTITION_STATES, record.remote_partition_delete_state)),
        ("eventTimestampMs", record.event_timestamp_ms),
        ("brokerId", record.broker_id),
    ]


def _state(names: tuple[str, ...], number: int) -> str:
    if not 0 <= number < len(names):
        raise ValueError(f"state {number} is not known")
    return names[number]


def _custom(data: bytes | None) -> str:
    return "Optional.empty" if data is None else f"Optional[CustomMetadata{{{len(data)} bytes}}]"


def _partition(entry: records.TopicIdPartitionEntry) -> str:
    return f"{uuid_text(entry.id)}:{entry.name}-{entry.partition}"


def _segment_id(entry: records.RemoteLogSegmentIdEntry) -> str:
    return f"RemoteLogSegmentId{{topicIdPartition={_partition(entry.topic_id_partition)}, id={uuid_text(entry.id)}}}"


_KINDS: Final[dict[int, tuple[type[Message], Callable[[Any], Shown]]]] = {
    0: (records.RemoteLogSegmentMetadataRecord, _segment),
    1: (records.RemoteLogSegmentMetadataUpdateRecord, _update),
    2: (records.RemotePartitionDeleteMetadataRecord, _deletion),
    3: (records.RemoteLogSegmentMetadataSnapshotRecord, _snapshot),
}


class RemoteLogMetadataFormatter:
    """Formatter of these records for the console consumer."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        del properties

    def write(self, record: Record, out: BinaryIO) -> None:
        """Write one record as Kafka's formatter of this name does."""
        text = remote_log_metadata(record.value)
        out.write(f"partition: {record.partition}, offset: {record.offset}, value: {text}\n".encode())
