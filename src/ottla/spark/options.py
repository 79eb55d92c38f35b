"""Options of the source and the sink, with the names of Spark's own Kafka connector.

Spark passes option names in lower case. An unknown option is an error that suggests the nearest known one: a misspelt limit
must not be ignored silently.
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
# Added by Spark to the options of a stream writer (queryName: in a pipeline), or set by users for any sink.
_SPARK_OPTIONS: Final = ("checkpointlocation", "path", "queryname")

_FIXED: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "offsets are stored in the query's checkpoint",
    "kafka.key.deserializer": "keys are binary columns",
    "kafka.value.deserializer": "values are binary columns",
    "kafka.key.serializer": "keys are binary or string columns",
    "kafka.value.serializer": "values are binary or string columns",
    "kafka.interceptor.classes": "interceptors are not supported",
}

# Skip aborted records; discover new partitions within seconds.
_DEFAULTS: Final = {"isolation.level": "read_committed", "client.id": "ottla-spark", "metadata.max.age.ms": "5000"}


_OUTAGE: Final = "10m"
"""Default of brokerOutageTimeout."""
_OUTAGE_TIMEOUTS: Final = ("default.api.timeout.ms", "delivery.timeout.ms", "max.block.ms")

# Limit for writing a batch: the default of the brokers' transaction.max.timeout.ms.
_LONGEST_TRANSACTION_MS: Final = "900000"
_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


class SourceOptions(NamedTuple):
    """Parsed options of the source; exactly one of assign, topics and pattern is set.

    outage_ms  timeout of a stream for brokers that do not answer
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
        """Return the config of the share consumer. Raises InvalidClientConfig."""
        fixed = {"group.id": self.share_group, "share.acknowledgement.mode": "explicit"}
        if self.max_offsets is not None:
            fixed["max.poll.records"] = str(self.max_offsets)
        defaults = {"client.id": "ottla-spark", "max.poll.records": "100000", "fetch.max.wait.ms": "100"}
        return ClientConfig({**defaults, **self.kafka, **fixed}, prefix="kafka.")


# Position and isolation level are properties of the share group.
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
        raise InvalidOption("shareGroup is empty: set the name of a share group")
    for name in _NOT_WITH_SHARE_GROUP:
        if name in options:
            raise InvalidOption(
                f"{name} cannot be combined with shareGroup: the group keeps its own position in its topics"
            )
    # The group has applied its share.isolation.level already: acquired offsets are read without further filtering.
    kafka["isolation.level"] = "read_uncommitted"


class SinkOptions(NamedTuple):
    """Parsed options of the sink; without `topic` each row names its topic.

    kafka  client configs set by the user, without defaults
    """

    config: ClientConfig
    topic: str | None
    exactly_once: bool
    sink_id: str | None
    kafka: dict[str, str]

    def transactional_config(self, transactional_id: str) -> ClientConfig:
        """Return the config of a transactional producer. Raises InvalidClientConfig."""
        configs = {**_DEFAULTS, "transaction.timeout.ms": _LONGEST_TRANSACTION_MS, **self.kafka}
        return ClientConfig({**configs, "transactional.id": transactional_id}, prefix="kafka.", defaults=BULK)


