"""`ottla console-producer` and `ottla console-consumer`, on both brokers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla import Consumer, Producer, TopicPartition
from ottla.cli.main import main

from .conftest import Produce, fresh


def produce_lines(bootstrap_servers: str, topic: str, text: str, *words: str) -> Result:
    command = ["console-producer", "--bootstrap-server", bootstrap_servers, "--topic", topic, *words]
    return CliRunner().invoke(main, command, input=text)


def consume(bootstrap_servers: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["console-consumer", "--bootstrap-server", bootstrap_servers, *words])


def everything(*names: str) -> list[str]:
    return [word for name in names for word in ("--formatter-property", name)]


def test_lines_there_and_back(bootstrap_servers: str) -> None:
    topic = fresh()
    sent = produce_lines(bootstrap_servers, topic, "one\ntwo\r\n\nlast without an end")
    assert (sent.exit_code, sent.output) == (0, "")
    result = consume(bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", "4")
    assert (result.exit_code, result.stdout) == (0, "one\ntwo\n\nlast without an end\n")
    assert result.stderr == "Processed a total of 4 messages\n"


@pytest.mark.parametrize(
    "words", [["--sync"], ["--compression-codec"], ["--compression-codec", "zstd"], ["--request-required-acks", "1"]]
)
def test_ways_to_send(bootstrap_servers: str, words: list[str]) -> None:
    topic = fresh()
    assert produce_lines(bootstrap_servers, topic, "a\nb\n", *words).exit_code == 0
    result = consume(bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", "2")
    assert result.stdout == "a\nb\n"


def test_keys_and_headers(bootstrap_servers: str, topic: str) -> None:
    properties = ["parse.key=true", "parse.headers=true", "key.separator=|", "null.marker=NULL"]
    words = [word for setting in properties for word in ("--reader-property", setting)]
    lines = "h1:v1,h2:v2\tkey|value\nNULL\tNULL|NULL\n"
    assert produce_lines(bootstrap_servers, topic, lines, *words).exit_code == 0
    shown = everything("print.key=true", "print.headers=true", "key.separator=|", "null.literal=-")
    result = consume(bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", "2", *shown)
    assert sorted(result.stdout.splitlines()) == ["NO_HEADERS|-|-", "h1:v1,h2:v2|key|value"]


def test_records_as_json(bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.produce(topic, b"\xff\xc3\xb6", "k", headers=[("h", b"1"), ("none", None)], timestamp=1000)
        producer.produce(topic, None, b"\0\0\0\7", timestamp=2000)
    result = consume(bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", "2", "--json")
    first, second = sorted(map(json.loads, result.stdout.splitlines()), key=lambda record: record["timestamp"])
    assert first == {
        "topic": topic,
        "partition": first["partition"],
        "offset": first["offset"],
        "timestamp": 1000,
        "timestamp_type": "CreateTime",
        "leader_epoch": first["leader_epoch"],
        "headers": [["h", "1"], ["none", None]],
        "key": "k",
        "value": "\ufffd\u00f6",
    }
    assert (second["key"], second["value"], second["headers"]) == ("\0\0\0\7", None, [])
    words = ["--key-deserializer", "IntegerDeserializer", "--skip-message-on-error"]
    again = consume(bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", "2", "--json", *words)
    assert [json.loads(line)["key"] for line in again.stdout.splitlines()] == ["7"]


def test_bytes_are_printed_as_kafkas_class_bytes_prints_them(bootstrap_servers: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.produce(topic, b"a \\~\xff\xfe\n\0\x7f")
    words = ["--topic", topic, "--from-beginning", "--max-messages", "1", "--value-deserializer", "BytesDeserializer"]
    assert consume(bootstrap_servers, *words).stdout == "a \\x5C~\\xFF\\xFE\\x0A\\x00\\x7F\n"


@pytest.mark.parametrize(
    ("properties", "line", "why"),
    [
        (["parse.key=true"], "no key", "No key separator found on line number 2: 'no key'"),
        (["parse.headers=true"], "no delimiter", "No headers delimiter found on line number 2: 'no delimiter'"),
        (["parse.headers=true"], "odd\tv", "No header key separator found in pair 'odd' on line number 2"),
    ],
)
def test_lines_that_cannot_be_read(
    bootstrap_servers: str, topic: str, properties: list[str], line: str, why: str
) -> None:
    words = [word for setting in properties for word in ("--reader-property", setting)]
    good = "k\tv" if "parse.key=true" in properties else "h:x\tv"
    result = produce_lines(bootstrap_servers, topic, f"{good}\n{line}\n", *words)
    assert (result.exit_code, result.stderr) == (1, f"ottla: {why}\n")
    # What came before is there, and ignore.error lets the rest through.
    words += ["--reader-property", "ignore.error=true"]
    assert produce_lines(bootstrap_servers, topic, f"{line}\n", *words).exit_code == 0
    read = consume(bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", "2")
    assert "v" in read.stdout.splitlines()


def test_one_partition_from_an_offset(bootstrap_servers: str, topic: str, produce: Produce) -> None:
    produce(topic, 5)
    where = ["--topic", topic, "--partition", "0"]
    for words, expected in (
        (["--offset", "3"], "v3\nv4\n"),
        (["--offset", "earliest", "--max-messages", "2"], "v0\nv1\n"),
        (["--from-beginning", "--max-messages", "1"], "v0\n"),
        ([], ""),
    ):
        assert consume(bootstrap_servers, *where, *words, "--timeout-ms", "700").stdout == expected


def test_print_value_false_prints_nothing(bootstrap_servers: str, topic: str, produce: Produce) -> None:
    produce(topic, 2)
    words = ["--from-beginning", "--max-messages", "2", "--formatter-property", "print.value=false"]
    assert consume(bootstrap_servers, "--topic", topic, *words).stdout == ""


def test_a_group_goes_on_where_it_was(bootstrap_servers: str, topic: str, produce: Produce) -> None:
    produce(topic, 4)
    group = fresh("g")
    words = ["--topic", topic, "--group", group, "--from-beginning", "--max-messages", "2"]
    assert consume(bootstrap_servers, *words).stdout == "v0\nv1\n"
    assert consume(bootstrap_servers, *words, "--enable-systest-events").stdout == "v2\nv3\nshutdown_complete\n"
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=group) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset == 4


def test_topics_by_pattern(bootstrap_servers: str) -> None:
    mark = fresh("p")
    for name in "ab":
        assert produce_lines(bootstrap_servers, f"{mark}-{name}", f"of {name}\n").exit_code == 0
    result = consume(bootstrap_servers, "--include", f"{mark}-.", "--from-beginning", "--max-messages", "2")
    assert sorted(result.stdout.splitlines()) == ["of a", "of b"]


def test_a_record_that_cannot_be_written_is_an_error_or_skipped(
    bootstrap_servers: str, topic: str, produce: Produce
) -> None:
    produce(topic, 2)
    words = ["--topic", topic, "--from-beginning", "--value-deserializer", "LongDeserializer", "--max-messages", "2"]
    result = consume(bootstrap_servers, *words)
    assert result.exit_code == 1
    assert f"ottla: the record {topic}-0@0 cannot be written: 2 bytes are not a number of 8 bytes\n" in result.stderr
    skipped = consume(bootstrap_servers, *words, "--skip-message-on-error")
    assert (skipped.exit_code, skipped.stdout) == (0, "")


def test_records_after_one_that_cannot_be_written_are_left_to_the_group(
    bootstrap_servers: str, topic: str, produce: Produce
) -> None:
    produce(topic, 4)
    group = fresh("g")
    words = ["--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", "1500"]
    assert consume(bootstrap_servers, *words, "--value-deserializer", "LongDeserializer").exit_code == 1
    assert consume(bootstrap_servers, *words).stdout == "v1\nv2\nv3\n"


def test_old_names_of_options(bootstrap_servers: str, topic: str) -> None:
    sent = produce_lines(
        bootstrap_servers, topic, "k:v\n", "--property", "parse.key=true", "--property", "key.separator=:",
        "--producer-property", "client.id=old",
    )  # fmt: skip
    assert sent.exit_code == 0
    assert "Use --reader-property instead." in sent.stderr
    assert "Use --command-property instead." in sent.stderr
    read = consume(
        bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", "1", "--property", "print.key=true"
    )
    assert read.stdout == "k\tv\n"
    assert "Use --formatter-property instead." in read.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "exactly one of --topic and --include"),
        (["--topic", "t", "--include", "t"], "exactly one of --topic and --include"),
        (["--include", "t", "--partition", "1"], "--partition requires --topic"),
        (["--include", "["], "--include [: unterminated character set"),
        (["--topic", "t", "--offset", "1"], "--offset requires --partition"),
        (["--topic", "t", "--partition", "0", "--offset", "odd"], "a number, earliest or latest"),
        (["--topic", "t", "--partition", "0", "--offset", "1", "--from-beginning"], "cannot be combined"),
        (["--topic", "t", "--partition", "0", "--group", "g"], "--group and --partition cannot be combined"),
        (["--topic", "t", "--partition", "0", "--command-property", "group.id=g"], "group.id and --partition"),
        (["--topic", "t", "--isolation-level", "odd"], "'odd' is not one of"),
        (
            ["--topic", "t", "--json", "--formatter", "NoOpMessageFormatter"],
            "--json and --formatter cannot be combined",
        ),
    ],
)
def test_wrong_usage(bootstrap_servers: str, words: list[str], why: str) -> None:
    result = consume(bootstrap_servers, *words)
    assert result.exit_code == 2
    assert why in result.stderr


def test_failures_are_one_line(bootstrap_servers: str) -> None:
    command = ["console-producer", "--bootstrap-server", "127.0.0.1:1", "--topic", "t", "--max-block-ms", "300"]
    result = CliRunner().invoke(main, command, input="x\n")
    assert result.exit_code == 1
    assert result.stderr.startswith("ottla: topic t: no broker answered within 300 ms: 127.0.0.1:1: Connection refused")
    assert result.stderr.count("\n") == 1
    unknown = consume(bootstrap_servers, "--topic", "t", "--command-property", "group.ix=g")
    assert (unknown.exit_code, unknown.stderr) == (1, "ottla: group.ix is no client config; did you mean group.id?\n")


@pytest.mark.parametrize(
    ("servers", "topic", "message"),
    [
        ("127.0.0.1:1", "t", "broker 127.0.0.1:1: Connection refused"),
        (None, "missing", "topic missing does not exist (asked for since "),
    ],
    ids=["unreachable broker", "missing topic"],
)
def test_the_reason_for_missing_records_is_on_standard_error(
    bootstrap_servers: str, servers: str | None, topic: str, message: str
) -> None:
    """Nothing was printed for 100 s."""
    command = [str(Path(sys.executable).with_name("ottla")), "console-consumer", "--topic", topic]
    command += ["--bootstrap-server", servers or bootstrap_servers, "--timeout-ms", "6000"]
    command += ["--command-property", "allow.auto.create.topics=false"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert message in done.stderr
    assert done.stdout == ""
