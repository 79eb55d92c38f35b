"""DescribeConfigs, over a socket."""

from typing import Any

import pytest

from ottla.protocol.errors import INVALID_REQUEST, INVALID_TOPIC_EXCEPTION, NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

from .conftest import Topic, TopicFactory, Wire, versions
from .described_configs import everything, recorded

API = DescribeConfigsRequest
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = range(1, 10)
# What Apache Kafka 4.4 lists, by type.
OF_A_TOPIC = {
    BOOLEAN: """
        errors.deadletterqueue.group.enable preallocate remote.log.copy.disable remote.log.delete.on.disable
        remote.storage.enable unclean.leader.election.enable
    """,
    STRING: """
        compression.type message.timestamp.type
    """,
    INT: """
        compression.gzip.level compression.lz4.level compression.zstd.level index.interval.bytes
        max.decompressed.message.bytes max.message.bytes min.insync.replicas segment.bytes segment.index.bytes
    """,
    LONG: """
        delete.retention.ms file.delete.delay.ms flush.messages flush.ms local.retention.bytes local.retention.ms
        max.compaction.lag.ms message.timestamp.after.max.ms message.timestamp.before.max.ms
        min.compaction.lag.ms remote.copy.lag.bytes remote.copy.lag.ms retention.bytes retention.ms
        segment.jitter.ms segment.ms
    """,
    DOUBLE: """
        min.cleanable.dirty.ratio
    """,
    LIST: """
        cleanup.policy follower.replication.throttled.replicas leader.replication.throttled.replicas
    """,
}
OF_A_GROUP = {
    BOOLEAN: """
        errors.deadletterqueue.copy.record.enable share.renew.acknowledge.enable
    """,
    STRING: """
        errors.deadletterqueue.topic.name share.auto.offset.reset share.isolation.level streams.assignor.name
    """,
    INT: """
        consumer.assignment.interval.ms consumer.heartbeat.interval.ms consumer.session.timeout.ms
        share.assignment.interval.ms share.delivery.count.limit share.heartbeat.interval.ms
        share.partition.max.record.locks share.record.lock.duration.ms share.session.timeout.ms
        streams.assignment.interval.ms streams.heartbeat.interval.ms streams.initial.rebalance.delay.ms
        streams.num.standby.replicas streams.session.timeout.ms
    """,
    LIST: """
        streams.rack.aware.assignment.tags
    """,
}
OF_A_SUBSCRIPTION = {
    INT: """
        interval.ms
    """,
    LIST: """
        match metrics
    """,
}


def ask(kind: int, name: str, keys: list[str] | None = None, **fields: Any) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return DescribeConfigsRequest(resources=[resource], **fields)


def described(
    broker: Wire, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **fields: Any
) -> dict[str, Any]:
    """The configs by name."""
    (result,) = broker.send(ask(kind, name, keys, **fields), version).results
    assert (result.error_code, result.error_message, result.resource_type, result.resource_name) == (
        NONE,
        "",
        kind,
        name,
    )
    return {config.name: config for config in result.configs}


def node_id(broker: Wire) -> str:
    return str(broker.send(DescribeClusterRequest(), 0).brokers[0].broker_id)


