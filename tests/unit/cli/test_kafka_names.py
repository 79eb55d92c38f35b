"""Names and flags of Kafka's scripts that users try with `ottla`."""

import pytest
from click.testing import CliRunner

from ottla.cli.main import main

SAME = [
    "acls", "broker-api-versions", "client-metrics", "cluster", "configs", "console-consumer", "console-producer",
    "console-share-consumer", "consumer-groups", "consumer-perf-test", "delegation-tokens", "delete-records", "dump-log",
    "e2e-latency", "features", "get-offsets", "groups", "leader-election", "log-dirs", "metadata-quorum",
    "producer-perf-test", "reassign-partitions", "replica-verification", "share-consumer-perf-test", "share-groups",
    "storage", "streams-application-reset", "streams-groups", "topics", "transactions", "verifiable-consumer",
    "verifiable-producer", "verifiable-share-consumer",
]  # fmt: skip
"""Scripts of Kafka 4.4 that are commands."""

OTHERS = [
    "connect-distributed.sh", "connect-mirror-maker.sh", "connect-plugin-path.sh", "connect-standalone.sh", "kafka-jmx.sh",
    "kafka-metadata-shell.sh", "kafka-run-class.sh", "kafka-server-start.sh", "kafka-server-stop.sh", "trogdor.sh",
    "kafka-mirror-maker.sh", "kafka-preferred-replica-election.sh", "zookeeper-shell.sh", "zookeeper-server-start.sh",
    "zookeeper-server-stop.sh", "zookeeper-security-migration.sh", "kafka-oauth-compatibility-tool.sh",
]  # fmt: skip
"""Scripts of Kafka 4.4, and of earlier releases in the second half, that are no commands."""


@pytest.mark.parametrize("name", SAME)
def test_names_of_kafkas_scripts_are_commands(name: str) -> None:
    for spelling in (f"kafka-{name}", f"kafka-{name}.sh", f"{name}.bat"):
        result = CliRunner().invoke(main, [spelling, "--help"])
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith(f"Usage: main {name} ")


@pytest.mark.parametrize("name", [*SAME, "serve", "status", "top", "console", "pipeline"])
def test_each_command_shows_the_version(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--version"])
    assert (result.exit_code, result.stdout.split()[0]) == (0, "ottla"), result.output


@pytest.mark.parametrize("name", OTHERS)
def test_a_script_without_a_command_says_what_to_use(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 2
    assert f"no such command {name}; " in result.stderr


def test_a_misspelt_script_is_answered_with_the_nearest_command() -> None:
    assert "did you mean topics?" in CliRunner().invoke(main, ["kafka-tpics.sh"]).stderr


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("topics --zookeeper localhost:2181 --list", "use --bootstrap-server: Ottla has no ZooKeeper"),
        ("topics --alter --topic t --delete-config retention.ms", "use `ottla configs --alter"),
        ("topics --list --force", "leave it out"),
        ("console-producer --broker-list localhost:9092 --topic t", "use --bootstrap-server"),
        ("console-consumer --new-consumer --topic t", "leave it out"),
        ("console-consumer --whitelist t.*", "use --include"),
        ("console-consumer --blacklist t.*", "use --include"),
        ("acls --authorizer-properties a=b --list", "use --bootstrap-server"),
        ("acls --bootstrap-controller localhost:9093 --list", "use --bootstrap-server: a broker answers"),
        ("configs --bootstrap-controller localhost:9093 --describe", "use --bootstrap-server: a broker answers"),
        ("features --bootstrap-controller localhost:9093 describe", "use --bootstrap-server: a broker answers"),
        ("metadata-quorum --bootstrap-controller localhost:9093 describe", "use --bootstrap-server: a broker answers"),
        ("cluster cluster-id --bootstrap-controller localhost:9093", "use --bootstrap-server: a broker answers"),
        (
            "reassign-partitions --bootstrap-controller localhost:9093 --list",
            "use --bootstrap-server: a broker answers",
        ),
        ("consumer-perf-test --threads 1 --topic t", "leave it out"),
        ("replica-verification --topic-white-list t", "use --topics-include"),
    ],
)
def test_a_flag_that_is_not_there_says_what_to_use(words: str, advice: str) -> None:
    result = CliRunner().invoke(main, words.split())
    assert result.exit_code == 2
    flag = next(word for word in words.split() if f"no such option {word};" in result.stderr)
    assert f"no such option {flag}; {advice}" in result.stderr
