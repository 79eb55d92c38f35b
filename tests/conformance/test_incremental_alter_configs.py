"""IncrementalAlterConfigs, AlterConfigs and ListConfigResources. Apache Kafka takes a moment to act, which is waited for."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.metadata.configs.alteration import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
)
from ottla.protocol.errors import name_of
from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.protocol.messages.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from ottla.records.batch import build
from ottla.records.record import Record

from .conftest import Topic, TopicFactory, Wire, versions
from .members import wait_for

API = IncrementalAlterConfigsRequest
Edits = list[tuple[str, int, str | None]]
Outcome = tuple[str, str | None]
OK = ("NONE", None)


def incremental(
    wire: Wire, *resources: tuple[int, str, Edits], version: int = 1, validate_only: bool = False
) -> list[Outcome]:
    rows = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[
                incremental_alter_configs.AlterableConfig(name=config, config_operation=operation, value=value)
                for config, operation, value in edits
            ],
        )
        for kind, name, edits in resources
    ]
    answer = wire.send(IncrementalAlterConfigsRequest(resources=rows, validate_only=validate_only), version)
    named = [(row.resource_type, row.resource_name) for row in answer.responses]
    assert named == [(kind, name) for kind, name, _ in resources]
    return [(name_of(row.error_code), row.error_message) for row in answer.responses]


def replacing(
    wire: Wire, kind: int, name: str, configs: dict[str, str | None], *, version: int = 2, **fields: Any
) -> Outcome:
    row = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[alter_configs.AlterableConfig(name=config, value=value) for config, value in configs.items()],
    )
    (result,) = wire.send(AlterConfigsRequest(resources=[row], **fields), version).responses
    return name_of(result.error_code), result.error_message


def own(wire: Wire, kind: int, name: str, config: str) -> tuple[str | None, int]:
    """Value and source of a config."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[config])
    (result,) = wire.send(DescribeConfigsRequest(resources=[resource]), 4).results
    return next(((row.value, row.config_source) for row in result.configs), (None, -1))


def becomes(wire: Wire, kind: int, name: str, config: str, value: str | None, source: int) -> None:
    wait_for(lambda: own(wire, kind, name, config) == (value, source))


def node(wire: Wire) -> str:
    return str(wire.send(DescribeClusterRequest(), 0).brokers[0].broker_id)


@pytest.fixture
def metrics(broker: Wire) -> Iterator[str]:
    """The name of a client-metrics subscription, which is gone afterwards."""
    name = f"sub-{uuid.uuid4().hex[:8]}"
    yield name
    edits: Edits = [(config, DELETE, None) for config in ("interval.ms", "metrics", "match")]
    assert incremental(broker, (CLIENT_METRICS, name, edits)) == [OK]


@pytest.mark.parametrize("version", versions(API))
def test_set_and_delete(broker: Wire, topic: Topic, version: int) -> None:
    assert incremental(broker, (TOPIC, topic.name, [("retention.ms", SET, "1000")]), version=version) == [OK]
    becomes(broker, TOPIC, topic.name, "retention.ms", "1000", 1)
    assert incremental(broker, (TOPIC, topic.name, [("retention.ms", DELETE, None)]), version=version) == [OK]
    becomes(broker, TOPIC, topic.name, "retention.ms", "604800000", 5)


def test_the_default_of_min_insync_replicas_is_a_dynamic_config(broker: Wire, topic: Topic) -> None:
    """A new cluster has it for all brokers from the start, since its replicas are elected by it (KIP-966)."""
    config = "min.insync.replicas"
    for name in ("", node(broker)):
        assert own(broker, BROKER, name, config) == ("1", 3)
    assert own(broker, TOPIC, topic.name, config) == ("1", 3)
    for name, operation, text in (
        ("", DELETE, f"Cluster-level {config} cannot be removed while ELR is enabled."),
        (node(broker), SET, f"Broker-level {config} cannot be altered while ELR is enabled."),
        (node(broker), DELETE, f"Broker-level {config} cannot be altered while ELR is enabled."),
    ):
        value = "1" if operation == SET else None
        assert incremental(broker, (BROKER, name, [(config, operation, value)])) == [("INVALID_CONFIG", text)]
    assert incremental(broker, (BROKER, "", [(config, SET, "2")])) == [OK]
    becomes(broker, BROKER, node(broker), config, "2", 3)
    assert incremental(broker, (BROKER, "", [(config, SET, "1")])) == [OK]
    becomes(broker, BROKER, node(broker), config, "1", 3)