@pytest.mark.parametrize("version", versions(API))
def test_a_topic(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(retention_ms="1234567", cleanup_policy="compact,delete")
    configs = described(broker, TOPIC, topic.name, version=version)
    assert configs["retention.ms"].value == "1234567"
    assert configs["cleanup.policy"].value == "compact,delete"
    assert configs["segment.bytes"].value == str(1 << 30)
    assert not any(config.is_sensitive or config.read_only for config in configs.values())
    if version == 0:
        # Apache Kafka has forgotten how to fill this in: 3.9.1 says False of everything.
        assert configs["segment.bytes"].is_default or broker.is_kafka
        assert not configs["retention.ms"].is_default
    else:
        assert configs["retention.ms"].config_source == DYNAMIC_TOPIC
        assert configs["segment.bytes"].config_source == DEFAULT
    assert all(config.synonyms == [] for config in configs.values())
    assert all(config.documentation is None or version < 3 for config in configs.values())


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 3])
def test_the_names_and_types_of_a_topic(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    configs = described(broker, TOPIC, make_topic().name, version=version)
    assert {config.name: config.config_type for config in configs.values()} == types_of(OF_A_TOPIC)
    assert not any(config.read_only for config in configs.values())


@pytest.mark.parametrize(("kind", "table"), [(GROUP, OF_A_GROUP), (CLIENT_METRICS, OF_A_SUBSCRIPTION)])
def test_the_names_and_types_of_groups_and_subscriptions(broker: Wire, kind: int, table: dict[int, str]) -> None:
    configs = described(broker, kind, "nobody")
    assert {config.name: config.config_type for config in configs.values()} == types_of(table)
    assert {config.config_source for config in configs.values()} == {DEFAULT}


def types_of(table: dict[int, str]) -> dict[str, int]:
    return {name: kind for kind, names in table.items() for name in names.split()}


@pytest.mark.parametrize("version", versions(API))
def test_keys_select_configs(broker: Wire, topic: Topic, version: int) -> None:
    assert set(described(broker, TOPIC, topic.name, ["retention.ms", "no.such"], version)) == {"retention.ms"}
    assert described(broker, TOPIC, topic.name, ["no.such"], version) == {}
    assert len(described(broker, TOPIC, topic.name, [], version)) == len(
        described(broker, TOPIC, topic.name, None, version)
    )


@pytest.mark.parametrize("version", [v for v in versions(API) if v >= 1])
def test_synonyms_name_the_sources_of_a_value(broker: Wire, make_topic: TopicFactory, version: int) -> None:
    topic = make_topic(retention_ms="55")
    configs = described(broker, TOPIC, topic.name, version=version, include_synonyms=True)

    def synonyms(name: str) -> list[tuple[str, str | None, int]]:
        return [(synonym.name, synonym.value, synonym.source) for synonym in configs[name].synonyms]

    assert synonyms("retention.ms") == [("retention.ms", "55", DYNAMIC_TOPIC)]
    assert synonyms("segment.bytes") == [("log.segment.bytes", str(1 << 30), DEFAULT)]
    assert synonyms("cleanup.policy") == [("log.cleanup.policy", "delete", DEFAULT)]


@pytest.mark.parametrize("version", versions(API))
def test_the_broker(broker: Wire, version: int) -> None:
    configs = described(broker, BROKER, node_id(broker), version=version)
    assert len(configs) > 300
    assert configs["node.id"].value == node_id(broker)
    assert configs["log.segment.bytes"].value == str(1 << 30)
    assert (configs["listeners"].read_only, configs["log.segment.bytes"].read_only) == (False, False)
    assert (configs["log.dirs"].read_only, configs["num.partitions"].read_only) == (True, True)
    assert configs["ssl.keystore.password"].is_sensitive
    assert configs["ssl.keystore.password"].value is None
    if version >= 1:
        assert configs["listeners"].config_source == configs["node.id"].config_source == STATIC_BROKER
        assert configs["log.segment.bytes"].config_source == DEFAULT
    if version >= 3:
        assert (configs["listeners"].config_type, configs["ssl.keystore.password"].config_type) == (LIST, PASSWORD)


@pytest.mark.parametrize("version", versions(API))
def test_unknown_resources(broker: Wire, version: int) -> None:
    own = node_id(broker)
    for kind, name, code, message in (
        (TOPIC, "no-such-topic", UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "", INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (TOPIC, ".", INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '.' is not allowed"),
        (BROKER, "77", INVALID_REQUEST, f"Unexpected broker id, expected {own} or empty string, but received 77"),
        (BROKER, "-1", INVALID_REQUEST, f"Unexpected broker id, expected {own} or empty string, but received -1"),
        (BROKER, "x", INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (CLIENT_METRICS, "", INVALID_REQUEST, "Client metrics subscription name must not be empty"),
        (
            99,
            "x",
            INVALID_REQUEST,
            "This most likely occurs because of a request being malformed by the client library or "
            "the message was sent to an incompatible broker. See the broker logs for more details.",
        ),
    ):
        (result,) = broker.send(ask(kind, name), version).results
        assert (result.error_code, result.error_message) == (code, message), name
        assert (result.resource_type, result.resource_name, result.configs) == (kind, name, [])


def test_every_resource_is_answered_for_itself(broker: Wire, topic: Topic) -> None:
    request = ask(TOPIC, topic.name, ["retention.ms"])
    request.resources += ask(TOPIC, "no-such-topic").resources + ask(BROKER, node_id(broker)).resources
    codes = {result.resource_name: result.error_code for result in broker.send(request, 4).results}
    assert codes == {topic.name: NONE, "no-such-topic": UNKNOWN_TOPIC_OR_PARTITION, node_id(broker): NONE}
    assert broker.send(DescribeConfigsRequest(), 4).results == []


@pytest.mark.parametrize("version", [3, 4])
def test_documentation_when_asked_for(broker: Wire, topic: Topic, version: int) -> None:
    configs = described(broker, TOPIC, topic.name, ["retention.ms"], version, include_documentation=True)
    assert isinstance(configs["retention.ms"].documentation, str)


def test_a_group_without_a_name(broker: Wire) -> None:
    (result,) = broker.send(ask(GROUP, ""), 4).results
    assert (result.error_code, result.error_message) == (INVALID_REQUEST, "Group name must not be empty")


def test_everything_is_as_apache_kafka_says(broker: Wire) -> None:
    """Of configs that one of the two was started with all but the value; Apache Kafka sets min.insync.replicas by itself."""
    actual, expected = everything(broker), recorded()
    assert actual.keys() == expected.keys()
    differing = {}
    for key, line in expected.items():
        ours, theirs = actual[key].split("\t"), line.split("\t")
        shared = min(len(ours), len(theirs))
        if ours[:shared] != theirs[:shared]:
            differing[key] = (ours, theirs)
    assert differing == {}
    assert sum(len(line.split("\t")) == 6 for line in actual.values()) > 380
