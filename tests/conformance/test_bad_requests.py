"""Bad input that no test of a single API holds: what Apache Kafka 4.4.0 was seen to answer to requests thrown by chance."""

import time
import uuid

import pytest

from ottla.protocol.errors import (
    INVALID_CONFIG,
    INVALID_REQUEST,
    NONE,
    OFFSET_METADATA_TOO_LARGE,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_VERSION,
)
from ottla.protocol.messages.alter_configs import AlterableConfig as ReplacedConfig
from ottla.protocol.messages.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from ottla.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.protocol.schema import ZERO_UUID

from .conftest import Topic, Wire

NOWHERE = b"\x01" * 16
TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def absent() -> str:
    return f"absent-{uuid.uuid4().hex[:8]}"


def id_of(broker: Wire, topic: Topic) -> bytes:
    answer = broker.send(MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)]), 12)
    topic_id: bytes = answer.topics[0].topic_id
    return topic_id


def await_coordinators(broker: Wire) -> None:
    """The topic of the coordinators is there."""
    deadline = time.monotonic() + 30
    while broker.send(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0].error_code != NONE:
        assert time.monotonic() < deadline


def asked(name: str, topic_id: bytes, *partitions: int | str) -> OffsetCommitRequestTopic:
    """Commits of partitions; a text is metadata for partition 0."""
    parts = [
        OffsetCommitRequestPartition(
            partition_index=0 if isinstance(partition, str) else partition,
            committed_offset=1,
            committed_metadata=partition if isinstance(partition, str) else "",
        )
        for partition in partitions
    ]
    return OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=parts)


@pytest.mark.parametrize("number", [9, 10])
def test_offset_commit_returns_refused_partitions_first(broker: Wire, topic: Topic, number: int) -> None:
    await_coordinators(broker)
    known, unknown = (topic.name, id_of(broker, topic)), (absent(), NOWHERE)
    code = UNKNOWN_TOPIC_ID if number >= 10 else UNKNOWN_TOPIC_OR_PARTITION

    def committed(*topics: OffsetCommitRequestTopic) -> list[tuple[str | bytes, list[tuple[int, int]]]]:
        answer = broker.send(OffsetCommitRequest(group_id=f"g-{topic.name}", topics=list(topics)), number)
        return [
            (
                row.topic_id if number >= 10 else row.name,
                [(part.partition_index, part.error_code) for part in row.partitions],
            )
            for row in answer.topics
        ]

    here, there = (known[1], unknown[1]) if number >= 10 else (known[0], unknown[0])
    assert committed(asked(*known, 0), asked(*unknown, 1), asked(*known, 0)) == [
        (there, [(1, code)]),
        (here, [(0, NONE), (0, NONE)]),
    ]
    assert committed(asked(*known, "m" * 5000, 7)) == [
        (here, [(7, UNKNOWN_TOPIC_OR_PARTITION), (0, OFFSET_METADATA_TOO_LARGE)])
    ]
    assert committed(asked(*known, 0), asked(*known, 0)) == [(here, [(0, NONE)]), (here, [(0, NONE)])]
    assert committed(asked(*known), asked(*unknown)) == [(there, [])]


def test_offset_fetch_returns_unknown_topics_last(broker: Wire, topic: Topic) -> None:
    await_coordinators(broker)
    ids = [NOWHERE, id_of(broker, topic)]
    topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0]) for topic_id in ids]
    group = OffsetFetchRequestGroup(group_id=f"g-{topic.name}", topics=topics)
    answer = broker.send(OffsetFetchRequest(groups=[group]), 10)
    codes = [(row.topic_id, row.partitions[0].error_code) for row in answer.groups[0].topics]
    assert codes == [(ids[1], NONE), (ids[0], UNKNOWN_TOPIC_ID)]


def test_metadata_of_ids_and_names(broker: Wire, topic: Topic) -> None:
    known = id_of(broker, topic)

    def rows(*topics: MetadataRequestTopic) -> list[tuple[int, str | None]]:
        request = MetadataRequest(topics=list(topics), allow_auto_topic_creation=False)
        return [(row.error_code, row.name) for row in broker.send(request, 13).topics]

    twice = MetadataRequestTopic(topic_id=known, name=absent())
    assert rows(twice, twice, MetadataRequestTopic(name=topic.name)) == [(NONE, topic.name)]
    assert rows(MetadataRequestTopic(name=topic.name), MetadataRequestTopic(name=topic.name)) == [(NONE, topic.name)]
    neither = MetadataRequestTopic(name=None, topic_id=ZERO_UUID)
    assert rows(neither, MetadataRequestTopic(name=topic.name)) == [
        (UNKNOWN_SERVER_ERROR, ""),
        (UNKNOWN_SERVER_ERROR, topic.name),
    ]


def test_create_topics_looks_at_configs_before_assignments(broker: Wire) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    configs = [CreatableTopicConfig(name="retention.ms", value=None)]
    new = CreatableTopic(
        name=absent(), num_partitions=3, replication_factor=1, assignments=assignments, configs=configs
    )
    answer = broker.send(CreateTopicsRequest(topics=[new], validate_only=True), 7)
    why = "Null value not supported for topic configs: retention.ms"
    assert (answer.topics[0].error_code, answer.topics[0].error_message) == (INVALID_CONFIG, why)


