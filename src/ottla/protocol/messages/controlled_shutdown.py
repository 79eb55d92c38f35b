"""ControlledShutdown: API 7, versions 0-3 (flexible from 3).

Versions by release: 0 in 0.8.0, 1 in 0.9.0, 2 in 2.2, 3 in 2.4.
"""

from ottla.protocol.schema import Array, Int16, Int32, Int64, Request, Response, String, Struct, field, message


@message(api=7, versions="0-3", flexible="3+")
class ControlledShutdownRequest(Request["ControlledShutdownResponse"]):
    broker_id: int = field(Int32)
    broker_epoch: int = field(Int64, versions="2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    topic_name: str = field(String)
    partition_index: int = field(Int32)


@message(api=7, versions="0-3", flexible="3+")
class ControlledShutdownResponse(Response):
    error_code: int = field(Int16)
    remaining_partitions: list[RemainingPartition] = field(Array(RemainingPartition))
