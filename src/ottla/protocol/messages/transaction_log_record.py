"""A record of __transaction_state: key type 0, TransactionLog."""

from ottla.protocol.schema import Array, Int8, Int16, Int32, Int64, Message, String, Struct, field, message


@message(api=0, versions="0")
class TransactionLogKey(Message):
    transactional_id: str = field(String)


class PartitionsSchema(Struct):
    topic: str = field(String)
    partition_ids: list[int] = field(Array(Int32))


@message(api=0, versions="0-1", flexible="1+")
class TransactionLogValue(Message):
    producer_id: int = field(Int64)
    previous_producer_id: int = field(Int64, versions="1+", tag=0, default=-1)
    next_producer_id: int = field(Int64, versions="1+", tag=1, default=-1)
    producer_epoch: int = field(Int16)
    next_producer_epoch: int = field(Int16, versions="1+", tag=3, default=-1)
    transaction_timeout_ms: int = field(Int32)
    transaction_status: int = field(Int8)
    transaction_partitions: list[PartitionsSchema] | None = field(Array(PartitionsSchema), nullable="0+")
    transaction_last_update_timestamp_ms: int = field(Int64)
    transaction_start_timestamp_ms: int = field(Int64)
    client_transaction_version: int = field(Int16, versions="1+", tag=2)
