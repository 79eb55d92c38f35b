"""Address of the cluster of a command: options, profiles, the environment; completion of names in the shell."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from ottla import Admin, OffsetAndMetadata, TopicPartition
from ottla.broker.config import broker_config
from ottla.cli.cluster_access import client_configs
from ottla.cli.kafka import console_consumer, console_producer
from ottla.cli.main import main

from .commands import Commands
from .conftest import fresh

UNREACHABLE = "127.0.0.1:1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS", raising=False)
    (tmp_path / "ottla").mkdir()
    return tmp_path


def write_profiles(home: Path, text: str, mode: int = 0o600) -> Path:
    path = home / "ottla" / "profiles.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return path


def ottla(*words: str) -> Result:
    result = CliRunner().invoke(main, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def complete(*words: str, incomplete: str = "") -> list[str]:
    """Completions of a word, as a shell would ask for them."""
    assert isinstance(main, click.Command)
    return [
        item.value
        for item in ShellComplete(main, {}, "ottla", "_OTTLA_COMPLETE").get_completions(list(words), incomplete)
    ]


def test_a_command_without_an_address_talks_to_the_cluster_of_the_environment(
    home: Path, topic: str, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", bootstrap_servers)
    assert topic in ottla("topics", "--list").stdout.split()
    assert ottla("transactions", "list").exit_code == 0
    write_profiles(home, f"[dev]\nbootstrap.servers = '{UNREACHABLE}'\ndefault.api.timeout.ms = 500\n")
    assert UNREACHABLE in ottla("topics", "--profile", "dev", "--list").stderr


def test_a_command_without_any_address_talks_to_the_default_port(home: Path) -> None:
    """--alter says which cluster it is about to change before it connects, so no broker on 9092 is needed."""
    del home
    words = ["--alter", "--topic", "t", "--partitions", "2"]
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-m", "ottla", "topics", *words]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "Changing the cluster at 127.0.0.1:9092 (the default)\n"
    finally:
        process.kill()
        process.communicate()


def test_a_profile_holds_the_properties_of_a_client(home: Path, topic: str, bootstrap_servers: str) -> None:
    write_profiles(
        home,
        f'[dev]\n"bootstrap.servers" = "{bootstrap_servers}"\n"client.id" = "ada"\nrequest.timeout.ms = 9000\n'
        f'[wrong]\nbootstrap.servers = ["{bootstrap_servers}"]\nrequest.timeout.ms = -1\n',
    )
    assert topic in ottla("topics", "--profile", "dev", "--list").stdout.split()
    assert ottla("features", "--profile", "dev", "describe").exit_code == 0
    assert ottla("console-consumer", "--profile", "dev", "--topic", topic, "--timeout-ms", "100").exit_code == 0
    refused = ottla("topics", "--profile", "wrong", "--list")
    assert (refused.exit_code, "request.timeout.ms=-1" in refused.stderr) == (1, True)


def configs_of(command: click.Command, configs: Callable[[dict[str, Any]], dict[str, Any]], *words: str) -> Any:
    """The configs of a console command's client, as --profile dev and these words make them."""
    seen: list[dict[str, Any]] = []

    def run(bootstrap_server: str | None, **options: Any) -> None:
        seen.append(client_configs(bootstrap_server, None, **configs(options)))

    probe = click.Command(command.name, params=command.params, callback=run)
    result = CliRunner().invoke(probe, ["--profile", "dev", "--bootstrap-server", "x:1", "--topic", "t", *words])
    assert result.exit_code == 0, result.output
    return seen[0]


def test_options_win_over_the_profile_and_the_profile_over_their_defaults(home: Path) -> None:
    write_profiles(
        home,
        "[dev]\ncompression.type = 'zstd'\nacks = '1'\nlinger.ms = 7\n"
        "group.id = 'mine'\nauto.offset.reset = 'earliest'\nisolation.level = 'read_committed'\n",
    )
    produced = configs_of(console_producer.console_producer, console_producer._configs)
    assert [produced[name] for name in ("compression.type", "acks", "linger.ms")] == ["zstd", "1", "7"]
    words = ["--compression-codec", "gzip", "--request-required-acks", "all", "--timeout", "9"]
    produced = configs_of(console_producer.console_producer, console_producer._configs, *words)
    assert [produced[name] for name in ("compression.type", "acks", "linger.ms")] == ["gzip", "all", 9]
    names = ("group.id", "auto.offset.reset", "isolation.level")
    consumed = configs_of(console_consumer.console_consumer, console_consumer._configs)
    assert [consumed[name] for name in names] == ["mine", "earliest", "read_committed"]
    words = ["--group", "g", "--isolation-level", "read_uncommitted"]
    consumed = configs_of(console_consumer.console_consumer, console_consumer._configs, *words)
    assert [consumed[name] for name in names] == ["g", "earliest", "read_uncommitted"]


