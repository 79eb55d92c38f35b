"""DeleteShareGroupOffsets: API 92, versions 0 (flexible from 0).

Versions by release: 0 in 4.1.
"""

from ottla.protocol.schema import Array, Int16, Int32, Request, Response, String, Struct, Uuid, field, message


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = field(String)


@message(api=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsRequest(Request["DeleteShareGroupOffsetsResponse"]):
    group_id: str = field(String)
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(Array(DeleteShareGroupOffsetsRequestTopic))


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = field(String)
    topic_id: bytes = field(Uuid)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)


@message(api=92, versions="0", flexible="0+")
class DeleteShareGroupOffsetsResponse(Response):
    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(Array(DeleteShareGroupOffsetsResponseTopic))
