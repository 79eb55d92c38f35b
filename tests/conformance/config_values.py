"""Odd values of configs of every type: what IncrementalAlterConfigs answers, and what DescribeConfigs says then.

config_values.json is what Apache Kafka 4.4.0 said: `python -m tests.conformance.config_values HOST:PORT` writes it.
"""

import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any, Final

from ottla.metadata.configs.alteration import CLIENT_METRICS, DELETE, GROUP, SET, TOPIC
from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conformance.conftest import Wire

FILE: Final = Path(__file__).with_name("config_values.json")
NUMBERS: Final = (
    *("", " ", " 5", "5 ", "\t5\n", "\x005\x01", "5\u00a0", "\u20035", "+5", "++5", "-5", "-0", "00000000000000000005"),
    *("0x10", "1_000", "1,000", "1e3", "5.0", "5L", "five", "\u0665", "\uff15", "2147483648", "-2147483649", "9" * 30),
)
DOUBLES: Final = (
    *NUMBERS,
    *(
        "0.25",
        " 0.25 ",
        "\u00a00.25",
        ".5",
        "1.",
        ".",
        "0.5d",
        "0.5F",
        "0.5D ",
        "0x1p-3",
        "0x.8p0",
        "0x1",
        "5e-1",
        "5E-1f",
    ),
    *("NaN", "nan", "-NaN", "+NaN", "NaNd", "Infinity", "-Infinity", "inf", "1e400", "-1e400", "1e-400", "-0.0", "0,5"),
)
WORDS: Final = (
    "",
    " ",
    "null",
    "ZSTD",
    "zstd",
    " zstd",
    "zstd\t",
    "zstd\u00a0",
    "\x00zstd",
    "zs td",
    "'zstd'",
    "zstd,lz4",
)
TIMES: Final = ("LogAppendTime", " LogAppendTime", "LogAppendTime ", "logappendtime", "LogAppendTime\u2003")
FLAGS: Final = (
    "true",
    "TRUE",
    "tRuE",
    " true",
    "true\n",
    "true\u00a0",
    "\x1ftrue",
    "yes",
    "1",
    "t",
    "",
    " ",
    "fal\u017fe",
)
LISTS: Final = (
    *(
        "",
        " ",
        ",",
        "compact",
        " compact ",
        "compact,delete",
        " compact , delete ",
        "compact,\tdelete",
        "delete,compact",
    ),
    *("compact\u00a0,delete", "compact\u2003,delete", "compact,", ",compact", "compact,,delete", "compact,compact"),
    *("Compact", "compact delete", "[compact]", "compact;delete"),
)
REPLICAS: Final = (
    "",
    " ",
    "*",
    " * ",
    "*,*",
    "0:1",
    " 0:1 , 1:2 ",
    "0:1,",
    "0",
    "0:1:2",
    "-1:0",
    "\u0660:1",
    "0: 1",
    "none",
    "0:1,0:1",
)
RESETS: Final = (
    "latest",
    " earliest ",
    "EARLIEST",
    "by_duration:PT1S",
    " by_duration:PT1S",
    "by_duration: PT1S",
    "by_duration:",
)
ROWS: Final[tuple[tuple[int, str, tuple[str, ...]], ...]] = (
    (TOPIC, "preallocate", FLAGS),
    (TOPIC, "max.message.bytes", NUMBERS),
    (TOPIC, "min.insync.replicas", NUMBERS),
    (TOPIC, "retention.ms", NUMBERS),
    (TOPIC, "min.cleanable.dirty.ratio", DOUBLES),
    (TOPIC, "compression.type", WORDS),
    (TOPIC, "message.timestamp.type", TIMES),
    (TOPIC, "cleanup.policy", LISTS),
    (TOPIC, "leader.replication.throttled.replicas", REPLICAS),
    (GROUP, "share.auto.offset.reset", RESETS),
    (
        GROUP,
        "share.isolation.level",
        ("read_committed", " read_committed ", "READ_COMMITTED", "read_committed\u00a0", ""),
    ),
    (GROUP, "streams.num.standby.replicas", ("1", " 1 ", "1\u00a0", "\u0661", "01", "+1", "")),
    (CLIENT_METRICS, "metrics", ("a", " a , b ", "a,a", "a,,b", ",", "", "*", "a\u00a0")),
    (CLIENT_METRICS, "interval.ms", ("1000", " 1000 ", "+1000", "1e3", "\u0661000", "")),
)
"""A config of each type, and what it is set to."""
Outcome = list[Any]


def outcome(wire: Wire, kind: int, resource: str, config: str, value: str) -> Outcome:
    """Name and message of the error, or the described value; the value is deleted again."""

    def alter(operation: int, text: str | None) -> tuple[int, str | None]:
        change = AlterableConfig(name=config, config_operation=operation, value=text)
        row = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[change])
        answer = wire.send(IncrementalAlterConfigsRequest(resources=[row], validate_only=False), 1).responses[0]
        return answer.error_code, answer.error_message

    code, message = alter(SET, value)
    if code != NONE:
        return [name_of(code), message]
    described_value = described(wire, kind, resource, config, is_set=True)
    alter(DELETE, None)
    described(wire, kind, resource, config, is_set=False)
    return ["NONE", described_value]


def described(wire: Wire, kind: int, resource: str, config: str, *, is_set: bool) -> str | None:
    """The value of a config once it is set, or deleted; Apache Kafka takes a moment."""
    asked = DescribeConfigsResource(resource_type=kind, resource_name=resource, configuration_keys=[config])
    end = time.monotonic() + 10
    while time.monotonic() < end:
        answer = wire.send(DescribeConfigsRequest(resources=[asked]), 4).results[0]
        for row in answer.configs:
            if (row.config_source in DYNAMIC) == is_set:
                value: str | None = row.value
                return value
        if not answer.configs and not is_set and answer.error_code == NONE:
            return None
        time.sleep(0.01)
    raise TimeoutError(f"{config} did not change")


DYNAMIC: Final = frozenset({1, 7, 8})
"""Sources: dynamic configs of topics, client metrics and groups."""


def outcomes(wire: Wire) -> dict[str, dict[str, Outcome]]:
    """Outcome of every value, by config and value."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    wire.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    return {
        config: {value: outcome(wire, kind, name, config, value) for value in values} for kind, config, values in ROWS
    }


def recorded() -> dict[str, dict[str, Outcome]]:
    """Return the recorded outcomes."""
    recordings: dict[str, dict[str, Outcome]] = json.loads(FILE.read_text(encoding="utf-8"))
    return recordings


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    wire = Wire((host, int(port)), is_kafka=True)
    FILE.write_text(json.dumps(outcomes(wire), indent=1) + "\n", encoding="utf-8")
    wire.close()


if __name__ == "__main__":
    main()