def test_bootstrap_server_wins_over_the_profile(home: Path, topic: str, bootstrap_servers: str) -> None:
    write_profiles(home, f"[dev]\nbootstrap.servers = '{UNREACHABLE}'\n")
    words = ["--profile", "dev", "--bootstrap-server", bootstrap_servers, "--list"]
    assert topic in ottla("topics", *words).stdout.split()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[staging]\n", "no profile stagin in PATH; did you mean staging?"),
        ("[prod]\n", "no profile stagin in PATH; existing profiles: prod"),
        ("[stagin\n", "PATH is not TOML: "),
        ("retries = 1\n[stagin]\n", "PATH: retries is not in a profile; put it below a line [NAME]"),
        ("[stagin]\nretries = 2026-01-01\n", "PATH: profile stagin: retries must be a string"),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_line(home: Path, text: str, message: str) -> None:
    path = write_profiles(home, text)
    result = ottla("topics", "--profile", "stagin", "--list")
    expected = "ottla: " + message.replace("PATH", str(path))
    assert (result.exit_code, result.stderr.startswith(expected), result.stderr.count("\n")) == (1, True, 1), (
        result.stderr
    )


def test_without_a_file_of_profiles_the_path_is_named(home: Path) -> None:
    result = ottla("topics", "--profile", "dev", "--list")
    path = home / "ottla" / "profiles.toml"
    assert result.stderr == f"ottla: cannot read profiles from {path}: No such file or directory\n"


def test_profiles_that_others_can_read_are_warned_of(home: Path, bootstrap_servers: str) -> None:
    path = write_profiles(home, f"[dev]\nbootstrap.servers = '{bootstrap_servers}'\n", 0o644)
    result = ottla("topics", "--profile", "dev", "--list")
    assert result.exit_code == 0
    assert result.stderr == f"WARNING: {path} is readable by other users (mode 0644); run: chmod 600 {path}\n"


def test_a_command_that_changes_something_says_in_which_cluster(
    home: Path, commands: Commands, bootstrap_servers: str
) -> None:
    name = fresh()
    write_profiles(home, f"[dev]\nbootstrap.servers = '{bootstrap_servers}'\n")
    line = f"Changing the cluster at {bootstrap_servers} (profile dev)\n"
    assert ottla("topics", "--profile", "dev", "--create", "--topic", name).stderr == line
    assert ottla("topics", "--profile", "dev", "--describe", "--topic", name).stderr == ""
    assert ottla("topics", "--profile", "dev", "--delete", "--topic", name).stderr == line
    notice = f"Changing the cluster at {bootstrap_servers} (--bootstrap-server)\n"
    assert commands.run("consumer-groups", "--delete", "--group", "absent").stderr.startswith(notice)
    words = ["--group", name, "--topic", "absent", "--reset-offsets", "--to-earliest"]
    assert "Changing" not in commands.run("consumer-groups", *words, "--dry-run").stderr


def test_the_address_of_clients_does_not_stop_the_broker() -> None:
    assert broker_config(environment={"OTTLA_BOOTSTRAP_SERVERS": "127.0.0.1:9092"}).node_id == 1


def every_command(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    commands: list[tuple[tuple[str, ...], click.Command]] = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        commands.append(((*path, name), command))
        if isinstance(command, click.Group):
            commands += every_command(command, (*path, name))
    return commands


def test_every_command_with_an_address_has_profiles() -> None:
    assert isinstance(main, click.Group)
    lacking = []
    addressed = 0
    for path, command in every_command(main):
        options = {option for parameter in command.params for option in parameter.opts}
        if "--bootstrap-server" in options:
            addressed += 1
            if "--profile" not in options:
                lacking.append(path)
    assert not lacking
    assert addressed > 25


def test_the_shell_completes_topics_groups_and_profiles(
    home: Path, topic: str, bootstrap_servers: str, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", bootstrap_servers)
    group = fresh()
    admin.alter_consumer_group_offsets(group, {TopicPartition(topic, 0): OffsetAndMetadata(0)})
    assert complete("console-consumer", "--topic", incomplete=topic[:-1]) == [topic]
    assert complete("topics", "--delete", "--topic", incomplete=topic) == [topic]
    assert complete("log-dirs", "--topic-list", incomplete=f"a,{topic[:-1]}") == [f"a,{topic}"]
    assert complete("consumer-groups", "--describe", "--group", incomplete=group[:-1]) == [group]
    assert complete("transactions", "describe-producers", "--topic", incomplete=topic) == [topic]
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS")
    write_profiles(home, f"[dev]\nbootstrap.servers = '{bootstrap_servers}'\n[prod]\n", 0o644)
    assert complete("topics", "--profile", incomplete="d") == ["dev"]
    assert complete("topics", "--profile", "dev", "--topic", incomplete=topic) == [topic]


def test_completion_without_a_cluster_is_silent(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    del home
    assert complete("topics", "--bootstrap-server", UNREACHABLE, "--topic") == []
    assert capfd.readouterr() == ("", "")
