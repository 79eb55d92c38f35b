"""kafka-acls and `ottla acls` with the same words on the same broker: lines, success and the ACLs that are left.

The broker is Ottla, or with `--authorized-kafka PORT` Apache Kafka.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from ottla import AclBindingFilter, Admin
from ottla.cli.main import main
from tests.conformance.authorization.conftest import Authorized, authorized

from .apache_kafka import SCRIPT

__all__ = ["authorized"]

pytestmark = pytest.mark.usefixtures("kafka_tools")
BEFORE = (
    "--add --topic foo --allow-principal User:bob --operation Read",
    "--add --topic fo --resource-pattern-type prefixed --allow-principal User:eve --operation Write",
    "--add --topic '*' --deny-principal User:bob --operation Read --deny-host 10.0.0.0/8",
    "--add --group g --allow-principal User:bob --operation Read --operation Describe",
    "--add --cluster --allow-principal User:eve --operation Alter",
)
COMMANDS = (
    "--add --topic foo --topic bar --allow-principal User:bob --allow-principal User:eve --operation read --operation All",
    "--add --topic new --deny-principal User:bob --deny-host 10.0.0.1 --allow-principal 'User:*' --allow-host 10.0.0.0/8",
    "--add --topic new --allow-host 1.1.1.1 --allow-host 2.2.2.2 --allow-principal User:bob --operation Write",
    "--add --topic foo --allow-principal User:bob --operation Read --operation Write",
    "--add --topic foo --resource-pattern-type PREFIXED --allow-principal User:bob --operation Read",
    "--add --topic foo --resource-pattern-type match --allow-principal User:bob --operation Read",
    "--add --producer --topic foo --allow-principal User:bob",
    "--add --producer --idempotent --topic foo --transactional-id tx --allow-principal User:bob",
    "--add --consumer --topic foo --group g --allow-principal User:bob",
    "--add --consumer --producer --topic foo --group g --transactional-id tx --idempotent --allow-principal User:bob",
    "--add --consumer --topic foo --allow-principal User:bob",
    "--add --consumer --topic foo --group g --transactional-id t --allow-principal User:bob",
    "--add --cluster --operation Read --allow-principal User:bob",
    "--add --cluster --resource-pattern-type prefixed --operation Alter --allow-principal User:bob",
    "--add --transactional-id tx --operation TwoPhaseCommit --allow-principal User:bob",
    "--add --delegation-token tok --operation Describe --allow-principal User:bob",
    "--add --user-principal User:eve --operation DescribeTokens --operation CreateTokens --allow-principal User:bob",
    "--add --topic foo --group g --operation Write --allow-principal User:bob",
    "--add --topic foo --operation nonsense --allow-principal User:bob",
    "--add --topic foo --allow-host 1.2.3.4",
    "--add --remove --topic foo",
    "--list",
    "--list --topic foo",
    "--list --topic foo --topic other --group g --cluster",
    "--list --topic foo --resource-pattern-type match",
    "--list --topic fo --resource-pattern-type any",
    "--list --topic fo --resource-pattern-type prefixed",
    "--list --topic '*'",
    "--list --topic '*' --resource-pattern-type match",
    "--list --cluster --resource-pattern-type any",
    "--list --principal User:bob --principal User:eve",
    "--list --principal User:bob --topic foo",
    "--remove --topic foo --allow-principal User:bob --operation Read --force",
    "--remove --topic foo --allow-principal User:bob --operation Write --force",
    "--remove --topic foo --allow-principal User:bob --force",
    "--remove --topic foo --group g --force",
    "--remove --topic foo --resource-pattern-type match --force",
    "--remove --topic fo --resource-pattern-type any --force",
    "--remove --cluster --force",
    "--remove --force",
)


class Outcome(NamedTuple):
    """Lines without their order, whether the command succeeded, and the ACLs that are left."""

    lines: list[str]
    is_success: bool
    acls: list[str]


class Tools:
    """Both tools, on a broker with the ACLs of BEFORE."""

    def __init__(self, broker: Authorized, root: Admin) -> None:
        self._address = ["--bootstrap-server", f"127.0.0.1:{broker.ports['PLAINTEXT']}"]
        self._root = root
        self._settles = 0.2 if broker.is_kafka else 0.0

    def prepare(self) -> None:
        """Create the ACLs of BEFORE, and no others."""
        self._root.delete_acls([AclBindingFilter()]).check()
        time.sleep(self._settles)
        for words in BEFORE:
            assert self.run_ottla(words).exit_code == 0
        time.sleep(self._settles)

    def run_ottla(self, words: str, text: str = "") -> "_Ran":
        result = CliRunner().invoke(main, ["acls", *self._address, *shlex.split(words)], input=text)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return _Ran(result.exit_code, result.stdout)

    def run_kafka(self, words: str, text: str = "") -> "_Ran":
        """Run Kafka's tool; with a text on a terminal, from which alone it reads."""
        command = [str(SCRIPT), "tool", "org.apache.kafka.tools.AclCommand", *self._address, *shlex.split(words)]
        if not text:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            return _Ran(done.returncode, done.stdout)
        controller, terminal = os.openpty()
        with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL) as process:
            os.close(terminal)
            os.write(controller, text.encode())
            output = b""
            try:
                while part := os.read(controller, 4096):
                    output += part
            except OSError:  # the end of a terminal
                pass
        os.close(controller)
        return _Ran(process.returncode, output.decode().replace("\r\n", "\n").removeprefix(text))

    def outcome(self, ran: "_Ran") -> Outcome:
        time.sleep(self._settles)
        lines = sorted(line.strip() for line in ran.text.split("\n"))
        return Outcome(lines, ran.exit_code == 0, sorted(map(str, self._root.describe_acls())))


class _Ran(NamedTuple):
    exit_code: int
    text: str


@pytest.fixture
def tools(authorized: Authorized) -> Iterator[Tools]:
    with Admin({"bootstrap.servers": f"127.0.0.1:{authorized.ports['PLAINTEXT']}"}) as root:
        made = Tools(authorized, root)
        made.prepare()
        yield made
        root.delete_acls([AclBindingFilter()]).check()


@pytest.mark.parametrize("words", COMMANDS)
def test_acls_command_prints_the_same_lines_as_kafkas_tool(tools: Tools, words: str) -> None:
    of_kafka = tools.outcome(tools.run_kafka(words))
    tools.prepare()
    assert tools.outcome(tools.run_ottla(words)) == of_kafka


@pytest.mark.parametrize("text", ["y\n", "Y\n", "yes\n", " y\n", "n\n", "\n"])
@pytest.mark.parametrize(
    "words", ["--remove --topic foo", "--remove --topic foo --operation Read --allow-principal User:bob"]
)
def test_the_same_answers(tools: Tools, words: str, text: str) -> None:
    of_kafka = tools.outcome(tools.run_kafka(words, text))
    tools.prepare()
    assert tools.outcome(tools.run_ottla(words, text)) == of_kafka
