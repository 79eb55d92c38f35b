"""DescribeTransactions: API 65, versions 0 (flexible from 0).

Versions by release: 0 in 3.0.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, field, message


@message(api=65, versions="0", flexible="0+")
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    transactional_ids: list[str] = field(Array(String))


class TopicData(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class TransactionState(Struct):
    error_code: int = field(Int16)
    transactional_id: str = field(String)
    transaction_state: str = field(String)
    transaction_timeout_ms: int = field(Int32)
    transaction_start_time_ms: int = field(Int64)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    topics: list[TopicData] = field(Array(TopicData))


@message(api=65, versions="0", flexible="0+")
class DescribeTransactionsResponse(Response):
    throttle_time_ms: int = field(Int32)
    transaction_states: list[TransactionState] = field(Array(TransactionState))
