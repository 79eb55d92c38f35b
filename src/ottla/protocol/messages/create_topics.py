"""CreateTopics: API 19, versions 0-7 (flexible from 5).

Versions by release: 0 in 0.10.1, 1 in 0.10.2, 2 in 0.11.0, 3 in 2.0, 4-5 in 2.4, 6 in 2.7, 7 in 2.8.
"""

from ottla.protocol.schema import (
    MOST_OF_CHANGES,
    Array,
    Bool,
    Int8,
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


class CreatableReplicaAssignment(Struct):
    partition_index: int = field(Int32)
    broker_ids: list[int] = field(Array(Int32))


class CreatableTopicConfig(Struct):
    name: str = field(String)
    value: str | None = field(String, nullable="0+")


class CreatableTopic(Struct):
    name: str = field(String)
    num_partitions: int = field(Int32)
    replication_factor: int = field(Int16)
    assignments: list[CreatableReplicaAssignment] = field(Array(CreatableReplicaAssignment))
    configs: list[CreatableTopicConfig] = field(Array(CreatableTopicConfig))


@message(api=19, versions="0-7", flexible="5+")
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    ELEMENTS = MOST_OF_CHANGES
    topics: list[CreatableTopic] = field(Array(CreatableTopic))
    timeout_ms: int = field(Int32, default=60000)
    validate_only: bool = field(Bool, versions="1+")


class CreatableTopicConfigs(Struct):
    name: str = field(String, versions="5+")
    value: str | None = field(String, versions="5+", nullable="5+")
    read_only: bool = field(Bool, versions="5+")
    config_source: int = field(Int8, versions="5+", default=-1, ignorable=True)
    is_sensitive: bool = field(Bool, versions="5+")


class CreatableTopicResult(Struct):
    name: str = field(String)
    topic_id: bytes = field(Uuid, versions="7+", ignorable=True)
    error_code: int = field(Int16)
    error_message: str | None = field(String, versions="1+", nullable="1+", ignorable=True)
    topic_config_error_code: int = field(Int16, versions="5+", tag=0, ignorable=True)
    num_partitions: int = field(Int32, versions="5+", default=-1, ignorable=True)
    replication_factor: int = field(Int16, versions="5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        Array(CreatableTopicConfigs), versions="5+", nullable="5+", ignorable=True
    )


@message(api=19, versions="0-7", flexible="5+")
class CreateTopicsResponse(Response):
    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True)
    topics: list[CreatableTopicResult] = field(Array(CreatableTopicResult))
