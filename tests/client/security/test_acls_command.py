"""`ottla acls`: adds, removes and lists ACLs with the lines of kafka-acls, on Ottla or Apache Kafka.

`tests/interop/test_acls_command.py` compares the lines with those of kafka-acls itself.
"""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from ottla import Consumer, ShareConsumer
from ottla.cli.main import main
from ottla.testing import EmbeddedBroker

from .conftest import fresh
from .test_commands import JAAS, write
from .users import Users, users

__all__ = ["users"]

RESOURCE = "ResourcePattern(resourceType={}, name={}, patternType={})"


class Acls:
    """Runs `ottla acls` with an address."""

    def __init__(self, users: Users) -> None:
        self.users = users

    def run(self, *words: str, text: str | None = None) -> Result:
        where = ["--bootstrap-server", self.users.super_configs["bootstrap.servers"]]
        result = CliRunner().invoke(main, ["acls", *where, *words], input=text)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        self.users.settled()
        return result

    def lines(self, *words: str, text: str | None = None) -> list[str]:
        """Lines of a command that succeeds."""
        result = self.run(*words, text=text)
        assert result.exit_code == 0, result.output
        return [line for line in result.stdout.split("\n") if line]

    def json(self, *words: str) -> Any:
        result = self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def misused(self, *words: str) -> str:
        """Last line about a wrong usage."""
        result = self.run(*words)
        assert result.exit_code == 2, result.output
        assert not result.stdout
        return result.stderr.splitlines()[-1].removeprefix("Error: ")

    def listed(self, *words: str) -> set[str]:
        """ACLs as "TYPE name PATTERN: principal host OPERATION PERMISSION"."""
        return {
            f"{acl['resource_type']} {acl['name']} {acl['pattern_type']}: {acl['principal']} {acl['host']} "
            f"{acl['operation']} {acl['permission_type']}"
            for acl in self.json("--list", *words)
        }


@pytest.fixture
def acls(users: Users) -> Acls:
    return Acls(users)


def entry(principal: str, operation: str, permission: str = "ALLOW", host: str = "*") -> str:
    return f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"


def test_add_list_and_remove(acls: Acls) -> None:
    topic = fresh()
    pattern = RESOURCE.format("TOPIC", topic, "LITERAL")
    words = ["--topic", topic, "--allow-principal", "User:bob", "--operation", "Read", "--operation", "write"]
    expected = [f"\t{entry('User:bob', 'READ')}", f"\t{entry('User:bob', 'WRITE')}"]
    assert acls.lines("--add", *words) == [f"Adding ACLs for resource `{pattern}`: ", f" {expected[0]}", expected[1]]
    listed = [f"Current ACLs for resource `{pattern}`:", *expected]
    assert acls.lines("--list", "--topic", topic) == listed
    assert acls.lines("--list") == listed
    assert acls.lines("--list", "--principal", "User:bob") == ["ACLs for principal `User:bob`", *listed]
    assert acls.lines("--list", "--principal", "User:eve") == ["ACLs for principal `User:eve`"]
    again = f"(pattern={pattern}, entry={entry('User:bob', 'READ')})"
    assert acls.lines("--add", *words[:6]) == [f"Acl {again} already exists."]
    assert acls.lines("--remove", *words[:6], "--force") == []
    assert acls.lines("--list", "--topic", topic) == [listed[0], listed[2]]


def test_hosts_and_denials(acls: Acls) -> None:
    topic = fresh()
    acls.lines(
        *[
            "--add",
            "--topic",
            topic,
            "--operation",
            "Read",
            "--allow-principal",
            "User:*",
            "--allow-host",
            "10.0.0.0/8",
        ],
        *["--allow-host", "::1", "--deny-principal", "User:eve", "--deny-principal", "User:mallory"],
    )
    assert acls.listed() == {
        f"TOPIC {topic} LITERAL: User:* 10.0.0.0/8 READ ALLOW",
        f"TOPIC {topic} LITERAL: User:* ::1 READ ALLOW",
        f"TOPIC {topic} LITERAL: User:eve * READ DENY",
        f"TOPIC {topic} LITERAL: User:mallory * READ DENY",
    }
    acls.lines("--remove", "--topic", topic, "--operation", "Read", "--deny-principal", "User:eve", "--force")
    assert len(acls.listed()) == 3


