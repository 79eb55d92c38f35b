"""WriteTxnMarkers: API 27, versions 0-2 (flexible from 1).

Versions by release: 0 in 0.11.0, 1 in 2.8, 2 in 4.2.
"""

from ottla.protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    field,
    message,
)


class WritableTxnMarkerTopic(Struct):
    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class WritableTxnMarker(Struct):
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    transaction_result: bool = field(Bool)
    topics: list[WritableTxnMarkerTopic] = field(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(Int32)
    transaction_version: int = field(Int8, versions="2+", ignorable=True)


@message(api=27, versions="0-2", flexible="1+")
class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"]):
    markers: list[WritableTxnMarker] = field(Array(WritableTxnMarker))


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class WritableTxnMarkerTopicResult(Struct):
    name: str = field(String)
    partitions: list[WritableTxnMarkerPartitionResult] = field(Array(WritableTxnMarkerPartitionResult))


class WritableTxnMarkerResult(Struct):
    producer_id: int = field(Int64)
    topics: list[WritableTxnMarkerTopicResult] = field(Array(WritableTxnMarkerTopicResult))


@message(api=27, versions="0-2", flexible="1+")
class WriteTxnMarkersResponse(Response):
    markers: list[WritableTxnMarkerResult] = field(Array(WritableTxnMarkerResult))
