"""A record of __consumer_offsets: key type 23, StreamsGroupTopology."""

from ottla.protocol.schema import Array, Int16, Int32, Message, String, Struct, field, message


@message(api=23, versions="0")
class StreamsGroupTopologyKey(Message):
    group_id: str = field(String)


class TopicConfig(Struct):
    key: str = field(String)
    value: str = field(String)


class TopicInfo(Struct):
    name: str = field(String)
    partitions: int = field(Int32)
    replication_factor: int = field(Int16)
    topic_configs: list[TopicConfig] = field(Array(TopicConfig))


class CopartitionGroup(Struct):
    source_topics: list[int] = field(Array(Int16))
    source_topic_regex: list[int] = field(Array(Int16))
    repartition_source_topics: list[int] = field(Array(Int16))


class Subtopology(Struct):
    subtopology_id: str = field(String)
    source_topics: list[str] = field(Array(String))
    source_topic_regex: list[str] = field(Array(String))
    state_changelog_topics: list[TopicInfo] = field(Array(TopicInfo))
    repartition_sink_topics: list[str] = field(Array(String))
    repartition_source_topics: list[TopicInfo] = field(Array(TopicInfo))
    copartition_groups: list[CopartitionGroup] = field(Array(CopartitionGroup))


@message(api=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue(Message):
    epoch: int = field(Int32)
    subtopologies: list[Subtopology] = field(Array(Subtopology))