def test_every_type_of_resource(acls: Acls) -> None:
    for resource, operation in (
        ("--topic t", "All"),
        ("--group g", "Read"),
        ("--cluster", "Alter"),
        ("--transactional-id x", "TwoPhaseCommit"),
        ("--delegation-token d", "Describe"),
        ("--user-principal User:eve", "CreateTokens"),
    ):
        acls.lines("--add", *resource.split(), "--operation", operation, "--allow-principal", "User:bob")
    assert acls.listed() == {
        "TOPIC t LITERAL: User:bob * ALL ALLOW",
        "GROUP g LITERAL: User:bob * READ ALLOW",
        "CLUSTER kafka-cluster LITERAL: User:bob * ALTER ALLOW",
        "TRANSACTIONAL_ID x LITERAL: User:bob * TWO_PHASE_COMMIT ALLOW",
        "DELEGATION_TOKEN d LITERAL: User:bob * DESCRIBE ALLOW",
        "USER User:eve LITERAL: User:bob * CREATE_TOKENS ALLOW",
    }
    assert len(acls.listed("--group", "g", "--cluster")) == 2


def test_the_roles_of_a_producer_and_a_consumer(acls: Acls) -> None:
    principal = ["--allow-principal", "User:bob"]
    acls.lines("--add", "--producer", "--idempotent", "--topic", "t", "--transactional-id", "x", *principal)
    of_producer = {
        "TOPIC t LITERAL: User:bob * WRITE ALLOW",
        "TOPIC t LITERAL: User:bob * DESCRIBE ALLOW",
        "TOPIC t LITERAL: User:bob * CREATE ALLOW",
        "TRANSACTIONAL_ID x LITERAL: User:bob * WRITE ALLOW",
        "TRANSACTIONAL_ID x LITERAL: User:bob * DESCRIBE ALLOW",
        "CLUSTER kafka-cluster LITERAL: User:bob * IDEMPOTENT_WRITE ALLOW",
    }
    assert acls.listed() == of_producer
    acls.lines("--add", "--consumer", "--topic", "c", "--group", "g", *principal)
    assert acls.listed() - of_producer == {
        "TOPIC c LITERAL: User:bob * READ ALLOW",
        "TOPIC c LITERAL: User:bob * DESCRIBE ALLOW",
        "GROUP g LITERAL: User:bob * READ ALLOW",
    }
    acls.lines("--remove", "--consumer", "--topic", "c", "--group", "g", *principal, "--force")
    assert acls.listed() == of_producer


def test_types_of_patterns(acls: Acls) -> None:
    bob = ["--allow-principal", "User:bob", "--operation", "Read"]
    acls.lines("--add", "--topic", "foo", *bob)
    acls.lines("--add", "--topic", "foo", "--resource-pattern-type", "prefixed", *bob)
    acls.lines("--add", "--topic", "fo", "--resource-pattern-type", "PREFIXED", *bob)
    acls.lines("--add", "--topic", "*", *bob)

    def patterns(name: str, pattern_type: str) -> list[str]:
        listed = acls.json("--list", "--topic", name, "--resource-pattern-type", pattern_type)
        return [f"{acl['name']} {acl['pattern_type']}" for acl in listed]

    assert patterns("foo", "literal") == ["foo LITERAL"]
    assert patterns("foo", "prefixed") == ["foo PREFIXED"]
    assert patterns("foo", "any") == ["foo LITERAL", "foo PREFIXED"]
    assert patterns("foo", "match") == ["* LITERAL", "fo PREFIXED", "foo LITERAL", "foo PREFIXED"]
    acls.lines("--remove", "--topic", "foo", "--resource-pattern-type", "any", "--force")
    assert patterns("foo", "match") == ["* LITERAL", "fo PREFIXED"]


@pytest.mark.parametrize(
    ("answer", "is_removed"), [("y", True), ("Y", True), ("yes", False), ("n", False), ("", False)]
)
def test_removal_asks(acls: Acls, answer: str, is_removed: bool) -> None:
    words = ["--topic", "t", "--allow-principal", "User:bob", "--operation", "Read"]
    acls.lines("--add", *words)
    pattern = RESOURCE.format("TOPIC", "t", "LITERAL")
    question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
    assert acls.lines("--remove", "--topic", "t", text=f"{answer}\n") == [question]
    assert bool(acls.listed()) is not is_removed
    acls.lines("--add", *words)
    assert acls.lines("--remove", *words, text=f"{answer}\n") == [
        "Are you sure you want to remove ACLs: ",
        f" \t{entry('User:bob', 'READ')}",
        f" from resource filter `{pattern}`? (y/n)",
    ]
    assert bool(acls.listed()) is not is_removed