def test_internal_segment_bytes_is_shown_once_it_is_set_and_rolls_segments(
    broker: Wire, make_topic: TopicFactory
) -> None:
    """It is segment.bytes without the bound, for tests."""
    config = "internal.segment.bytes"
    topic = make_topic()
    assert own(broker, TOPIC, topic.name, config) == (None, -1)
    assert incremental(broker, (TOPIC, topic.name, [(config, SET, "x")])) == [
        ("INVALID_CONFIG", f"Invalid value x for configuration {config}: Not a number of type INT")
    ]
    assert incremental(broker, (TOPIC, topic.name, [(config, SET, "200")])) == [OK]
    becomes(broker, TOPIC, topic.name, config, "200", 1)
    assert own(broker, TOPIC, topic.name, "segment.bytes") == ("1073741824", 5)
    large = build([Record(0, 1, b"k", bytes(200))])
    wait_for(lambda: name_of(topic.produce(large).error_code) == "RECORD_LIST_TOO_LARGE")


def test_what_is_set_acts(broker: Wire, topic: Topic) -> None:
    topic.append(1)
    assert incremental(broker, (TOPIC, topic.name, [("max.message.bytes", SET, "100")])) == [OK]
    becomes(broker, TOPIC, topic.name, "max.message.bytes", "100", 1)
    large = build([Record(0, 1, b"k", bytes(200))])
    wait_for(lambda: name_of(topic.produce(large).error_code) == "MESSAGE_TOO_LARGE")


def test_lists(broker: Wire, topic: Topic) -> None:
    for operation, value, expected in (
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
    ):
        assert incremental(broker, (TOPIC, topic.name, [("cleanup.policy", operation, value)])) == [OK]
        becomes(broker, TOPIC, topic.name, "cleanup.policy", expected, 1)


