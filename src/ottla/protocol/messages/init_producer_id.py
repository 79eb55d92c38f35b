"""InitProducerId: API 22, versions 0-6 (flexible from 2).

Versions by release: 0 in 0.11.0, 1 in 2.0, 2 in 2.4, 3 in 2.5, 4 in 2.7, 5 in 3.8, 6 in 4.1.
"""

from ottla.protocol.schema import Bool, Int16, Int32, Int64, Request, Response, String, field, message


@message(api=22, versions="0-6", flexible="2+")
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    transactional_id: str | None = field(String, nullable="0+")
    transaction_timeout_ms: int = field(Int32)
    producer_id: int = field(Int64, versions="3+", default=-1)
    producer_epoch: int = field(Int16, versions="3+", default=-1)
    enable2_pc: bool = field(Bool, versions="6+")
    keep_prepared_txn: bool = field(Bool, versions="6+")


@message(api=22, versions="0-6", flexible="2+")
class InitProducerIdResponse(Response):
    throttle_time_ms: int = field(Int32, ignorable=True)
    error_code: int = field(Int16)
    producer_id: int = field(Int64, default=-1)
    producer_epoch: int = field(Int16)
    ongoing_txn_producer_id: int = field(Int64, versions="6+", default=-1)
    ongoing_txn_producer_epoch: int = field(Int16, versions="6+", default=-1)
