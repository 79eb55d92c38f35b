"""Help texts: every command once, by theme, with whole sentences."""

import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from ottla.cli.main import _COMMANDS, main


def all_commands() -> list[str]:
    return main.list_commands(click.Context(main))


def test_every_command_is_listed_once_and_described_in_full() -> None:
    text = CliRunner().invoke(main, ["--help"]).stdout
    assert not re.search(r"\w\.\.\.$", text, re.MULTILINE)
    for name in all_commands():
        assert len(re.findall(rf"^  {name}  +\S", text, re.MULTILINE)) == 1, name
    assert re.findall(r"^(\S.*):$", text, re.MULTILINE) == [
        *("Options", "Broker", "What there is", "Records", "Topics and configs", "Groups and transactions"),
        *("Security", "Cluster and replicas", "Schemas", "Spark", "Performance and tests"),
    ]


@pytest.mark.parametrize("name", all_commands())
def test_listed_summary_is_the_first_sentence_of_the_help(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert _COMMANDS[name][1] == command.get_short_help_str(limit=1000)


def test_help_imports_no_command() -> None:
    code = "import sys; from ottla.cli.main import main; main(['--help'], standalone_mode=False); print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'ottla.cli.main'" in modules
    assert "ottla.cli.kafka." not in modules


@pytest.mark.parametrize("name", all_commands())
def test_descriptions_of_sub_commands_are_not_cut(name: str) -> None:
    assert not re.search(r"\w\.\.\.$", CliRunner().invoke(main, [name, "--help"]).stdout, re.MULTILINE)
