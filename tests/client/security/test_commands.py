"""Commands with security: --command-config and profiles, with secrets from elsewhere."""

import json
from collections.abc import Mapping
from pathlib import Path
from shlex import quote, split
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla import Producer
from ottla.cli.main import main

from .conftest import Configs, Logins, fresh

PROVIDER = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
}
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def write(path: Path, configs: Mapping[str, str]) -> str:
    """Write a properties file."""
    path.write_text("".join(f"{name}={value}\n" for name, value in configs.items()))
    return str(path)


def jaas(configs: Configs, password: str) -> dict[str, str]:
    """Configs with a JAAS text in place of the arguments, as a properties file has them."""
    texts = {name: str(value) for name, value in configs.items() if name not in ("sasl_username", "sasl_password")}
    return texts | {"sasl.jaas.config": f'{JAAS} username="alice" password="{password}";'}


def ottla(*words: str, text: str | None = None) -> Result:
    result = CliRunner().invoke(main, words, input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_secrets_of_the_environment_in_a_command_config(
    logins: Logins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_TEST_PASSWORD", "alice-secret")
    file = write(tmp_path / "c", jaas(logins.sasl(listener="SASLTLS"), "${env:OTTLA_TEST_PASSWORD}") | PROVIDER)
    topic = fresh()
    for words in (["--create", "--topic", topic], ["--list"]):
        result = ottla("topics", "--command-config", file, *words)
        assert result.exit_code == 0, result.output
        assert "alice-secret" not in result.output
    assert topic in result.output


def test_secrets_of_the_environment_in_a_profile(
    logins: Logins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_TEST_PASSWORD", "alice-secret")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "ottla").mkdir()
    configs = jaas(logins.sasl(), "${env:OTTLA_TEST_PASSWORD}") | PROVIDER
    path = tmp_path / "ottla" / "profiles.toml"
    path.write_text("[secured]\n" + "".join(f'"{name}" = {json.dumps(value)}\n' for name, value in configs.items()))
    path.chmod(0o600)
    topic = fresh()
    assert ottla("topics", "--profile", "secured", "--create", "--topic", topic).exit_code == 0
    assert topic in ottla("topics", "--profile", "secured", "--list").output


# Every command that connects to a cluster, with the properties of a login over TLS.

COMMANDS = [
    "broker-api-versions {c}",
    "client-metrics {c} --list",
    "cluster cluster-id {c}",
    "cluster list-endpoints {c}",
    "configs {c} --describe --entity-type topics --entity-name {t}",
    "console-producer {c} --topic {t}",
    "console-producer --producer.config {f} --topic {t}",
    "console-consumer {c} --topic {t} --from-beginning --max-messages 1 --timeout-ms 20000",
    "console-consumer --consumer.config {f} --topic {t} --from-beginning --max-messages 1 --timeout-ms 20000",
    "console-share-consumer {c} --topic {t} --timeout-ms 500",
    "producer-perf-test {c} --topic {t} --num-records 10 --throughput -1 --record-size 10",
    "consumer-perf-test {c} --topic {t} --num-records 1",
    "share-consumer-perf-test {c} --topic {t} --num-records 1 --timeout 500",
    "e2e-latency {c} --topic {t} --num-records 3 --producer-acks all --record-size 10",
    "consumer-groups {c} --list",
    "share-groups {c} --list",
    "groups {c} --list",
    "get-offsets {c} --topic {t}",
    "delete-records {c} --offset-json-file {o}",
    "features {c} describe",
    "metadata-quorum {c} describe --status",
    "streams-application-reset {c} --application-id {g} --dry-run",
    "leader-election {c} --election-type preferred --all-topic-partitions",
    "log-dirs {c} --describe --topic-list {t}",
    "reassign-partitions {c} --list",
    "replica-verification {c} --once",
    "status {c}",
    "top {c} --json --iterations 1",
    "topics {c} --describe --topic {t}",
    "transactions {c} list",
    "verifiable-producer {c} --topic {t} --max-messages 3",
    "verifiable-consumer {c} --topic {t} --group-id {g} --max-messages 1",
    "verifiable-share-consumer {c} --topic {t} --group-id {g} --max-messages 1 --offset-reset-strategy earliest",
    "delegation-tokens {c} --describe",
    "streams-groups {c} --list",
]


@pytest.fixture
def secured_topic(logins: Logins) -> str:
    """A topic with a record."""
    name = fresh()
    with Producer(logins.sasl()) as producer:
        producer.send(name, "v").result(30)
    return name


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_logs_in(logins: Logins, secured_topic: str, tmp_path: Path, command: str) -> None:
    file = write(tmp_path / "c", jaas(logins.sasl(listener="SASLTLS"), "alice-secret"))
    offsets = {"version": 1, "partitions": [{"topic": secured_topic, "partition": 0, "offset": 1}]}
    (tmp_path / "offsets").write_text(json.dumps(offsets))
    values = {"f": quote(file), "t": secured_topic, "g": fresh("g"), "o": quote(str(tmp_path / "offsets"))}
    text = command.format(c=f"--command-config {quote(file)}", **values)
    result = ottla(*split(text), text="hello\n")
    assert result.exit_code == 0, result.output
    assert "alice-secret" not in result.output


def test_every_command_is_tried() -> None:
    group: Any = main
    local = {
        "console",
        "dump-log",
        "pipeline",
        "query",
        "schema-registry",
        "schemas",
        "serve",
        "spark-checkpoint",
        "storage",
    }
    elsewhere = {"acls"}  # needs an authorizer: test_acls_command.py
    assert {command.split()[0] for command in COMMANDS} == set(group.list_commands(None)) - local - elsewhere


@pytest.mark.parametrize(
    "command",
    [
        "topics --command-config {f} --list",
        "console-producer --command-config {f} --topic t",
        "console-consumer --command-config {f} --topic t",
        "consumer-groups --command-config {f} --list",
        "status --command-config {f}",
    ],
)
def test_a_wrong_password_is_one_line_without_the_password(logins: Logins, tmp_path: Path, command: str) -> None:
    file = write(tmp_path / "c", jaas(logins.sasl(), "hidden-1"))
    result = ottla(*split(command.format(f=quote(file))), text="hello\n")
    assert result.exit_code == 1
    assert "hidden-1" not in result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("ottla: ")]
    assert len(lines) == 1, result.stderr
    assert "Authentication failed: Invalid username or password" in lines[0]


def test_a_key_store_in_properties(logins: Logins, tmp_path: Path) -> None:
    configs = logins.at("MTLS") | {"security.protocol": "SSL"} | logins.trusting() | logins.holding("alice")
    assert ottla("topics", "--command-config", write(tmp_path / "c", configs), "--list").exit_code == 0


def test_a_verifiable_producer_with_a_wrong_password_reports_it_in_events(logins: Logins, tmp_path: Path) -> None:
    """The exit code is 0, as that of Kafka's tool: its reader judges by the events."""
    file = write(tmp_path / "c", jaas(logins.sasl(), "hidden-1"))
    result = ottla("verifiable-producer", "--command-config", file, "--topic", "t", "--max-messages", "2")
    assert result.exit_code == 0, result.output
    assert "hidden-1" not in result.output
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["name"] for event in events] == [
        "startup_complete",
        "producer_send_error",
        "producer_send_error",
        "shutdown_complete",
        "tool_data",
    ]
    assert events[1]["exception"] == "class org.apache.kafka.common.errors.SaslAuthenticationException"
    assert events[1]["message"].endswith("Authentication failed: Invalid username or password")
    assert (events[-1]["sent"], events[-1]["acked"]) == (2, 0)
