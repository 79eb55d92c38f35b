"""AddPartitionsToTxn: API 24, versions 0-5 (flexible from 3).

Versions by release: 0 in 0.11.0, 1 in 2.0, 2 in 2.7, 3 in 2.8, 4 in 3.5, 5 in 3.8.
"""

from ottla.protocol.schema import (
    MOST_OF_ADMINISTRATION,
    Array,
    Bool,
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


class AddPartitionsToTxnTopic(Struct):
    name: str = field(String, versions="0-3")
    partitions: list[int] = field(Array(Int32), versions="0-3")


class AddPartitionsToTxnRequestAddPartitionsToTxnTopic(Struct):
    name: str = field(String, versions="4+")
    partitions: list[int] = field(Array(Int32), versions="4+")


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field(String, versions="4+")
    producer_id: int = field(Int64, versions="4+")
    producer_epoch: int = field(Int16, versions="4+")
    verify_only: bool = field(Bool, versions="4+")
    topics: list[AddPartitionsToTxnRequestAddPartitionsToTxnTopic] = field(
        Array(AddPartitionsToTxnRequestAddPartitionsToTxnTopic), versions="4+"
    )


@message(api=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest(Request["AddPartitionsToTxnResponse"]):
    ELEMENTS = MOST_OF_ADMINISTRATION
    v3_and_below_transactional_id: str = field(String, versions="0-3")
    v3_and_below_producer_id: int = field(Int64, versions="0-3")
    v3_and_below_producer_epoch: int = field(Int16, versions="0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(Array(AddPartitionsToTxnTopic), versions="0-3")
    transactions: list[AddPartitionsToTxnTransaction] = field(Array(AddPartitionsToTxnTransaction), versions="4+")


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(Int32, versions="0-3")
    partition_error_code: int = field(Int16, versions="0-3")


class AddPartitionsToTxnTopicResult(Struct):
    name: str = field(String, versions="0-3")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        Array(AddPartitionsToTxnPartitionResult), versions="0-3"
    )


class AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(Int32, versions="4+")
    partition_error_code: int = field(Int16, versions="4+")


class AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult(Struct):
    name: str = field(String, versions="4+")
    results_by_partition: list[AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult] = field(
        Array(AddPartitionsToTxnResponseAddPartitionsToTxnPartitionResult), versions="4+"
    )


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = field(String, versions="4+")
    topic_results: list[AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult] = field(
        Array(AddPartitionsToTxnResponseAddPartitionsToTxnTopicResult), versions="4+"
    )


@message(api=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse(Response):
    throttle_time_ms: int = field(Int32)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        Array(AddPartitionsToTxnTopicResult), versions="0-3"
    )
    error_code: int = field(Int16, versions="4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(Array(AddPartitionsToTxnResult), versions="4+")
