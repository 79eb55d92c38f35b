"""The headers of requests and responses.

Version 0 of the request header belongs to ControlledShutdown 0 alone; version 2 (response: 1) goes with flexible bodies.
The client id keeps its old encoding in every version, so that a broker can read it from a request it does not know.
"""

from ottla.protocol.schema import Int16, Int32, Message, String, field, message


@message(versions="0-2", flexible="2+")
class RequestHeader(Message):
    request_api_key: int = field(Int16)
    request_api_version: int = field(Int16)
    correlation_id: int = field(Int32)
    client_id: str | None = field(String, versions="1+", nullable="1+", ignorable=True, never_flexible=True)


@message(versions="0-1", flexible="1+")
class ResponseHeader(Message):
    correlation_id: int = field(Int32)
