"""A record of __consumer_offsets: key type 16, ConsumerGroupRegularExpression."""

from ottla.protocol.schema import Array, Int64, Message, String, field, message


@message(api=16, versions="0")
class ConsumerGroupRegularExpressionKey(Message):
    group_id: str = field(String)
    regular_expression: str = field(String)


@message(api=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue(Message):
    topics: list[str] = field(Array(String))
    version: int = field(Int64)
    timestamp: int = field(Int64)
