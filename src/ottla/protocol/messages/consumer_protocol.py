"""Subscriptions and assignments of a classic group's consumers in JoinGroup and SyncGroup (protocol type "consumer")."""

from ottla.protocol.schema import Array, Bytes, Int32, Message, String, Struct, field, message


class TopicPartition(Struct):
    topic: str = field(String, versions="1+")
    partitions: list[int] = field(Array(Int32), versions="1+")


@message(versions="0-3")
class ConsumerProtocolSubscription(Message):
    topics: list[str] = field(Array(String))
    user_data: bytes | None = field(Bytes, nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(Array(TopicPartition), versions="1+", ignorable=True)
    generation_id: int = field(Int32, versions="2+", default=-1, ignorable=True)
    rack_id: str | None = field(String, versions="3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


@message(versions="0-3")
class ConsumerProtocolAssignment(Message):
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = field(
        Array(ConsumerProtocolAssignmentTopicPartition)
    )
    user_data: bytes | None = field(Bytes, nullable="0+", default=None)
