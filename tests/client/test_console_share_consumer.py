"""`ottla console-share-consumer`: what it writes, and what it does with records."""

import json

import pytest
from click.testing import CliRunner, Result

from ottla.cli.main import main

from .conftest import Produce


def run(bootstrap_servers: str, topic: str, share_group: str, *words: str) -> Result:
    where = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--group", share_group]
    return CliRunner().invoke(main, ["console-share-consumer", *where, *words])


def test_values(bootstrap_servers: str, topic: str, share_group: str, produce: Produce) -> None:
    produce(topic, 3)
    result = run(bootstrap_servers, topic, share_group, "--max-messages", "3", "--enable-systest-events")
    assert (result.exit_code, result.stdout) == (0, "v0\nv1\nv2\nshutdown_complete\n")
    assert result.stderr == "Processed a total of 3 messages\n"
    # They were accepted.
    assert run(bootstrap_servers, topic, share_group, "--timeout-ms", "700").stdout == ""


def test_everything_of_a_record(bootstrap_servers: str, topic: str, share_group: str, produce: Produce) -> None:
    produce(topic, 1)
    parts = [
        f"print.{part}=true" for part in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
    ]
    words = [word for part in [*parts, "key.separator=|"] for word in ("--formatter-property", part)]
    result = run(bootstrap_servers, topic, share_group, "--max-messages", "1", *words)
    stamp, rest = result.stdout.split("|", 1)
    assert stamp.startswith("CreateTime:1")
    assert rest == "Partition:0|Offset:0|Delivery:1|Epoch:NOT_PRESENT|NO_HEADERS|k0|v0\n"


def test_a_record_as_json(bootstrap_servers: str, topic: str, share_group: str, produce: Produce) -> None:
    produce(topic, 1)
    result = run(bootstrap_servers, topic, share_group, "--max-messages", "1", "--json")
    record = json.loads(result.stdout)
    assert (record["offset"], record["key"], record["value"], record["delivery_count"]) == (0, "k0", "v0", 1)


@pytest.mark.parametrize(("flag", "left"), [("--release", "v0\n"), ("--reject", "")])
def test_release_and_reject(
    bootstrap_servers: str, topic: str, share_group: str, produce: Produce, flag: str, left: str
) -> None:
    produce(topic, 1)
    assert run(bootstrap_servers, topic, share_group, flag, "--max-messages", "1").stdout == "v0\n"
    again = run(bootstrap_servers, topic, share_group, "--max-messages", "1", "--timeout-ms", "1500")
    assert again.stdout == left


def test_a_record_that_cannot_be_written_is_an_error_or_rejected(
    bootstrap_servers: str, topic: str, share_group: str, produce: Produce
) -> None:
    produce(topic, 1)
    words = ["--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer", "--max-messages", "1"]
    result = run(bootstrap_servers, topic, share_group, *words)
    assert result.exit_code == 1
    assert f"ottla: the record {topic}-0@0 cannot be written: 2 bytes are not a number of 8 bytes\n" in result.stderr
    rejected = run(bootstrap_servers, topic, share_group, *words, "--reject-message-on-error")
    assert (rejected.exit_code, rejected.stdout) == (0, "")
    assert run(bootstrap_servers, topic, share_group, "--timeout-ms", "1500").stdout == ""


def test_old_names_of_options(bootstrap_servers: str, topic: str, share_group: str, produce: Produce) -> None:
    produce(topic, 1)
    words = ["--property", "print.key=true", "--consumer-property", "client.id=old", "--max-messages", "1"]
    result = run(bootstrap_servers, topic, share_group, *words)
    assert result.stdout == "k0\tv0\n"
    assert result.stderr.splitlines()[:2] == [
        f"Option --{old} is deprecated and will be removed in a future version. Use --{new} instead."
        for old, new in (("property", "formatter-property"), ("consumer-property", "command-property"))
    ]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--release", "--reject"], "at most one of --release and --reject"),
        (["--formatter", "Odd"], "Odd is not a formatter"),
        (["--key-deserializer", "Odd"], "Odd is not a deserializer"),
        (["--formatter-property", "odd"], "a property must be NAME=VALUE"),
    ],
)
def test_wrong_usage(bootstrap_servers: str, words: list[str], why: str) -> None:
    result = run(bootstrap_servers, "t", "g", *words)
    assert result.exit_code == 2
    assert why in result.stderr
