"""`ottla configs` and `ottla client-metrics`, on Ottla and on Apache Kafka."""

from pathlib import Path

import pytest

from ottla import Admin
from ottla.cli.kafka.config_quotas import java_double
from tests.conformance.members import wait_for

from .commands import Commands
from .conftest import fresh


def test_configs_of_a_topic(commands: Commands, topic: str, tmp_path: Path) -> None:
    where = ["--topic", topic]
    changed = commands.output(
        "configs", "--alter", *where, "--add-config", "retention.ms=5,cleanup.policy=[compact,delete]"
    )
    assert changed == f"Completed updating config for topic {topic}.\n"
    wait_for(lambda: "retention.ms=5 " in commands.output("configs", "--describe", *where))
    assert commands.output("configs", "--describe", *where) == (
        f"Dynamic configs for topic {topic} are:\n"
        " cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
        " retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5}\n"
    ).replace("retention.ms=5}", "retention.ms=5}")
    everything = commands.output("configs", "--describe", "--entity-type", "topics", "--entity-name", topic, "--all")
    assert everything.startswith(f"All configs for topic {topic} are:\n")
    assert " segment.bytes=1073741824 sensitive=false" in everything
    file = tmp_path / "more.properties"
    file.write_text("segment.ms=70000\n", encoding="utf-8")
    commands.output("configs", "--alter", *where, "--add-config-file", str(file), "--delete-config", "cleanup.policy")
    wait_for(
        lambda: (
            {entry["name"] for entry in commands.json("configs", "--describe", *where)[0]["configs"]}
            == {"retention.ms", "segment.ms"}
        )
    )
    assert "Unknown topic config name: odd" in commands.refused("configs", "--alter", *where, "--add-config", "odd=1")
    assert "topic no-such-topic does not exist" in commands.refused("configs", "--describe", "--topic", "no-such-topic")


def test_configs_of_brokers(commands: Commands, admin: Admin) -> None:
    (node,) = (str(broker.id) for broker in admin.describe_cluster().nodes)
    assert commands.output("configs", "--alter", "--broker", node, "--add-config", "log.cleaner.backoff.ms=15001") == (
        f"Completed updating config for broker {node}.\n"
    )
    wait_for(lambda: "15001" in commands.output("configs", "--describe", "--broker", node))
    assert commands.output(
        "configs", "--alter", "--broker-defaults", "--add-config", "log.cleaner.backoff.ms=15002"
    ) == ("Completed updating default config for brokers in the cluster.\n")
    wait_for(
        lambda: "15002" in commands.output("configs", "--describe", "--entity-type", "brokers", "--entity-default")
    )
    output = commands.output("configs", "--describe", "--entity-type", "brokers")
    assert f"Dynamic configs for broker {node} are:\n log.cleaner.backoff.ms=15001 sensitive=false" in output
    assert "Default configs for brokers in the cluster are:\n log.cleaner.backoff.ms=15002 sensitive=false" in output
    for where in (["--broker", node], ["--broker-defaults"]):
        commands.output("configs", "--alter", *where, "--delete-config", "log.cleaner.backoff.ms")
    assert commands.output("configs", "--describe", "--broker-logger", node).startswith(
        f"Dynamic configs for broker-logger {node} are:\n"
    )


def test_configs_of_groups(commands: Commands) -> None:
    group = fresh("g")
    commands.output("configs", "--alter", "--group", group, "--add-config", "consumer.session.timeout.ms=50000")
    wait_for(lambda: commands.run("configs", "--describe", "--group", group).exit_code == 0)
    assert " consumer.session.timeout.ms=50000 sensitive=false" in commands.output(
        "configs", "--describe", "--entity-type", "groups"
    )
    commands.output("configs", "--alter", "--group", group, "--delete-config", "consumer.session.timeout.ms")


@pytest.mark.parametrize(
    ("option", "config"), [("--group", "share.isolation.level"), ("--client-metrics", "interval.ms")]
)
def test_defaults_of_resources_without_configs_are_described(commands: Commands, option: str, config: str) -> None:
    name = fresh("n")
    assert f" {config}=" in commands.output("configs", "--describe", option, name, "--all")
    assert "has no configs" in commands.refused("configs", "--describe", option, name)


