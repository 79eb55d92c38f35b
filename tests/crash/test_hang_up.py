"""SIGHUP: what a broker gets when the terminal of its user is closed."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from .conftest import Process, command


def ephemeral(directory: Path, *before: str) -> "subprocess.Popen[str]":
    """`ottla serve --ephemeral` whose data directory lies below `directory`."""
    return subprocess.Popen(
        [*before, *command("--ephemeral", "--listen", "127.0.0.1:0")],
        env={**os.environ, "TMPDIR": str(directory)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.usefixtures("hang_up")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_the_broker_and_removes_its_ephemeral_directory(tmp_path: Path, number: signal.Signals) -> None:
    process = ephemeral(tmp_path)
    assert process.stdout is not None
    assert "listening on" in process.stdout.readline()
    assert list(tmp_path.glob("ottla-*"))
    process.send_signal(number)
    _, error = process.communicate(timeout=30)
    assert (process.returncode, list(tmp_path.glob("ottla-*"))) == (0, [])
    assert " INFO stopped in " in error.splitlines()[-1]


@pytest.mark.usefixtures("hang_up")
def test_a_closed_terminal_is_a_clean_stop(tmp_path: Path) -> None:
    broker = Process(tmp_path / "data")
    os.kill(broker.pid, signal.SIGHUP)
    assert broker.finish() == ""
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_nohup_keeps_the_broker_when_the_terminal_is_closed(tmp_path: Path) -> None:
    process = ephemeral(tmp_path, "nohup")
    try:
        assert process.stdout is not None
        assert "listening on" in process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0
