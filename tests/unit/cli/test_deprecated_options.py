"""Old names of options: a warning, and not beside the new name, as in Kafka's tools."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.cli.main import main

WHERE = ["--bootstrap-server", "127.0.0.1:1"]
TOPIC = [*WHERE, "--topic", "t"]
PERF = ["--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "1"]


@pytest.mark.parametrize(
    ("command", "words", "old", "new"),
    [
        ("cluster", ["cluster-id", *WHERE], "--config", "--command-config"),
        ("console-consumer", TOPIC, "--consumer-property", "--command-property"),
        ("console-consumer", TOPIC, "--consumer.config", "--command-config"),
        ("console-consumer", TOPIC, "--property", "--formatter-property"),
        ("console-producer", TOPIC, "--producer-property", "--command-property"),
        ("console-producer", TOPIC, "--producer.config", "--command-config"),
        ("console-producer", TOPIC, "--property", "--reader-property"),
        ("console-share-consumer", TOPIC, "--property", "--formatter-property"),
        ("consumer-perf-test", [*TOPIC, "--num-records", "1"], "--consumer.config", "--command-config"),
        ("leader-election", [*WHERE, "--election-type", "preferred"], "--admin.config", "--command-config"),
        ("producer-perf-test", PERF, "--producer-props", "--command-property"),
        ("producer-perf-test", PERF, "--producer.config", "--command-config"),
        ("verifiable-consumer", [*TOPIC, "--group-id", "g"], "--consumer.config", "--command-config"),
        ("verifiable-producer", TOPIC, "--producer.config", "--command-config"),
    ],
)
def test_both_names_of_an_option(command: str, words: list[str], old: str, new: str, tmp_path: Path) -> None:
    value = "a=b"
    if new.endswith("config"):
        value = str(tmp_path / "client.properties")
        Path(value).write_text("client.id=x\n", encoding="utf-8")
    result = CliRunner().invoke(main, [command, *words, old, value, new, value])
    assert result.exit_code == 2
    assert f"{old} and {new} cannot be specified together" in result.output


def test_the_number_of_messages() -> None:
    result = CliRunner().invoke(main, ["consumer-perf-test", *TOPIC, "--messages", "1", "--num-records", "1"])
    assert result.exit_code == 2
    assert "--messages and --num-records cannot be specified together" in result.output