def test_delete_topics_named_twice_over(broker: Wire) -> None:
    both = DeleteTopicState(name=absent(), topic_id=NOWHERE)
    answer = broker.send(DeleteTopicsRequest(topics=[both, both], timeout_ms=5000), 6)
    why = "You may not specify both topic name and topic id."
    assert [(result.error_code, result.error_message) for result in answer.responses] == [(INVALID_REQUEST, why)] * 2


def test_describe_topic_partitions_with_a_cursor_elsewhere(broker: Wire) -> None:
    names = [absent(), "..", absent()]
    cursor = Cursor(topic_name="", partition_index=0)
    topics = [TopicRequest(name=name) for name in names]
    answer = broker.send(DescribeTopicPartitionsRequest(topics=topics, cursor=cursor), 0)
    assert [(row.error_code, row.name) for row in answer.topics] == [(INVALID_REQUEST, name) for name in names]


def test_elect_leaders_of_an_unknown_kind(broker: Wire) -> None:
    answer = broker.send(ElectLeadersRequest(election_type=2, topic_partitions=None, timeout_ms=5000), 2)
    assert (answer.error_code, answer.replica_election_results) == (INVALID_REQUEST, [])


def test_no_reassignments(broker: Wire) -> None:
    request = AlterPartitionReassignmentsRequest(timeout_ms=5000, allow_replication_factor_change=False, topics=[])
    answer = broker.send(request, 1)
    outcome = (answer.error_code, answer.error_message, answer.allow_replication_factor_change, answer.responses)
    assert outcome == (NONE, "", True, [])


def test_quotas_of_an_unknown_user_are_empty(broker: Wire) -> None:
    component = ComponentData(entity_type="user", match_type=0, match=absent())
    answer = broker.send(DescribeClientQuotasRequest(components=[component], strict=False), 1)
    assert (answer.error_code, answer.error_message, answer.entries) == (NONE, "", [])


def test_describe_configs_with_an_unknown_type(broker: Wire, topic: Topic) -> None:
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=topic.name, configuration_keys=None)
        for kind in (TOPIC, 64)
    ]
    answer = broker.send(DescribeConfigsRequest(resources=resources), 4)
    assert [(result.error_code, result.configs) for result in answer.results] == [(INVALID_REQUEST, [])] * 2


@pytest.mark.parametrize(
    ("kind", "name", "config", "operation", "code", "message"),
    [
        (TOPIC, "absent", "", APPEND, INVALID_CONFIG, "Can't APPEND to key  because its type is not LIST."),
        (TOPIC, "absent", "retention.ms", 4, UNKNOWN_SERVER_ERROR, None),
        (TOPIC, "absent", "retention.ms", SET, UNKNOWN_TOPIC_OR_PARTITION, "The topic 'absent' does not exist."),
        (
            GROUP,
            "",
            "cleanup.policy",
            SUBTRACT,
            INVALID_CONFIG,
            "Can't SUBTRACT to key cleanup.policy because its type is not LIST.",
        ),
        (
            BROKER,
            "1",
            "num.io.threads",
            APPEND,
            INVALID_CONFIG,
            "Config value append is not allowed for config key: num.io.threads",
        ),
        (BROKER, "1", "nonsense", SUBTRACT, INVALID_CONFIG, "Unknown config name: nonsense"),
        (BROKER, "1", "num.io.threads", 4, INVALID_REQUEST, "Unknown operations type 4"),
    ],
)
def test_invalid_edits_of_configs_are_refused(
    broker: Wire, kind: int, name: str, config: str, operation: int, code: int, message: str | None
) -> None:
    edit = AlterableConfig(name=config, config_operation=operation, value="1")
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[edit])
    answer = broker.send(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)
    assert [(result.error_code, result.error_message) for result in answer.responses] == [(code, message)]


def test_null_configs(broker: Wire, topic: Topic) -> None:
    configs = [ReplacedConfig(name=name, value=None) for name in ("retention.ms", "segment.bytes")]
    resource = ReplacedResource(resource_type=TOPIC, resource_name=topic.name, configs=configs)
    answer = broker.send(AlterConfigsRequest(resources=[resource], validate_only=True), 2)
    assert answer.responses[0].error_message == "Null value not supported for : retention.ms, segment.bytes"


def test_config_resources_come_by_kind(broker: Wire, topic: Topic) -> None:
    kinds = [resource.resource_type for resource in broker.send(ListConfigResourcesRequest(), 1).config_resources]
    assert TOPIC in kinds
    assert kinds == sorted(kinds, reverse=True)


def test_list_offsets_of_unknown_partitions_timestamps_and_isolation_levels(broker: Wire, topic: Topic) -> None:
    def codes(isolation_level: int, *partitions: tuple[int, int]) -> list[list[int]]:
        rows = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in partitions]
        topics = [ListOffsetsTopic(name=topic.name, partitions=rows)]
        answer = broker.send(ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics), 10)
        return [sorted(part.error_code for part in row.partitions) for row in answer.topics]

    assert codes(0, (7, -8), (8, -1)) == [[UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION]]
    assert codes(7, (0, -1)) == [[UNKNOWN_SERVER_ERROR]]
    assert codes(0) == []
