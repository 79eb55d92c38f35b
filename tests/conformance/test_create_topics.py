"""CreateTopics and DeleteTopics, over a socket."""

import uuid
from typing import Any

import pytest

from ottla.protocol.errors import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    POLICY_VIOLATION,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

from .conftest import Topic, Wire, versions

API = CreateTopicsRequest


def new_name() -> str:
    return f"c-{uuid.uuid4().hex[:12]}"


def create(broker: Wire, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000)
    if version >= 1:
        request.validate_only = validate_only
    return broker.send(request, version).topics


def plain(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    overrides = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=overrides)


def assigned(name: str, *assignments: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    topic = plain(name, partitions, factor)
    topic.assignments = [CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in assignments]
    return topic


@pytest.mark.parametrize("version", versions(API))
def test_every_version_makes_a_topic(broker: Wire, version: int) -> None:
    name = new_name()
    (result,) = create(broker, plain(name, 2, retention_ms="1000"), version=version)
    assert (result.error_code, result.name) == (NONE, name)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (2, 1)
        configs = {config.name: config for config in result.configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
        assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("1073741824", 5)
    if version >= 7:
        assert len(set(result.topic_id)) > 1
    (again,) = create(broker, plain(name), version=version)
    assert again.error_code == TOPIC_ALREADY_EXISTS
    if version >= 1:
        assert again.error_message == f"Topic '{name}' already exists."
    if version >= 5:
        assert (again.num_partitions, again.replication_factor, again.configs) == (-1, -1, [])


def test_validate_only_makes_nothing(broker: Wire) -> None:
    name = new_name()
    (result,) = create(broker, plain(name), validate_only=True)
    assert (result.error_code, result.num_partitions) == (NONE, 1)
    assert result.topic_id != bytes(16)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    assert broker.send(request, 12).topics[0].error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_defaults_of_the_broker(broker: Wire) -> None:
    (result,) = create(broker, plain(new_name(), -1, -1))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (NONE, 1, 1)


NODE = 1
REFUSALS = [
    (plain("", 1), INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
    (plain(".", 1), INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
    (plain("..", 1), INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
    (
        plain("a" * 250, 1),
        INVALID_TOPIC_EXCEPTION,
        f"Topic name is invalid: the length of '{'a' * 250}' is longer than the max allowed length 249",
    ),
    (
        plain("a b", 1),
        INVALID_TOPIC_EXCEPTION,
        "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    ),
    (plain("p0", 0), INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
    (plain("p2", -2), INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
    (
        plain("r0", 1, 0),
        INVALID_REPLICATION_FACTOR,
        "Replication factor must be larger than 0, or -1 to use the default value.",
    ),
    (
        plain("r3", 1, 3),
        INVALID_REPLICATION_FACTOR,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only "
        "1 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    (
        plain("c1", 1, 1, no_such_config="1"),
        INVALID_CONFIG,
        "Unknown topic config name: no.such.config",
    ),
    (
        plain("c2", 1, 1, retention_ms="soon"),
        INVALID_CONFIG,
        "Invalid value soon for configuration retention.ms: Not a number of type LONG",
    ),
    (
        plain("c3", 1, 1, retention_ms=None),
        INVALID_CONFIG,
        "Null value not supported for topic configs: retention.ms",
    ),
    (
        assigned("m1", (0, [NODE]), partitions=1),
        INVALID_REQUEST,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    (
        assigned("m2", (0, [NODE]), factor=1),
        INVALID_REQUEST,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    (
        assigned("m3", (0, [NODE, 77])),
        INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 77, but no such broker is registered.",
    ),
    (
        assigned("m4", (0, [NODE, NODE])),
        INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    (
        assigned("m5", (0, [])),
        INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes an empty replica list.",
    ),
    (
        assigned("m6", (1, [NODE])),
        INVALID_REPLICA_ASSIGNMENT,
        "partitions should be a consecutive 0-based integer sequence",
    ),
    (plain("__cluster_metadata", 1), INVALID_REQUEST, "Creation of internal topic __cluster_metadata is prohibited."),
]


@pytest.mark.parametrize(("creatable", "code", "message"), REFUSALS, ids=lambda value: getattr(value, "name", None))
def test_refusals(broker: Wire, creatable: CreatableTopic, code: int, message: str) -> None:
    (result,) = create(broker, creatable)
    assert (result.error_code, result.error_message) == (code, message)


def test_an_internal_topic_may_be_made_by_hand(broker: Wire) -> None:
    # Only asked whether: with one partition instead of 50 the coordinators of an Apache Kafka would not find theirs.
    (result,) = create(broker, plain("__transaction_state", 1), validate_only=True)
    assert result.error_code in (NONE, TOPIC_ALREADY_EXISTS)


def test_manual_assignments(broker: Wire) -> None:
    (result,) = create(broker, assigned(new_name(), (0, [NODE]), (1, [NODE])))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (NONE, 2, 1)


def test_names_that_collide(broker: Wire) -> None:
    name = new_name()
    assert create(broker, plain(f"{name}.x"))[0].error_code == NONE
    (result,) = create(broker, plain(f"{name}_x"))
    assert result.error_code == INVALID_TOPIC_EXCEPTION
    assert result.error_message == f"Topic '{name}_x' collides with existing topic: {name}.x"


def test_a_name_twice_in_one_request(broker: Wire) -> None:
    name, other = new_name(), new_name()
    results = {result.name: result for result in create(broker, plain(name), plain(name), plain(other))}
    assert (results[name].error_code, results[name].error_message) == (INVALID_REQUEST, "Duplicate topic name.")
    assert results[other].error_code == NONE


@pytest.mark.api(request=DeleteTopicsRequest)
@pytest.mark.parametrize("version", versions(DeleteTopicsRequest))
def test_deleting(broker: Wire, topic: Topic, version: int) -> None:
    def delete(name: str) -> Any:
        if version >= 6:
            return broker.send(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000), version)
        return broker.send(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), version)

    (result,) = delete(topic.name).responses
    assert (result.error_code, result.name) == (NONE, topic.name)
    if version >= 6:
        assert result.topic_id == topic.id
    (result,) = delete(topic.name).responses
    assert result.error_code == UNKNOWN_TOPIC_OR_PARTITION
    if version >= 5:
        assert result.error_message == "This server does not host this topic-partition."


def test_deleting_by_id(broker: Wire, topic: Topic) -> None:
    unknown = uuid.uuid4().bytes
    states = [DeleteTopicState(topic_id=topic.id), DeleteTopicState(topic_id=unknown)]
    answer = broker.send(DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)
    results = {result.topic_id: result for result in answer.responses}
    assert (results[topic.id].error_code, results[topic.id].name) == (NONE, topic.name)
    assert (results[unknown].error_code, results[unknown].name) == (UNKNOWN_TOPIC_ID, None)
    assert results[unknown].error_message == "This server does not host this topic ID."


def test_contradictory_deletions_are_refused(broker: Wire, topic: Topic) -> None:
    def delete(*states: DeleteTopicState) -> list[tuple[int, str | None]]:
        answer = broker.send(DeleteTopicsRequest(topics=list(states), timeout_ms=10_000), 6)
        return [(result.error_code, result.error_message) for result in answer.responses]

    assert delete(DeleteTopicState()) == [(INVALID_REQUEST, "Neither topic name nor id were specified.")]
    assert delete(DeleteTopicState(name=topic.name, topic_id=topic.id)) == [
        (INVALID_REQUEST, "You may not specify both topic name and topic id.")
    ]
    twice = delete(DeleteTopicState(name=topic.name), DeleteTopicState(name=topic.name))
    assert twice == [(INVALID_REQUEST, "Duplicate topic name.")]
    twice = delete(DeleteTopicState(topic_id=topic.id), DeleteTopicState(topic_id=topic.id))
    assert twice == [(INVALID_REQUEST, "Duplicate topic id.")]
    mixed = delete(DeleteTopicState(topic_id=topic.id), DeleteTopicState(name=topic.name))
    assert mixed == [(INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")]
    both = DeleteTopicState(name=topic.name, topic_id=bytes([1]) * 16)  # its name counts for nothing else
    outcomes = delete(DeleteTopicState(topic_id=topic.id), both)
    assert sorted(outcomes, key=str) == [
        (NONE, None),
        (INVALID_REQUEST, "You may not specify both topic name and topic id."),
    ]


def test_committed_offsets_of_a_deleted_topic_are_forgotten(broker: Wire, topic: Topic) -> None:
    group = new_name()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
    commit = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic.name, partitions=[partition])]
    )
    fetch = OffsetFetchRequest(group_id=group, topics=[OffsetFetchRequestTopic(name=topic.name, partition_indexes=[0])])
    # The group's partition of __consumer_offsets may have to be made first.
    for _ in range(1000):
        broker.send(FindCoordinatorRequest(key=group), 0)
        answer = broker.send(commit, 7).topics[0].partitions[0]
        if answer.error_code == NONE:
            break
    assert broker.send(fetch, 5).topics[0].partitions[0].committed_offset == 7
    broker.send(DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=10_000), 5)
    for _ in range(1000):
        offset = broker.send(fetch, 5).topics[0].partitions[0].committed_offset
        if offset == -1:
            break
    assert offset == -1


MOST: int = 2**31 - 1
TOO_MANY = "Excessively large number of partitions per request."
TOO_LARGE = "Unable to perform excessively large batch operation."


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("counts", [(MOST,), (10_001,), (MOST, MOST), (5_000, 5_000, 1), (1, MOST)])
def test_more_partitions_than_a_request_may_create_refuse_the_whole_request(
    broker: Wire, counts: tuple[int, ...], validate_only: bool
) -> None:
    results = create(broker, *[plain(new_name(), count) for count in counts], validate_only=validate_only)
    assert [(row.error_code, row.error_message) for row in results] == [(POLICY_VIOLATION, TOO_MANY)] * len(counts)


def test_topics_with_errors_of_their_own_are_refused_with_too_many_partitions(broker: Wire) -> None:
    name = new_name()
    results = create(broker, plain(name), plain(name), plain("a b"), plain(new_name(), 10_001))
    assert [(row.error_code, row.error_message) for row in results] == [(POLICY_VIOLATION, TOO_MANY)] * 4


def test_partitions_of_topics_that_are_refused_anyway_do_not_count(broker: Wire) -> None:
    name = new_name()
    results = create(broker, plain(name, MOST), plain(name, MOST), plain(new_name()), validate_only=True)
    assert sorted(row.error_code for row in results) == [NONE, INVALID_REQUEST]


@pytest.mark.parametrize(
    ("topics", "configs", "fits"), [(4_999, 0, True), (5_001, 0, False), (3_333, 1, True), (3_334, 1, False)]
)
def test_topics_partitions_and_configs_of_a_request_are_10_000_at_most(
    broker: Wire, topics: int, configs: int, fits: bool
) -> None:
    named = [plain(new_name(), 1, retention_ms="1") if configs else plain(new_name(), 1) for _ in range(topics)]
    results = create(broker, *named, validate_only=True)
    expected = (NONE, None) if fits else (POLICY_VIOLATION, TOO_LARGE)
    assert {(row.error_code, row.error_message) for row in results} == {expected}
    assert len(results) == topics


def test_one_topic_may_have_9_999_partitions(broker: Wire) -> None:
    results = [create(broker, plain(new_name(), count), validate_only=True)[0] for count in (9_999, 10_000)]
    assert [(row.error_code, row.error_message) for row in results] == [(NONE, None), (POLICY_VIOLATION, TOO_LARGE)]