@pytest.mark.parametrize(
    ("edits", "outcome"),
    [
        (
            [("retention.ms", APPEND, "1")],
            ("INVALID_CONFIG", "Can't APPEND to key retention.ms because its type is not LIST."),
        ),
        (
            [("retention.ms", SUBTRACT, "1")],
            ("INVALID_CONFIG", "Can't SUBTRACT to key retention.ms because its type is not LIST."),
        ),
        ([("nonsense", SET, "1")], ("INVALID_CONFIG", "Unknown topic config name: nonsense")),
        ([("nonsense", DELETE, None)], OK),
        (
            [("retention.ms", SET, "x")],
            ("INVALID_CONFIG", "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        ),
        (
            [("retention.ms", SET, "5"), ("cleanup.policy", SET, "x")],
            (
                "INVALID_CONFIG",
                "Invalid value x for configuration cleanup.policy: String must be one of: compact, delete",
            ),
        ),
        ([("retention.ms", SET, None)], ("INVALID_REQUEST", "Null value not supported for : retention.ms")),
        ([("cleanup.policy", APPEND, None)], ("INVALID_REQUEST", "Null value not supported for : cleanup.policy")),
        *(
            (
                [("cleanup.policy", APPEND, value)],
                OK if value == "," else ("INVALID_CONFIG", "Configuration 'cleanup.policy' values must not be empty."),
            )
            for value in ("", " ", ",", "compact, ", ",compact")
        ),
        (
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            ("INVALID_REQUEST", "Error due to duplicate config keys"),
        ),
        ([("retention.ms", 9, "1")], ("UNKNOWN_SERVER_ERROR", None)),
        ([], OK),
    ],
)
def test_edits_of_a_topic(broker: Wire, topic: Topic, edits: Edits, outcome: Outcome) -> None:
    assert incremental(broker, (TOPIC, topic.name, edits)) == [outcome]
    assert own(broker, TOPIC, topic.name, "retention.ms") == ("604800000", 5)


@pytest.mark.parametrize(
    ("kind", "name", "config", "outcome"),
    [
        (TOPIC, "no-such", "retention.ms", ("UNKNOWN_TOPIC_OR_PARTITION", "The topic 'no-such' does not exist.")),
        (TOPIC, "", "retention.ms", ("INVALID_REQUEST", "Default topic resources are not allowed.")),
        (
            TOPIC,
            "a b",
            "retention.ms",
            (
                "INVALID_TOPIC_EXCEPTION",
                "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
            ),
        ),
        (0, "x", "retention.ms", ("INVALID_REQUEST", "Unknown resource type 0")),
        (99, "x", "retention.ms", ("INVALID_REQUEST", "Unknown resource type 99")),
        (BROKER, "x", "log.retention.ms", ("INVALID_REQUEST", "Node id must be an integer, but it is: x")),
        (BROKER, "--1", "log.retention.ms", ("INVALID_REQUEST", "Node id must be an integer, but it is: --1")),
        (BROKER, "\u00b2", "log.retention.ms", ("INVALID_REQUEST", "Node id must be an integer, but it is: \u00b2")),
        (GROUP, "", "consumer.session.timeout.ms", ("INVALID_REQUEST", "Default group resources are not allowed.")),
        (CLIENT_METRICS, "", "interval.ms", ("INVALID_REQUEST", "Subscription name can't be empty")),
        (BROKER_LOGGER, "", "root", ("INVALID_REQUEST", "Node id must be an integer, but it is: ")),
    ],
)
def test_resources_that_have_no_configs(broker: Wire, kind: int, name: str, config: str, outcome: Outcome) -> None:
    assert incremental(broker, (kind, name, [(config, SET, "50000")])) == [outcome]


@pytest.mark.parametrize(
    ("config", "value", "outcome"),
    [
        ("nonsense", "1", ("INVALID_CONFIG", "Unknown topic config name: nonsense")),
        (
            "retention.ms",
            "-2",
            ("INVALID_CONFIG", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ),
    ],
)
def test_configs_are_looked_at_before_the_topic(broker: Wire, config: str, value: str, outcome: Outcome) -> None:
    assert incremental(broker, (TOPIC, "no-such", [(config, SET, value)])) == [outcome]
    assert replacing(broker, TOPIC, "no-such", {config: value}) == outcome


def test_each_resource_is_on_its_own_and_once(broker: Wire, topic: Topic) -> None:
    edit: Edits = [("retention.ms", SET, "99")]
    unknown = ("UNKNOWN_TOPIC_OR_PARTITION", "The topic 'no-such' does not exist.")
    assert incremental(broker, (TOPIC, topic.name, edit), (TOPIC, "no-such", edit)) == [OK, unknown]
    becomes(broker, TOPIC, topic.name, "retention.ms", "99", 1)
    twice = ("INVALID_REQUEST", "Each resource must appear at most once.")
    assert incremental(broker, (TOPIC, topic.name, edit), (TOPIC, topic.name, edit)) == [twice, twice]
    assert incremental(broker) == []


def test_validate_only(broker: Wire, topic: Topic) -> None:
    good: Edits = [("retention.ms", SET, "77")]
    bad: Edits = [("retention.ms", SET, "x")]
    assert incremental(broker, (TOPIC, topic.name, good), validate_only=True) == [OK]
    assert incremental(broker, (TOPIC, topic.name, bad), validate_only=True)[0][0] == "INVALID_CONFIG"
    assert own(broker, TOPIC, topic.name, "retention.ms") == ("604800000", 5)


def test_brokers(broker: Wire, topic: Topic) -> None:
    this = node(broker)
    assert incremental(broker, (BROKER, "", [("log.retention.ms", SET, "123456")])) == [OK]
    becomes(broker, BROKER, "", "log.retention.ms", "123456", 3)
    becomes(broker, BROKER, this, "log.retention.ms", "123456", 3)
    becomes(broker, TOPIC, topic.name, "retention.ms", "123456", 3)
    assert incremental(broker, (BROKER, this, [("log.retention.ms", SET, "223456")])) == [OK]
    becomes(broker, BROKER, this, "log.retention.ms", "223456", 2)
    edit: Edits = [("log.retention.ms", DELETE, None)]
    assert incremental(broker, (BROKER, this, edit), (BROKER, "", edit)) == [OK, OK]
    becomes(broker, TOPIC, topic.name, "retention.ms", "604800000", 5)


def test_what_a_broker_refuses(broker: Wire) -> None:
    this = node(broker)
    for name, config, value, text in (
        (this, "node.id", "3", "Cannot update these configs dynamically: [node.id]"),
        (
            "",
            "listeners",
            "PLAINTEXT://:1",
            "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
        ),
        (
            this,
            "log.retention.ms",
            "x",
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        ("", "num.io.threads", "0", "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
        ("77", "log.retention.ms", "5", f"Unexpected broker id, expected {this}, but received 77"),
    ):
        assert incremental(broker, (BROKER, name, [(config, SET, value)])) == [("INVALID_REQUEST", text)]


@pytest.mark.parametrize("config", ["node.id", "listeners", "ssl.keystore.location", "log.dirs"])
def test_what_cannot_be_set_can_be_deleted(broker: Wire, config: str) -> None:
    for name in (node(broker), ""):
        assert incremental(broker, (BROKER, name, [(config, DELETE, None)])) == [OK]


def test_an_unknown_config_of_a_broker_is_kept_but_not_shown(broker: Wire) -> None:
    this = node(broker)
    for resource, source in ((this, 2), ("", 3)):
        name = f"nonsense-{source}"
        assert incremental(broker, (BROKER, resource, [(name, SET, "3")])) == [OK]
        becomes(broker, BROKER, resource, name, None, source)
        becomes(broker, BROKER, this, name, None, source)
        query = DescribeConfigsResource(resource_type=BROKER, resource_name=this, configuration_keys=[name])
        request = DescribeConfigsRequest(resources=[query], include_synonyms=True, include_documentation=True)
        (row,) = broker.send(request, 4).results[0].configs
        assert (row.is_sensitive, row.read_only, row.config_type, row.documentation) == (True, True, 0, None)
        assert [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms] == [(name, None, source)]
        assert incremental(broker, (BROKER, resource, [(name, DELETE, None)])) == [OK]
        becomes(broker, BROKER, this, name, None, -1)


@pytest.mark.parametrize("operation", [SET, APPEND])
@pytest.mark.parametrize("resource", ["this", "all"])
def test_a_list_of_a_broker_is_checked(broker: Wire, topic: Topic, resource: str, operation: int) -> None:
    name = node(broker) if resource == "this" else ""
    text = "Invalid value x for configuration log.cleanup.policy: String must be one of: compact, delete"
    edit: Edits = [("log.cleanup.policy", operation, "x")]
    assert incremental(broker, (BROKER, name, edit)) == [("INVALID_REQUEST", text)]
    assert own(broker, BROKER, node(broker), "log.cleanup.policy")[0] == "delete"
    assert topic.append(1) == 0


def test_an_empty_element_is_not_appended_to_a_list_of_a_broker(broker: Wire) -> None:
    text = "Configuration 'log.cleanup.policy' values must not be empty."
    for name in (node(broker), ""):
        assert incremental(broker, (BROKER, name, [("log.cleanup.policy", APPEND, "")])) == [("INVALID_REQUEST", text)]


def test_limits_of_connections(broker: Wire) -> None:
    this = node(broker)
    never = "Invalid value org.apache.kafka.common.config.ConfigException: Invalid {} 0 for configuration {}"
    for name in ("max.connections", "max.connection.creation.rate"):
        refused = {
            "abc": f"Invalid value abc for configuration {name}: Not a number of type INT",
            "-1": f"Invalid value -1 for configuration {name}: Value must be at least 0",
            "0": never.format(name, "Invalid dynamic configuration"),
        }
        for config in (name, f"listener.name.plaintext.{name}", f"listener.name.other.{name}"):
            for value, text in refused.items():
                ((code, message),) = incremental(broker, (BROKER, this, [(config, SET, value)]))
                if value == "0" and config == f"listener.name.other.{name}":
                    assert (code, message) == OK
                else:  # Apache Kafka encloses the text in another one when the listener had a value before
                    assert code == "INVALID_REQUEST"
                    assert text in (message or "")
            for operation, change in ((SET, "1000"), (DELETE, None)):
                assert incremental(broker, (BROKER, this, [(config, operation, change)])) == [OK]
                if broker.is_kafka:  # it compares with configs that it applies a while after it has answered
                    time.sleep(0.3)


def test_well_typed_but_meaningless_values_are_refused(broker: Wire) -> None:
    """Their types allow them: a broker that took them could not answer, or start, any more."""
    for name, config, value in (
        ("", "max.connections.per.ip.overrides", "nonsense"),
        (node(broker), "advertised.listeners", "nonsense"),
        ("", "metric.reporters", "com.foo.Bar"),
        (node(broker), "metric.reporters", "com.foo.Bar"),
    ):
        (code, _) = incremental(broker, (BROKER, name, [(config, SET, value)]))[0]
        assert code == "INVALID_REQUEST", config
    assert node(broker)


def test_loggers(broker: Wire) -> None:
    this = node(broker)

    def alter(name: str, operation: int, level: str | None, resource: str = this) -> Outcome:
        return incremental(broker, (BROKER_LOGGER, resource, [(name, operation, level)]))[0]

    before, source = own(broker, BROKER_LOGGER, this, "root")
    assert source == 6
    assert alter("root", SET, "DEBUG") == OK
    becomes(broker, BROKER_LOGGER, this, "root", "DEBUG", 6)
    assert alter("root", SET, before) == OK
    valid = "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
    text = f"Cannot set the log level of root to debug as it is not a supported log level. {valid}"
    assert alter("root", SET, "debug") == ("INVALID_CONFIG", text)
    assert alter("no.such.one", SET, "INFO") == ("INVALID_CONFIG", "Logger no.such.one does not exist!")
    removing = ("INVALID_REQUEST", "Removing the log level of the root logger is not allowed")
    assert alter("root", DELETE, None) == removing
    for verb, operation in (("APPEND", APPEND), ("SUBTRACT", SUBTRACT)):
        text = f"{verb} operation is not allowed for the BROKER_LOGGER resource"
        assert alter("root", operation, "INFO") == ("INVALID_REQUEST", text)
    text = f"Unexpected node id. Expected {this}, but received 9"
    assert alter("root", SET, "INFO", "9") == ("INVALID_REQUEST", text)


def test_client_metrics(broker: Wire, metrics: str) -> None:
    edits: Edits = [("interval.ms", SET, "1000"), ("metrics", SET, "a.,b."), ("match", SET, "client_id=x.*")]
    assert incremental(broker, (CLIENT_METRICS, metrics, edits)) == [OK]
    becomes(broker, CLIENT_METRICS, metrics, "interval.ms", "1000", 7)
    assert own(broker, CLIENT_METRICS, metrics, "metrics") == ("a.,b.", 7)
    text = "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)"
    for edit, outcome in (
        (("interval.ms", SET, "1"), ("INVALID_REQUEST", text)),
        (
            ("interval.ms", SET, "bbb"),
            ("INVALID_CONFIG", "Invalid value bbb for configuration interval.ms: Not a number of type INT"),
        ),
        (("nonsense", SET, "1"), ("INVALID_REQUEST", "Unknown client metrics configuration: nonsense")),
        (("match", SET, "nope"), ("INVALID_CONFIG", "Illegal client matching pattern: nope")),
        (
            ("metrics", APPEND, "c."),
            ("INVALID_CONFIG", "Can't APPEND to key metrics because its type is not LIST."),
        ),
    ):
        assert incremental(broker, (CLIENT_METRICS, metrics, [edit])) == [outcome]


def test_groups(broker: Wire) -> None:
    name, config = f"g-{uuid.uuid4().hex[:8]}", "consumer.session.timeout.ms"
    assert incremental(broker, (GROUP, name, [(config, SET, "50000")])) == [OK]
    becomes(broker, GROUP, name, config, "50000", 8)
    text = "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."
    assert incremental(broker, (GROUP, name, [(config, SET, "5")])) == [("INVALID_CONFIG", text)]
    unknown = ("INVALID_CONFIG", "Unknown group config name: nonsense")
    assert incremental(broker, (GROUP, name, [("nonsense", SET, "5")])) == [unknown]
    assert incremental(broker, (GROUP, name, [(config, DELETE, None)])) == [OK]
    becomes(broker, GROUP, name, config, "45000", 5)


@pytest.mark.api(request=AlterConfigsRequest)
@pytest.mark.parametrize("version", versions(AlterConfigsRequest))
def test_replacing(broker: Wire, topic: Topic, version: int) -> None:
    configs: dict[str, str | None] = {"retention.ms": "1000", "cleanup.policy": "compact"}
    assert replacing(broker, TOPIC, topic.name, configs, version=version) == OK
    becomes(broker, TOPIC, topic.name, "retention.ms", "1000", 1)
    assert replacing(broker, TOPIC, topic.name, {"segment.bytes": "2000000"}, version=version) == OK
    becomes(broker, TOPIC, topic.name, "segment.bytes", "2000000", 1)
    assert own(broker, TOPIC, topic.name, "retention.ms") == ("604800000", 5)
    assert replacing(broker, TOPIC, topic.name, {}, version=version, validate_only=True) == OK
    assert own(broker, TOPIC, topic.name, "segment.bytes")[0] == "2000000"


def test_what_is_not_replaced(broker: Wire, topic: Topic) -> None:
    null = ("INVALID_REQUEST", "Null value not supported for : segment.bytes")
    assert replacing(broker, TOPIC, topic.name, {"segment.bytes": None}) == null
    unknown = ("INVALID_CONFIG", "Unknown topic config name: nonsense")
    assert replacing(broker, TOPIC, topic.name, {"nonsense": "1"}) == unknown
    absent = ("UNKNOWN_TOPIC_OR_PARTITION", "The topic 'no-such' does not exist.")
    assert replacing(broker, TOPIC, "no-such", {}) == absent
    assert replacing(broker, BROKER_LOGGER, "1", {"root": "INFO"}) == ("INVALID_REQUEST", "Unknown resource type 8")
    fixed = ("INVALID_REQUEST", "Cannot update these configs dynamically: [node.id]")
    assert replacing(broker, BROKER, node(broker), {"node.id": "3"}) == fixed


@pytest.mark.api(request=ListConfigResourcesRequest)
@pytest.mark.parametrize("version", versions(ListConfigResourcesRequest))
def test_who_has_configs(broker: Wire, make_topic: TopicFactory, metrics: str, version: int) -> None:
    topic, this = make_topic(), node(broker)
    assert incremental(broker, (CLIENT_METRICS, metrics, [("interval.ms", SET, "1000")])) == [OK]

    def listed(*kinds: int) -> set[tuple[int, str]]:
        answer = broker.send(ListConfigResourcesRequest(resource_types=list(kinds)), version)
        assert answer.error_code == 0
        return {(resource.resource_type, resource.resource_name) for resource in answer.config_resources}

    if version == 0:
        wait_for(lambda: (CLIENT_METRICS, metrics) in listed())
        assert {kind for kind, _ in listed()} == {CLIENT_METRICS}
        return
    expected = {(TOPIC, topic.name), (BROKER, this), (BROKER_LOGGER, this), (CLIENT_METRICS, metrics)}
    wait_for(lambda: expected <= listed())
    assert listed(BROKER) == {(BROKER, this)}
    assert {kind for kind, _ in listed(GROUP)} <= {GROUP}
    unknown = broker.send(ListConfigResourcesRequest(resource_types=[TOPIC, 99]), version)
    assert (name_of(unknown.error_code), unknown.config_resources) == ("UNSUPPORTED_VERSION", [])