def test_removal_without_an_answer_removes_nothing(acls: Acls) -> None:
    acls.lines("--add", "--topic", "t", "--allow-principal", "User:bob")
    result = acls.run("--remove", "--topic", "t", text="")
    assert result.exit_code == 1
    assert "--force" in result.stderr
    assert len(acls.listed()) == 1


def test_json(acls: Acls) -> None:
    words = ["--topic", "t", "--allow-principal", "User:bob", "--operation", "Read"]
    document = {
        "resource_type": "TOPIC",
        "name": "t",
        "pattern_type": "LITERAL",
        "principal": "User:bob",
        "host": "*",
        "operation": "READ",
        "permission_type": "ALLOW",
    }
    assert acls.json("--add", *words) == {"created": [document], "existing": []}
    assert acls.json("--add", *words) == {"created": [], "existing": [document]}
    assert acls.json("--list", "--principal", "User:bob") == [document]
    assert acls.json("--list", "--principal", "User:eve") == []
    assert acls.json("--remove", "--topic", "t", "--force") == {"deleted": [document]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--topic t", "specify exactly one of --add, --remove, --list"),
        ("--add --list --topic t", "specify exactly one of --add, --remove, --list"),
        ("--add --topic t", "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."),
        ("--add --allow-principal User:b", "You must provide at least one resource: "),
        ("--add --topic t --allow-principal b", "expected a string in format principalType:principalName but got b"),
        ("--list --principal b", "expected a string in format principalType:principalName but got b"),
        (
            "--add --topic t --allow-principal User:b --resource-pattern-type any",
            "A '--resource-pattern-type' value of",
        ),
        ("--add --topic t --allow-principal User:b --resource-pattern-type x", "Invalid value for"),
        ("--add --topic t --allow-principal User:b --operation Any", "operation must not be ANY"),
        (
            "--add --group g --allow-principal User:b --operation Write",
            "ResourceType GROUP only supports operations [ALL",
        ),
        ("--remove --group g --operation Write --force", "ResourceType GROUP only supports operations [ALL"),
        (
            "--add --cluster --allow-principal User:b --operation Read",
            "ResourceType CLUSTER only supports operations [ALL",
        ),
        ("--add --topic t --allow-principal User:b --principal User:b", "The --principal option is only available if"),
        ("--add --producer --allow-principal User:b --cluster", "With --producer you must specify a --topic"),
        ("--add --idempotent --topic t --allow-principal User:b", "The --idempotent option is only available if"),
        ("--add --consumer --topic t --allow-principal User:b", "With --consumer you must specify a --topic and a"),
        ("--add --consumer --topic t --group g --cluster --allow-principal User:b", "With --consumer you must specify"),
        ("--add --producer --topic t --deny-principal User:b", "--deny-principal can't be used with --producer"),
        ("--add --producer --topic t --operation Read --allow-principal User:b", "--operation can't be used with"),
        ("--list --topic t --allow-principal User:b", "--allow-principal can't be used with --list"),
    ],
)
def test_wrong_usage(acls: Acls, words: str, message: str) -> None:
    assert acls.misused(*words.split()).startswith(message)
    assert acls.listed() == set()


def test_an_error_of_the_broker_is_one_line(acls: Acls) -> None:
    words = ["--topic", "t", "--allow-principal", "User:bob", "--operation", "Read", "--allow-host", "10.0.0.0/33"]
    result = acls.run("--add", *words)
    assert result.exit_code == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("ottla: ")]
    assert "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]" in line


def command_config(directory: Path, user: str) -> list[str]:
    """Options of a user who logs in."""
    configs = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{JAAS} username="{user}" password="{user}-secret";',
    }
    return ["--command-config", write(directory / "user.properties", configs)]


def test_a_super_user_logs_in(acls: Acls, tmp_path: Path) -> None:
    words = ["--bootstrap-server", acls.users.broker.bootstrap_servers, *command_config(tmp_path, "root")]
    result = CliRunner().invoke(main, ["acls", *words, "--add", "--topic", "t", "--allow-principal", "User:bob"])
    assert result.exit_code == 0, result.output
    acls.users.settled()
    assert acls.listed() == {"TOPIC t LITERAL: User:bob * ALL ALLOW"}


