"""The command checks stored histories: its exit status, and the part of the history that it prints."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.simulation.__main__ import main as simulation

from . import __main__ as histories
from .__main__ import main
from .operations import OK, History
from .run import WORKLOADS


def store(directory: Path, *, is_lost: bool) -> None:
    for name in WORKLOADS:
        history = History(directory / f"{name}.jsonl", time.monotonic())
        if name == "registers":
            write = history.invoke("a", "write", key=1, version=1, tombstone=False)
            history.complete(write, "write", OK, offset=0)
            read = history.invoke("b", "read", final=True)
            history.complete(read, "read", OK, end=1, rows=[] if is_lost else [(0, 1, 1, False)])
        history.close()
    fault = {"at": 1.0, "ended": 2.0, "fault": "kill_one"}
    (directory / "faults.jsonl").write_text(json.dumps(fault) + "\n")


@pytest.mark.parametrize("is_lost", [False, True])
def test_check(
    is_lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store(tmp_path, is_lost=is_lost)
    monkeypatch.setattr("sys.argv", ["histories", "--check", str(tmp_path)])
    assert main() == int(is_lost)
    out = capsys.readouterr().out
    assert "kill_one" in out
    assert "registers: write ok" in out
    assert f"anomalies of the registers: {int(is_lost)}" in out
    lines = (tmp_path / "registers.jsonl").read_text().splitlines()
    assert all((line in out) == is_lost for line in lines)


@pytest.mark.parametrize("command", [main, simulation])
def test_interpreted_modules_do_not_pass_as_compiled_ones(
    command: Callable[[], int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["command", "--compiled"])
    for module in (histories, sys.modules[simulation.__module__]):
        monkeypatch.setattr(module, "plan", SimpleNamespace(COMPILED=False))
    with pytest.raises(SystemExit, match="2"):
        command()
    assert "the installed modules are not compiled" in capsys.readouterr().err
