"""AllocateProducerIds: API 67, versions 0 (flexible from 0).

Versions by release: 0 in 3.0.
"""

from ottla.protocol.schema import Int16, Int32, Int64, Request, Response, field, message


@message(api=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest(Request["AllocateProducerIdsResponse"]):
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, default=-1)


@message(api=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    producer_id_start: int = field(Int64)
    producer_id_len: int = field(Int32)
