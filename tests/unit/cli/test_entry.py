"""The end of the process `ottla`: exit codes, output, and what other code has registered for the end."""

import subprocess
import sys
from pathlib import Path

import pytest


def run_program(program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a program with the arguments of a command."""
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60, check=False
    )


RUN = "from ottla.cli.entry import run; run()"


@pytest.mark.parametrize(
    ("words", "status"), [(["--version"], 0), (["topics", "--no-such-option"], 2), (["console-consumer"], 2)]
)
def test_the_exit_status_is_that_of_the_command(words: list[str], status: int) -> None:
    result = run_program(RUN, *words)
    assert result.returncode == status
    assert bool(result.stderr) == (status != 0)


def test_exit_handlers_run_and_output_is_flushed_before_the_end(tmp_path: Path) -> None:
    """Exit handlers, threads that are not daemons, and output that is not flushed yet."""
    program = f"""
import atexit, sys, threading, time
import ottla.cli.entry
from ottla.cli import main as commands
def work():
    time.sleep(0.3)
    open({str(tmp_path / "thread")!r}, "w").close()
def command():
    atexit.register(lambda: print("handler"))
    threading.Thread(target=work).start()
    sys.stdout.write("begun\\n")
    sys.exit(3)
commands.main = command
ottla.cli.entry.run()
"""
    result = run_program(program)
    assert (result.returncode, result.stdout) == (3, "begun\nhandler\n")
    assert (tmp_path / "thread").exists()


def test_a_failure_without_an_exit_status_is_python_s() -> None:
    program = """
import ottla.cli.entry
from ottla.cli import main as commands
def command(): raise LookupError("a bug")
commands.main = command
ottla.cli.entry.run()
"""
    result = run_program(program)
    assert result.returncode == 1
    assert "LookupError: a bug" in result.stderr


def test_a_closed_standard_output_is_a_failure() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        assert "Traceback" not in process.stderr.read()
    assert process.wait(60) != 0


def test_garbage_is_collected_while_a_command_runs() -> None:
    program = """
import gc, ottla.cli.entry
from ottla.cli.kafka import topics
import click
from ottla.cli.main import Commands
Commands.get_command = lambda self, ctx, name: click.Command(name, callback=lambda: print(gc.isenabled()))
ottla.cli.entry.run()
"""
    assert run_program(program, "anything").stdout == "True\n"
