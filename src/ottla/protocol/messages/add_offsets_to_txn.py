"""AddOffsetsToTxn: API 25, versions 0-4 (flexible from 3).

Versions by release: 0 in 0.11.0, 1 in 2.0, 2 in 2.7, 3 in 2.8, 4 in 3.8.
"""

from ottla.protocol.schema import Int16, Int32, Int64, Request, Response, String, field, message


@message(api=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest(Request["AddOffsetsToTxnResponse"]):
    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    group_id: str = field(String)


@message(api=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
