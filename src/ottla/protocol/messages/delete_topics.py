"""DeleteTopics: API 20, versions 0-6 (flexible from 4).

Versions by release: 0 in 0.10.1, 1 in 0.11.0, 2 in 2.0, 3 in 2.1, 4 in 2.4, 5 in 2.7, 6 in 2.8.
"""

from ottla.protocol.schema import (
    MOST_OF_ADMINISTRATION,
    Array,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    Uuid,
    field,
    message,
)


class DeleteTopicState(Struct):
    name: str | None = field(String, versions="6+", nullable="6+", default=None)
    topic_id: bytes = field(Uuid, versions="6+")


@message(api=20, versions="0-6", flexible="4+")
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    ELEMENTS = MOST_OF_ADMINISTRATION
    topic_names: list[str] = field(Array(String), versions="0-5", ignorable=True)
    topics: list[DeleteTopicState] = field(Array(DeleteTopicState), versions="6+")
    timeout_ms: int = field(Int32)


class DeletableTopicResult(Struct):
    name: str | None = field(String, nullable="6+")
    topic_id: bytes = field(Uuid, versions="6+", ignorable=True)
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="5+", nullable="5+", default=None, ignorable=True)


@message(api=20, versions="0-6", flexible="4+")
class DeleteTopicsResponse(Response):
    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True)
    responses: list[DeletableTopicResult] = field(Array(DeletableTopicResult))
