"""Configs: what is accepted, what is refused and in which words, and where a value comes from.

The words were seen in answers of Apache Kafka 4.4 to CreateTopics, IncrementalAlterConfigs and DescribeConfigs.
"""

import pytest

from ottla.metadata.configs import (
    BrokerValues,
    ConfigSource,
    InvalidConfig,
    Scope,
    config,
    configs,
    group_configs,
    parse,
    text_of,
    topic_configs,
    validate_group,
    validate_topic,
)
from ottla.metadata.configs import table as config_table
from ottla.metadata.configs.descriptions import Synonym, describe_broker, describe_client_metrics, describe_resource

REFUSED = [
    ("retention.ms", "x", "Invalid value x for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    (
        "retention.ms",
        "99999999999999999999",
        "Invalid value 99999999999999999999 for configuration retention.ms: Not a number of type LONG",
    ),
    ("retention.ms", "1_0", "Invalid value 1_0 for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
    (
        "cleanup.policy",
        "none",
        "Invalid value none for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    ("cleanup.policy", "delete,,", "Configuration 'cleanup.policy' values must not be empty."),
    (
        "compression.type",
        "x",
        "Invalid value x for configuration compression.type: "
        "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        "compression.gzip.level",
        "0",
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    (
        "compression.zstd.level",
        "99",
        "Invalid value 99 for configuration compression.zstd.level: Value must be no more than 22",
    ),
    (
        "preallocate",
        "yes",
        "Invalid value yes for configuration preallocate: Expected value to be either true or false",
    ),
    (
        "min.cleanable.dirty.ratio",
        "2",
        "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        "min.cleanable.dirty.ratio",
        "0x1",
        "Invalid value 0x1 for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
    ),
    (
        "follower.replication.throttled.replicas",
        "*,*",
        "Invalid value [*, *] for configuration follower.replication.throttled.replicas: "
        "follower.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
    ("segment.bytes", "1", "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
    (
        "segment.bytes",
        "3000000000",
        "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT",
    ),
    (
        "max.decompressed.message.bytes",
        "0",
        "Invalid value 0 for configuration max.decompressed.message.bytes: Value must be at least 1",
    ),
    ("nope", "1", "Unknown topic config name: nope"),
    (
        "remote.storage.enable",
        "true",
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
]


@pytest.mark.parametrize(("name", "text", "words"), REFUSED)
def test_a_topic_is_refused_in_kafkas_words(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        validate_topic({name: text})
    assert str(refused.value) == words


def test_compaction_lags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"^conflict topic config setting min\.compaction\.lag\.ms \(9\) > "):
        validate_topic({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "5"})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "+5", 5),
        ("cleanup.policy", "", []),
        ("cleanup.policy", "compact,compact", ["compact"]),
        ("cleanup.policy", " compact , delete ", ["compact", "delete"]),
        ("preallocate", "TRUE ", True),
        ("min.cleanable.dirty.ratio", "1d", 1.0),
        ("follower.replication.throttled.replicas", "1:1", ["1:1"]),
        ("local.retention.ms", "99999999999", 99999999999),
    ],
)
def test_a_topic_is_accepted_as_kafka_accepts_it(name: str, text: str, value: object) -> None:
    validate_topic({name: text})
    assert parse(config(Scope.TOPIC, name), text) == value


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "consumer.session.timeout.ms",
            "1",
            "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
        ),
        ("share.delivery.count.limit", "100", "share.delivery.count.limit must be in the range 2 to 10 inclusive."),
        (
            "share.partition.max.record.locks",
            "99",
            "Invalid value 99 for configuration share.partition.max.record.locks: Value must be at least 100",
        ),
        ("streams.num.standby.replicas", "9", "streams.num.standby.replicas must be less than or equal to 2"),
        (
            "streams.rack.aware.assignment.tags",
            "a,a",
            "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
        ),
        (
            "errors.deadletterqueue.topic.name",
            "__x",
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        ),
        (
            "share.auto.offset.reset",
            "by_duration:x",
            "Invalid value by_duration:x for configuration share.auto.offset.reset: Invalid value `by_duration:x` for "
            "configuration share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format "
            "'by_duration:<PnDTnHnMn.nS>'.",
        ),
        ("nope", "1", "Unknown group config name: nope"),
    ],
)
def test_a_group_is_refused_in_kafkas_words(name: str, text: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        validate_group({name: text}, BrokerValues())
    assert str(refused.value) == words


@pytest.mark.parametrize("text", ["earliest", "latest", "by_duration:P1D", "by_duration:PT1.5S"])
def test_offset_resets_that_kafka_takes(text: str) -> None:
    validate_group({"share.auto.offset.reset": text}, BrokerValues())
    assert group_configs({"share.auto.offset.reset": text}, BrokerValues())["share.auto.offset.reset"] == text


@pytest.mark.parametrize("scope", [Scope.BROKER, Scope.TOPIC, Scope.GROUP, Scope.CLIENT_METRICS])
def test_every_default_is_a_value_that_its_config_accepts(scope: str) -> None:
    rows = configs(scope)
    for row in rows.values():
        if row.default is not None:
            parse(row, row.default)
    assert list(rows) == sorted(rows)


def test_a_topic_takes_the_brokers_value_in_the_brokers_units() -> None:
    broker = BrokerValues({"log.retention.hours": "24", "log.roll.ms": "7", "log.segment.bytes": "1048576"})
    values = topic_configs({"preallocate": "true"}, broker)
    assert values["retention.ms"] == 86_400_000
    assert values["segment.ms"] == 7
    assert values.integer("segment.bytes") == 1048576
    assert values.flag("preallocate")
    assert values["flush.ms"] == 2**63 - 1
    assert topic_configs({}, BrokerValues())["retention.ms"] == 604_800_000
    assert topic_configs({}, BrokerValues({"log.retention.minutes": "-1"}))["retention.ms"] == -1


def test_dynamic_values_go_before_static_ones() -> None:
    broker = BrokerValues({"message.max.bytes": "1"}).with_dynamic(
        for_all={"message.max.bytes": "2"}, for_this={"message.max.bytes": "3"}
    )
    assert broker["message.max.bytes"] == 3
    described = {row.config.name: row for row in describe_resource(topic_configs({"max.message.bytes": "4"}, broker))}
    assert described["max.message.bytes"].text == "4"
    assert described["max.message.bytes"].synonyms == [
        Synonym("max.message.bytes", "4", ConfigSource.TOPIC),
        Synonym("message.max.bytes", "3", ConfigSource.DYNAMIC_BROKER),
        Synonym("message.max.bytes", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("message.max.bytes", "1", ConfigSource.STATIC_BROKER),
        Synonym("message.max.bytes", "1048588", ConfigSource.DEFAULT),
    ]


def test_an_unset_retention_has_no_synonyms_although_the_hours_have_a_value() -> None:
    described = {row.config.name: row for row in describe_broker(BrokerValues())}
    assert described["log.retention.ms"].synonyms == []
    assert described["log.retention.ms"].text is None
    assert described["log.retention.hours"].text == "168"
    topic = {row.config.name: row for row in describe_resource(topic_configs({}, BrokerValues()))}
    assert (topic["retention.ms"].text, topic["retention.ms"].source) == ("604800000", ConfigSource.DEFAULT)
    assert topic["retention.ms"].synonyms == []


def test_passwords_are_not_shown() -> None:
    secret = BrokerValues({"ssl.key.password": "geheim"})
    described = {row.config.name: row for row in describe_broker(secret)}["ssl.key.password"]
    assert described.config.sensitive
    assert (described.text, described.synonyms) == (
        None,
        [Synonym("ssl.key.password", None, ConfigSource.STATIC_BROKER)],
    )


def test_internal_configs_can_be_set_and_are_not_described() -> None:
    broker = BrokerValues({"unstable.api.versions.enable": "true"})
    assert broker.flag("unstable.api.versions.enable")
    assert "unstable.api.versions.enable" not in {row.config.name for row in describe_broker(broker)}


def test_a_group_names_the_brokers_config_behind_its_own() -> None:
    described = {
        row.config.name: row
        for row in describe_resource(group_configs({"consumer.session.timeout.ms": "50000"}, BrokerValues()))
    }
    assert described["consumer.session.timeout.ms"].synonyms == [
        Synonym("consumer.session.timeout.ms", "50000", ConfigSource.GROUP),
        Synonym("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
    ]
    assert described["streams.assignor.name"].text == "sticky"
    assert described["streams.assignor.name"].synonyms == [
        Synonym("group.streams.assignors", "sticky", ConfigSource.DEFAULT)
    ]
    assert described["share.auto.offset.reset"].synonyms == [
        Synonym("share.auto.offset.reset", "latest", ConfigSource.DEFAULT)
    ]


def test_client_metrics_have_their_own_source() -> None:
    described = {row.config.name: row for row in describe_client_metrics({"interval.ms": "5000"})}
    assert (described["interval.ms"].text, described["interval.ms"].source) == ("5000", ConfigSource.CLIENT_METRICS)
    assert (described["match"].text, described["match"].source) == ("", ConfigSource.DEFAULT)


def test_numbers_are_shown_as_java_shows_them() -> None:
    assert text_of(BrokerValues()["log.cleaner.io.max.bytes.per.second"]) == "1.7976931348623157E308"
    assert text_of(0.5) == "0.5"
    assert text_of(1e7) == "1.0E7"
    assert text_of(True) == "true"
    assert text_of(["a", "b"]) == "a,b"


def test_the_broker_may_change_what_kafka_lets_it_change() -> None:
    assert config(Scope.BROKER, "num.partitions").read_only
    assert config(Scope.BROKER, "listeners").update == config_table.PER_BROKER
    assert config(Scope.BROKER, "message.max.bytes").update == config_table.CLUSTER_WIDE