def test_quotas_and_credentials(commands: Commands) -> None:
    user = fresh("u")
    assert commands.output(
        "configs", "--alter", "--user", user, "--client", "c", "--add-config", "producer_byte_rate=5"
    ) == ("Completed updating config for client c.\n")
    both = ["--entity-type", "users", "--entity-name", user, "--entity-type", "clients", "--entity-name", "c"]
    expected = f"Quota configs for user-principal '{user}', client-id 'c' are producer_byte_rate=5.0\n"
    wait_for(lambda: commands.output("configs", "--describe", *both) == expected)
    default = ["--entity-type", "users", "--entity-name", user, "--entity-type", "clients", "--entity-default"]
    commands.output("configs", "--alter", *default, "--add-config", "consumer_byte_rate=20000000")
    of_default = f"Quota configs for user-principal '{user}', the default client-id are consumer_byte_rate=2.0E7\n"
    wait_for(lambda: commands.output("configs", "--describe", *default) == of_default)
    words = ["--alter", "--user", user, "--client-defaults", "--add-config", "consumer_byte_rate=20000000"]
    assert commands.output("configs", *words) == f"Completed updating config for user {user}.\n"
    secret = "SCRAM-SHA-256=[iterations=8192,password=pw]"
    commands.output("configs", "--alter", "--user", user, "--add-config", secret)
    scram = f"SCRAM credential configs for user-principal '{user}' are SCRAM-SHA-256=iterations=8192\n"
    wait_for(lambda: commands.output("configs", "--describe", "--user", user) == scram)
    assert scram in commands.output("configs", "--describe", "--entity-type", "users")
    assert "cannot be changed together" in commands.refused(
        "configs", "--alter", "--user", user, "--add-config", f"{secret},producer_byte_rate=1"
    )
    commands.output("configs", "--alter", "--user", user, "--delete-config", "SCRAM-SHA-256")
    commands.output("configs", "--alter", *both, "--delete-config", "producer_byte_rate")
    commands.output("configs", "--alter", *default, "--delete-config", "consumer_byte_rate")
    commands.output("configs", "--alter", "--ip", "127.9.9.9", "--add-config", "connection_creation_rate=10")
    address = "Quota configs for ip '127.9.9.9' are connection_creation_rate=10.0\n"
    wait_for(lambda: commands.output("configs", "--describe", "--ip", "127.9.9.9") == address)
    words = ["--alter", "--ip", "127.9.9.9", "--delete-config", "connection_creation_rate"]
    commands.output("configs", *words)
    wait_for(lambda: commands.output("configs", "--describe", "--ip", "127.9.9.9") == "")
    assert commands.refused("configs", *words) == "connection_creation_rate: ip '127.9.9.9' has no such quota to delete"


@pytest.mark.parametrize(
    ("value", "text"), [(5.0, "5.0"), (0.5, "0.5"), (1e7, "1.0E7"), (12345678.0, "1.2345678E7"), (1e-4, "1.0E-4")]
)
def test_numbers_as_java_prints_them(value: float, text: str) -> None:
    assert java_double(value) == text


def test_subscriptions_of_client_metrics(commands: Commands) -> None:
    name = fresh("m")
    words = ["--metrics", "org.apache.kafka.", "--interval", "2000", "--match", "client_id=x"]
    assert commands.output("client-metrics", "--alter", "--name", name, *words) == (
        f"Altered client metrics config for {name}.\n"
    )
    wait_for(lambda: name in commands.output("client-metrics", "--list").split())
    assert commands.output("client-metrics", "--describe", "--name", name) == (
        f"Client metrics configs for {name} are:\n interval.ms=2000\n match=client_id=x\n metrics=org.apache.kafka.\n"
    )
    commands.output("client-metrics", "--alter", "--name", name, "--interval", "")
    wait_for(lambda: " interval.ms=300000\n" in commands.output("client-metrics", "--describe", "--name", name))
    assert (
        commands.output("client-metrics", "--delete", "--name", name) == f"Deleted client metrics config for {name}.\n"
    )
    wait_for(lambda: name not in commands.json("client-metrics", "--list"))
    assert "doesn't exist" in commands.output("client-metrics", "--describe", "--name", name)
    generated = commands.json("client-metrics", "--alter", "--generate-name", "--interval", "5000")["altered"]
    assert len(generated) == 22
    wait_for(lambda: generated in commands.json("client-metrics", "--list"))
    commands.output("client-metrics", "--delete", "--name", generated)


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        ("configs", [], "exactly one of --describe, --alter"),
        ("configs", ["--describe"], "specify an entity"),
        ("configs", ["--alter", "--topic", "t"], "--alter requires --add-config"),
        ("configs", ["--alter", "--entity-type", "topics", "--add-config", "a=b"], "the name of one of the topics"),
        ("configs", ["--describe", "--entity-type", "topics", "--entity-default"], "topics have no default entity"),
        ("configs", ["--describe", "--topic", "t", "--user", "u"], "only users and clients can be combined"),
        ("configs", ["--describe", "--entity-type", "clients", "--user", "u"], "cannot be combined with --topic"),
        ("configs", ["--describe", "--broker", "one"], "a broker id must be a number"),
        ("configs", ["--alter", "--topic", "t", "--add-config", "a"], "a config must be NAME=VALUE"),
        ("configs", ["--alter", "--topic", "t", "--add-config", "a=b", "--delete-config", "a"], "both set and deleted"),
        ("client-metrics", ["--alter"], "either --name or --generate-name"),
        ("client-metrics", ["--delete"], "--delete requires --name"),
        ("client-metrics", ["--list", "--interval", "5"], "--interval can only be used with --alter"),
        ("client-metrics", ["--list", "--name", "m"], "--name can only be used with --alter and --delete and"),
    ],
)
def test_wrong_usage(commands: Commands, command: str, words: list[str], why: str) -> None:
    assert why in commands.misused(command, *words)