def _split_options(
    raw_options: Mapping[str, str], known: tuple[str, ...], kind: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Split into options in their documented spelling and kafka.* configs without the prefix. Raises InvalidOption."""
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
                raise InvalidOption(f"{key} is not an option of the ottla {kind}")
            raise InvalidOption(f"{_in_case_of(near, key)} is not an option of the ottla {kind}; did you mean {near}?")
    return options, kafka


def _in_case_of(known: str, key: str) -> str:
    """Return a misspelt option with the capitals of the suggested one: Spark passes names in lower case only."""
    if key != key.lower():
        return key
    matcher = difflib.SequenceMatcher(None, key, known.lower(), autojunk=False)
    characters = list(key)
    for start, start_known, size in matcher.get_matching_blocks():
        characters[start : start + size] = known[start_known : start_known + size]
    return "".join(characters)


def has_headers(raw_options: Mapping[str, str]) -> bool:
    """Return the value of includeHeaders. Raises InvalidOption."""
    return _flag(
        {key.lower(): value for key, value in raw_options.items()}.get("includeheaders", "false"), "includeHeaders"
    )


def source_options(raw_options: Mapping[str, str], *, stream: bool) -> SourceOptions:
    """Parse and check the options of the source. Raises InvalidOption, InvalidClientConfig."""
    options, kafka = _split_options(raw_options, SOURCE_OPTIONS, "source")
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if name in options]
    if len(chosen) != 1:
        conflict = f", not {' and '.join(chosen)}" if chosen else ""
        raise InvalidOption(f"set exactly one of assign, subscribe and subscribePattern{conflict}")
    for name in options:
        if stream and name.startswith("ending"):
            raise InvalidOption(f"{name} is for batch reads only: a stream has no end")
        if not stream and name in ("groupOffsets", "missingTopicTimeout", "onTopicRecreated", "shareGroup"):
            raise InvalidOption(f"{name} is for streams only: a batch read keeps no offsets")
        if not stream and name == "brokerOutageTimeout":
            raise InvalidOption(f"{name} is for streams only: set kafka.default.api.timeout.ms for a batch read")
    if "shareGroup" in options:
        _check_share_group(options, kafka)
    if "groupOffsets" in options and not options["groupOffsets"].strip():
        raise InvalidOption("groupOffsets is empty: set the name of a consumer group")
    minimum, maximum = _number(options, "minOffsetsPerTrigger"), _number(options, "maxOffsetsPerTrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise InvalidOption(f"minOffsetsPerTrigger ({minimum}) is larger than maxOffsetsPerTrigger ({maximum})")
    topics = None
    if "subscribe" in options:
        topics = [topic.strip() for topic in options["subscribe"].split(",") if topic.strip()]
        if not topics:
            raise InvalidOption("subscribe is empty: set the name of a topic")
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
    """Parse and check the options of the sink. Raises InvalidOption, InvalidClientConfig."""
    options, kafka = _split_options(raw_options, SINK_OPTIONS, "sink")
    if stream:
        outage = str(_duration(options.get("brokerOutageTimeout", _OUTAGE), "brokerOutageTimeout"))
        kafka = {**dict.fromkeys(_OUTAGE_TIMEOUTS, outage), **kafka}
    elif "brokerOutageTimeout" in options:
        raise InvalidOption("brokerOutageTimeout is for streams only: set kafka.delivery.timeout.ms for a batch write")
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise InvalidOption("the option topic is empty")
    if "transactional.id" in kafka:
        raise InvalidOption("kafka.transactional.id cannot be set: with exactlyOnce=true it is derived from sinkId")
    exactly_once = _flag(options.get("exactlyOnce", "false"), "exactlyOnce")
    sink_id = options.get("sinkId")
    if sink_id is not None:
        if not exactly_once:
            raise InvalidOption("sinkId requires exactlyOnce=true")
        if not _SINK_ID.fullmatch(sink_id):
            raise InvalidOption(
                f"sinkId must be up to 200 letters, digits, dots, hyphens and underscores, not {sink_id!r}"
            )
    config = ClientConfig({**_DEFAULTS, **kafka}, prefix="kafka.", defaults=BULK)
    parsed = SinkOptions(config, topic, exactly_once, sink_id, kafka)
    if exactly_once:
        parsed.transactional_config("checked")
    return parsed


def _flag(text: str, option: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidOption(f"{option} must be true or false, not {text!r}")
    return text.lower() == "true"


def _number(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    text = options[name].strip()
    if not text.isdecimal() or int(text) < 1:
        raise InvalidOption(f"{name} must be a positive whole number, not {text!r}")
    return int(text)


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return the value of an option with fixed choices; the first is the default."""
    text = options.get(name, choices[0]).strip().lower()
    if text not in choices:
        raise InvalidOption(f"{name} must be {' or '.join(choices)}, not {text!r}")
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
    """Parse a duration in the notation of Spark into milliseconds: 90s, 15m, 1h; a plain number is milliseconds."""
    matched = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    if matched is None or matched[2] not in _UNITS_MS:
        raise InvalidOption(f"{option} must be a duration like 30s or 15m, not {text!r}")
    return int(int(matched[1]) * _UNITS_MS[matched[2]])


def _size(options: Mapping[str, str], name: str) -> int | None:
    """Parse a size in the notation of Spark into bytes: 1000000, 64k, 10m, 1g."""
    if name not in options:
        return None
    text = options[name].strip().lower()
    matched = re.fullmatch(r"(\d+)\s*([kmg]?)b?", text)
    if matched is None or not int(matched[1]):
        raise InvalidOption(f"{name} must be a number of bytes like 1000000 or 64m, not {options[name]!r}")
    return int(matched[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[matched[2]]
