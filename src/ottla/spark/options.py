"""The options of the source and the sink: those of Spark's own Kafka source, by the same names.

Spark hands options over without regard to case. An option that is not known is refused, with the nearest one that is: a
misspelt limit that is silently ignored costs more than an error.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.config import BULK, ClientConfig
from ottla.client.topics import TopicPartition
from ottla.spark.offsets import (
    Boundary,
    InvalidOption,
    ending_boundary,
    parse_assignment,
    starting_boundary,
)
from ottla.spelling import nearest

SOURCE_OPTIONS: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "brokerOutageTimeout",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "groupOffsets",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "missingTopicTimeout",
    "onTopicRecreated",
    "shareGroup",
)

SINK_OPTIONS: Final = ("topic", "includeHeaders", "exactlyOnce", "sinkId", "brokerOutageTimeout")
# Spark itself adds these to a stream writer's options (queryName: in a pipeline), or users may give them to any sink.
_SPARK_OPTIONS: Final = ("checkpointlocation", "path", "queryname")

_FIXED: Final = {
    "kafka.auto.offset.reset": "startingOffsets says where a query starts",
    "kafka.enable.auto.commit": "the query's checkpoint keeps its offsets",
    "kafka.key.deserializer": "keys are binary columns",
    "kafka.value.deserializer": "values are binary columns",
    "kafka.key.serializer": "keys are binary or string columns",
    "kafka.value.serializer": "values are binary or string columns",
    "kafka.interceptor.classes": "there are no interceptors",
}

# Aborted records are not data; a new partition should be seen within seconds.
_DEFAULTS: Final = {"isolation.level": "read_committed", "client.id": "ottla-spark", "metadata.max.age.ms": "5000"}


_OUTAGE: Final = "10m"
"""Time that a stream waits for brokers before it fails (brokerOutageTimeout)."""
_OUTAGE_TIMEOUTS: Final = ("default.api.timeout.ms", "delivery.timeout.ms", "max.block.ms")

# A batch must be written within it; as long as brokers allow by default (transaction.max.timeout.ms).
_LONGEST_TRANSACTION_MS: Final = "900000"
_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


class SourceOptions(NamedTuple):
    """A source's options, parsed; exactly one of assign, topics and pattern is given.

    outage_ms  how long a stream waits for brokers that do not answer
    """

    config: ClientConfig
    assign: list[TopicPartition] | None
    topics: list[str] | None
    pattern: str | None
    start: Boundary
    end: Boundary
    fail_on_data_loss: bool
    restarts_recreated: bool
    missing_topic_ms: int
    group: str | None
    outage_ms: int
    poll_timeout_ms: int
    offset_attempts: int
    retry_interval_ms: int
    max_offsets: int | None
    min_offsets: int | None
    max_bytes: int | None
    max_delay_ms: int
    min_partitions: int | None
    max_records: int | None
    share_group: str | None
    kafka: dict[str, str]

    def share_consumer_config(self) -> ClientConfig:
        """The config of the share consumer. Raises InvalidClientConfig."""
        fixed = {"group.id": self.share_group, "share.acknowledgement.mode": "explicit"}
        if self.max_offsets is not None:
            fixed["max.poll.records"] = str(self.max_offsets)
        defaults = {"client.id": "ottla-spark", "max.poll.records": "100000", "fetch.max.wait.ms": "100"}
        return ClientConfig({**defaults, **self.kafka, **fixed}, prefix="kafka.")


# A share group says by itself where it is, and how far it is isolated.
_NOT_WITH_SHARE_GROUP: Final = (
    "assign",
    "subscribePattern",
    "groupOffsets",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "missingTopicTimeout",
    "onTopicRecreated",
)


def _check_share_group(options: Mapping[str, str], kafka: dict[str, str]) -> None:
    """Check that the options go with shareGroup, and set isolation.level. Raises InvalidOption."""
    if not options["shareGroup"].strip():
        raise InvalidOption("shareGroup names no group")
    for name in _NOT_WITH_SHARE_GROUP:
        if name in options:
            raise InvalidOption(f"{name} does not go with shareGroup: the group keeps its own place in its topics")
    # What is acquired is read as it is: the group has left out already what its share.isolation.level leaves out.
    kafka["isolation.level"] = "read_uncommitted"


class SinkOptions(NamedTuple):
    """A sink's options; without `topic` every row names its own.

    kafka  the client configs as they were given, without defaults
    """

    config: ClientConfig
    topic: str | None
    exactly_once: bool
    sink_id: str | None
    kafka: dict[str, str]

    def transactional_config(self, transactional_id: str) -> ClientConfig:
        """The config of a producer with transactions. Raises InvalidClientConfig."""
        configs = {**_DEFAULTS, "transaction.timeout.ms": _LONGEST_TRANSACTION_MS, **self.kafka}
        return ClientConfig({**configs, "transactional.id": transactional_id}, prefix="kafka.", defaults=BULK)


def _split_options(
    raw_options: Mapping[str, str], known: tuple[str, ...], kind: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Options under their own spelling, and the kafka.* ones without the prefix. Raises InvalidOption."""
    spelling = {name.lower(): name for name in known}
    options: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for key, value in raw_options.items():
        lower = key.lower()
        if lower in _FIXED:
            raise InvalidOption(f"{lower} cannot be set: {_FIXED[lower]}")
        if lower.startswith("kafka."):
            kafka[lower.removeprefix("kafka.")] = value
        elif lower in spelling:
            options[spelling[lower]] = value
        elif lower not in _SPARK_OPTIONS:
            near = nearest(lower, [*known, "kafka.bootstrap.servers"])
            if near is None:
                raise InvalidOption(f"{key} is no option of the ottla {kind}")
            raise InvalidOption(f"{_in_case_of(near, key)} is no option of the ottla {kind}; did you mean {near}?")
    return options, kafka


