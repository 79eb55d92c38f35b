"""A record of __consumer_offsets: key type 17, StreamsGroupMetadata."""

from ottla.protocol.schema import Array, Int32, Int64, Message, String, Struct, field, message


@message(api=17, versions="0")
class StreamsGroupMetadataKey(Message):
    group_id: str = field(String)


class LastAssignmentConfig(Struct):
    key: str = field(String)
    value: str = field(String)


@message(api=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue(Message):
    epoch: int = field(Int32)
    metadata_hash: int = field(Int64)
    validated_topology_epoch: int = field(Int32, tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(
        Array(LastAssignmentConfig), nullable="0+", tag=1
    )
    stored_description_topology_epoch: int = field(Int32, tag=2, default=-1)
    failed_description_topology_epoch: int = field(Int32, tag=3, default=-1)
