"""Commands where no broker answers: --timeout of each, and ten seconds on a terminal."""

import contextlib
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.cli import cluster_access
from ottla.cli.main import main

PERFORMANCE = "--topic t --num-records 1"
WORDS = {
    "acls": "--list",
    "broker-api-versions": "",
    "client-metrics": "--list",
    "cluster api-versions": "",
    "cluster cluster-id": "",
    "cluster list-endpoints": "",
    "cluster unregister": "--id 1",
    "configs": "--describe --entity-type topics",
    "console-consumer": "--topic t",
    "console-producer": "--topic t",
    "console-share-consumer": "--topic t",
    "consumer-groups": "--list",
    "consumer-perf-test": PERFORMANCE,
    "delegation-tokens": "--describe",
    "delete-records": "--offset-json-file {file}",
    "e2e-latency": f"{PERFORMANCE} --producer-acks all --record-size 9",
    "features describe": "",
    "features disable": "--feature f",
    "features downgrade": "--feature f=1",
    "features upgrade": "--feature f=1",
    "get-offsets": "",
    "groups": "--list",
    "leader-election": "--election-type preferred --all-topic-partitions",
    "log-dirs": "--describe",
    "metadata-quorum describe": "--status",
    "producer-perf-test": f"{PERFORMANCE} --throughput -1 --record-size 9",
    "reassign-partitions": "--list",
    "replica-verification": "",
    "share-consumer-perf-test": PERFORMANCE,
    "share-groups": "--list",
    "status": "",
    "streams-application-reset": "--application-id a",
    "streams-groups": "--list",
    "top": "",
    "query": 'select*from"t"',
    "topics": "--list",
    "transactions abort": "--topic t --partition 0 --start-offset 0",
    "transactions describe": "--transactional-id t",
    "transactions describe-producers": "--topic t --partition 0",
    "transactions find-hanging": "--broker-id 1",
    "transactions forceTerminateTransaction": "--transactionalId t",
    "transactions list": "",
    "verifiable-consumer": "--topic t --group-id g",
    "verifiable-producer": "--topic t --max-messages 1",
    "verifiable-share-consumer": "--topic t --group-id g",
}
OWN = {
    "status": "0.3",
    "reassign-partitions": None,
    "console-producer": None,
    "consumer-perf-test": None,
    "share-consumer-perf-test": None,
}
"""--timeout of commands where it means something else: status has seconds, the others have that of Kafka's tool."""
WITHOUT_BROKER = {"console", "schema-registry", "features version-mapping", "features feature-dependencies"}
"""Commands that connect later, or never."""


def connecting(command: click.Command, name: str, *, is_inside: bool = False) -> Iterator[str]:
    """Return the commands that connect to a cluster."""
    is_connecting = is_inside or any("--bootstrap-server" in parameter.opts for parameter in command.params)
    if isinstance(command, click.Group):
        for inner in command.commands:
            yield from connecting(command.commands[inner], f"{name} {inner}", is_inside=is_connecting)
    elif is_connecting:
        yield name


def command_line(name: str, file: Path, *options: str) -> list[str]:
    """Return a command line; options of the connection come before a sub-command of features and transactions."""
    first, *rest = name.split()
    where = ["--bootstrap-server", "127.0.0.1:1", *options]
    words = WORDS[name].format(file=file).split()
    return [first, *rest, *where, *words] if first == "cluster" else [first, *where, *rest, *words]


@pytest.fixture
def offsets(tmp_path: Path) -> Path:
    file = tmp_path / "offsets.json"
    file.write_text('{"partitions": [{"topic": "t", "partition": 0, "offset": 1}], "version": 1}')
    return file


def test_the_table_has_all_commands() -> None:
    context = click.Context(main)
    names = {
        name
        for command in main.list_commands(context)
        if command != "pipeline"
        for name in connecting(main.get_command(context, command) or click.Command("none"), command)
    }
    assert names - WITHOUT_BROKER == set(WORDS)


@pytest.mark.parametrize("name", sorted(set(WORDS) - {own for own, value in OWN.items() if value is None}))
def test_timeout_ends_the_wait_for_a_broker(name: str, offsets: Path) -> None:
    begun = time.monotonic()
    result = CliRunner().invoke(main, command_line(name, offsets, "--timeout", OWN.get(name) or "300"))
    assert time.monotonic() - begun < 5
    assert result.exit_code == 1, result.output
    (error,) = [line for line in result.stderr.splitlines() if line.startswith("ottla: ")]
    assert re.search(r"no broker answered within \d+ ms: 127.0.0.1:1: Connection refused", error), result.stderr


@pytest.mark.parametrize("name", WORDS)
def test_a_terminal_waits_no_longer_than_ten_seconds(name: str, offsets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster_access.TERMINAL_MS == 10_000
    monkeypatch.setattr(cluster_access, "TERMINAL_MS", 300)
    monkeypatch.setattr(cluster_access, "is_terminal", lambda: True)
    begun = time.monotonic()
    result = CliRunner().invoke(main, command_line(name, offsets))
    assert time.monotonic() - begun < 5
    assert result.exit_code == 1, result.output
    assert "no broker answered within 300 ms" in result.stderr


def test_an_explicit_timeout_counts_on_a_terminal() -> None:
    """A process with a terminal of its own."""
    master, slave = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "ottla",
        "topics",
        "--list",
        "--bootstrap-server",
        "127.0.0.1:1",
        "--timeout",
        "400",
    ]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        seen = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while more := os.read(master, 65536):
                seen += more
        assert process.wait(20) == 1
    os.close(master)
    assert b"ottla: connect: no broker answered within 400 ms: 127.0.0.1:1: Connection refused" in seen