def _in_case_of(known: str, key: str) -> str:
    """A misspelt option with the capitals of the one that was meant: Spark hands over names in lower case only."""
    if key != key.lower():
        return key
    matcher = difflib.SequenceMatcher(None, key, known.lower(), autojunk=False)
    characters = list(key)
    for start, start_known, size in matcher.get_matching_blocks():
        characters[start : start + size] = known[start_known : start_known + size]
    return "".join(characters)


def has_headers(raw_options: Mapping[str, str]) -> bool:
    """The value of includeHeaders. Raises InvalidOption."""
    return _flag(
        {key.lower(): value for key, value in raw_options.items()}.get("includeheaders", "false"), "includeHeaders"
    )


def source_options(raw_options: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """Parse and check. Raises InvalidOption, InvalidClientConfig."""
    options, kafka = _split_options(raw_options, SOURCE_OPTIONS, "source")
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if name in options]
    if len(chosen) != 1:
        conflict = f", not {' and '.join(chosen)}" if chosen else ""
        raise InvalidOption(f"exactly one of assign, subscribe and subscribePattern says what to read{conflict}")
    for name in options:
        if stream and name.startswith("ending"):
            raise InvalidOption(f"{name} is for batch reads: a stream has no end")
        if not stream and name in ("groupOffsets", "missingTopicTimeout", "onTopicRecreated", "shareGroup"):
            raise InvalidOption(f"{name} is for streams: a batch read keeps no offsets")
        if not stream and name == "brokerOutageTimeout":
            raise InvalidOption(f"{name} is for streams: a batch read waits for kafka.default.api.timeout.ms")
    if "shareGroup" in options:
        _check_share_group(options, kafka)
    if "groupOffsets" in options and not options["groupOffsets"].strip():
        raise InvalidOption("groupOffsets names no group")
    minimum, maximum = _number(options, "minOffsetsPerTrigger"), _number(options, "maxOffsetsPerTrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise InvalidOption(f"minOffsetsPerTrigger ({minimum}) is above maxOffsetsPerTrigger ({maximum})")
    topics = None
    if "subscribe" in options:
        topics = [topic.strip() for topic in options["subscribe"].split(",") if topic.strip()]
        if not topics:
            raise InvalidOption("subscribe names no topic")
    if "subscribePattern" in options:
        try:
            re.compile(options["subscribePattern"])
        except re.error as error:
            raise InvalidOption(f"subscribePattern {options['subscribePattern']!r}: {error}") from None
    _flag(options.get("includeHeaders", "false"), "includeHeaders")
    outage_ms = _duration(options.get("brokerOutageTimeout", _OUTAGE), "brokerOutageTimeout") if stream else 0
    return SourceOptions(
        config=ClientConfig({**_DEFAULTS, **kafka}, prefix="kafka.", defaults=BULK),
        assign=parse_assignment(options["assign"]) if "assign" in options else None,
        topics=topics,
        pattern=options.get("subscribePattern"),
        start=starting_boundary(options, stream=stream),
        end=ending_boundary(options),
        fail_on_data_loss=_flag(options.get("failOnDataLoss", "true"), "failOnDataLoss"),
        restarts_recreated=_choice(options, "onTopicRecreated", ("fail", "restart")) == "restart",
        missing_topic_ms=_duration(options.get("missingTopicTimeout", "10m"), "missingTopicTimeout"),
        group=options.get("groupOffsets"),
        outage_ms=outage_ms,
        poll_timeout_ms=_number(options, "kafkaConsumer.pollTimeoutMs") or max(120_000, outage_ms),
        offset_attempts=_number(options, "fetchOffset.numRetries") or 3,
        retry_interval_ms=_number(options, "fetchOffset.retryIntervalMs") or 1000,
        max_offsets=maximum,
        min_offsets=minimum,
        max_bytes=_size(options, "maxBytesPerTrigger"),
        max_delay_ms=_duration(options.get("maxTriggerDelay", "15m"), "maxTriggerDelay"),
        min_partitions=_number(options, "minPartitions"),
        max_records=_number(options, "maxRecordsPerPartition"),
        share_group=options.get("shareGroup"),
        kafka=kafka,
    )


def sink_options(raw_options: Mapping[str, str], *, stream: bool) -> SinkOptions:
    """Parse and check. Raises InvalidOption, InvalidClientConfig."""
    options, kafka = _split_options(raw_options, SINK_OPTIONS, "sink")
    if stream:
        outage = str(_duration(options.get("brokerOutageTimeout", _OUTAGE), "brokerOutageTimeout"))
        kafka = {**dict.fromkeys(_OUTAGE_TIMEOUTS, outage), **kafka}
    elif "brokerOutageTimeout" in options:
        raise InvalidOption("brokerOutageTimeout is for streams: a batch write waits for kafka.delivery.timeout.ms")
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise InvalidOption("the option topic is empty")
    if "transactional.id" in kafka:
        raise InvalidOption("kafka.transactional.id cannot be set: exactlyOnce=true names its transactions by sinkId")
    exactly_once = _flag(options.get("exactlyOnce", "false"), "exactlyOnce")
    sink_id = options.get("sinkId")
    if sink_id is not None:
        if not exactly_once:
            raise InvalidOption("sinkId is for exactlyOnce=true")
        if not _SINK_ID.fullmatch(sink_id):
            raise InvalidOption(f"sinkId is up to 200 letters, digits, dots, hyphens and underscores, not {sink_id!r}")
    config = ClientConfig({**_DEFAULTS, **kafka}, prefix="kafka.", defaults=BULK)
    parsed = SinkOptions(config, topic, exactly_once, sink_id, kafka)
    if exactly_once:
        parsed.transactional_config("checked")
    return parsed


def _flag(text: str, option: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidOption(f"{option} is true or false, not {text!r}")
    return text.lower() == "true"


def _number(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    text = options[name].strip()
    if not text.isdecimal() or int(text) < 1:
        raise InvalidOption(f"{name} is a positive whole number, not {text!r}")
    return int(text)


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """One of these, the first by default."""
    text = options.get(name, choices[0]).strip().lower()
    if text not in choices:
        raise InvalidOption(f"{name} is {' or '.join(choices)}, not {text!r}")
    return text


_UNITS_MS: Final = {
    "us": 0.001,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "": 1,
}


def _duration(text: str, option: str) -> int:
    """Milliseconds of a duration as Spark writes it: 90s, 15m, 1h; a number alone is milliseconds."""
    matched = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if matched is None or matched[2] not in _UNITS_MS:
        raise InvalidOption(f"{option} is a duration like 30s or 15m, not {text!r}")
    return int(int(matched[1]) * _UNITS_MS[matched[2]])


def _size(options: Mapping[str, str], name: str) -> int | None:
    """Bytes as Spark writes them: 1000000, 64k, 10m, 1g."""
    if name not in options:
        return None
    text = options[name].strip().lower()
    matched = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text)
    if matched is None or not int(matched[1]):
        raise InvalidOption(f"{name} is a number of bytes like 1000000 or 64m, not {options[name]!r}")
    return int(matched[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[matched[2]]
