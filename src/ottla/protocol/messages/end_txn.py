"""EndTxn: API 26, versions 0-5 (flexible from 3).

Versions by release: 0 in 0.11.0, 1 in 2.0, 2 in 2.7, 3 in 2.8, 4 in 3.8, 5 in 4.0.
"""

from ottla.protocol.schema import Bool, Int16, Int32, Int64, Request, Response, String, field, message


@message(api=26, versions="0-5", flexible="3+")
class EndTxnRequest(Request["EndTxnResponse"]):
    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    committed: bool = field(Bool)


@message(api=26, versions="0-5", flexible="3+")
class EndTxnResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    producer_id: int = field(Int64, versions="5+", default=-1, ignorable=True)
    producer_epoch: int = field(Int16, versions="5+", default=-1, ignorable=True)