@pytest.mark.parametrize(
    ("words", "permission"),
    [
        ("--list", "Describe on the cluster"),
        ("--add --topic t --allow-principal User:bob", "Describe on the cluster"),
        ("--remove --topic t --force", "Alter on the cluster"),
    ],
)
def test_a_denied_user(acls: Acls, tmp_path: Path, words: str, permission: str) -> None:
    where = ["--bootstrap-server", acls.users.broker.bootstrap_servers, *command_config(tmp_path, "alice")]
    result = CliRunner().invoke(main, ["acls", *where, *words.split()])
    assert result.exit_code == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("ottla: ")]
    assert "CLUSTER_AUTHORIZATION_FAILED" in line
    assert f"It needs {permission}: ottla acls --add --cluster --operation {permission.split()[0]}" in line


def test_authorized_operations_in_json(acls: Acls, tmp_path: Path) -> None:
    users, topic, group, share_group = acls.users, acls.users.topic(1), fresh("g"), fresh("sg")
    with Consumer(users.super_configs, group_id=group) as consumer:
        consumer.subscribe([topic])
        consumer.poll(1)
        with ShareConsumer(users.super_configs, group_id=share_group) as sharer:
            sharer.subscribe([topic])
            sharer.poll(1)
            for resource, operation in (
                (f"--topic {topic}", "Write"),
                (f"--topic {topic}", "DescribeConfigs"),
                (f"--group {group} --group {share_group}", "Read"),
                ("--cluster", "Alter"),
            ):
                acls.lines("--add", *resource.split(), "--operation", operation, "--allow-principal", "User:alice")
            where = ["--bootstrap-server", users.broker.bootstrap_servers, *command_config(tmp_path, "alice"), "--json"]

            def described(words: str) -> Any:
                result = CliRunner().invoke(main, [*words.split(), *where])
                assert result.exit_code == 0, result.output
                return json.loads(result.stdout)

            (of_topic,) = described(f"topics --describe --topic {topic}")
            (of_group,) = described(f"consumer-groups --describe --state --group {group}")
            (of_share_group,) = described(f"share-groups --describe --state --group {share_group}")
            of_cluster = described("status")
    assert of_topic["authorized_operations"] == ["WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"]
    assert of_group["authorized_operations"] == ["READ", "DESCRIBE"]
    assert of_share_group["authorized_operations"] == ["READ", "DESCRIBE"]
    assert of_cluster["authorized_operations"] == ["ALTER", "DESCRIBE"]


def test_a_denied_verifiable_producer(acls: Acls, tmp_path: Path) -> None:
    """It exits with 0, as Kafka's tool does, which prints the same class."""
    topic = acls.users.topic()
    words = ["--bootstrap-server", acls.users.broker.bootstrap_servers, *command_config(tmp_path, "alice")]
    result = CliRunner().invoke(main, ["verifiable-producer", *words, "--topic", topic, "--max-messages", "1"])
    assert result.exit_code == 0, result.output
    _, event, *_ = [json.loads(line) for line in result.stdout.splitlines()]
    assert event["exception"] == "class org.apache.kafka.common.errors.TopicAuthorizationException"
    assert f"It needs Write on topic {topic}: " in event["message"]


def test_a_broker_without_an_authorizer() -> None:
    with EmbeddedBroker() as broker:
        result = CliRunner().invoke(main, ["acls", "--bootstrap-server", broker.bootstrap_servers, "--list"])
    assert result.exit_code == 1
    assert "SECURITY_DISABLED" in result.stderr
    assert "Set authorizer.class.name=" in result.stderr


def test_completion(acls: Acls) -> None:
    def complete(*words: str, incomplete: str = "") -> list[str]:
        assert isinstance(main, click.Command)
        completion = ShellComplete(main, {}, "ottla", "_OTTLA_COMPLETE")
        return [item.value for item in completion.get_completions(["acls", *words], incomplete)]

    topic = acls.users.topic()
    where = ["--bootstrap-server", acls.users.super_configs["bootstrap.servers"]]
    assert complete(*where, "--topic", incomplete=topic[:8]) == [topic]
    assert complete("--operation", incomplete="des") == ["Describe", "DescribeConfigs", "DescribeTokens"]
    assert complete("--resource-pattern-type", incomplete="p") == ["prefixed"]
    assert "--allow-principal" in complete(incomplete="--a")
    acls.lines("--add", "--topic", "t", "--allow-principal", "User:carol")
    assert complete(*where, "--principal", incomplete="User:c") == ["User:carol"]
