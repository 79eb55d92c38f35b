"""Tests that failed while the machine stood still run once more, and no others."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standstill import standstills, watch

ROOT = Path(__file__).parents[2]
SOURCE = """
from pathlib import Path
import pytest

SEEN = Path(__file__).with_suffix(".seen")

@pytest.fixture(scope="module")
def given():
    with open(SEEN, "a") as file:
        file.write("given ")
    assert SEEN.read_text().count("given") > 1, "the fixture fails once"

def test_with_fixture(given):
    pass

def test_once():
    seen = SEEN.read_text()
    SEEN.write_text(seen + "test ")
    assert "test" in seen

def test_always():
    raise AssertionError

def test_never():
    pass
"""


def clock(*times: float) -> Callable[[], float]:
    moments = iter(times)
    return lambda: next(moments)


def test_only_standstills_of_seconds_are_written(tmp_path: Path) -> None:
    file = tmp_path / "standstills"
    file.touch()
    watch(str(file), "disk", lambda: None, clock(10.0, 12.9))
    assert standstills(str(file), 0) == []
    watch(str(file), "disk", lambda: None, clock(20.0, 24.0))
    watch(str(file), "processors", lambda: None, clock(22.0, 27.5))
    assert standstills(str(file), 21.0) == ["disk for 4.0 s", "processors for 5.5 s"]
    assert standstills(str(file), 25.0) == ["processors for 5.5 s"]
    assert standstills(str(file), 28.0) == []


@pytest.mark.parametrize("meanwhile", [False, True])
def test_only_tests_that_failed_in_a_standstill_run_again(tmp_path: Path, meanwhile: bool) -> None:
    (tmp_path / "test_it.py").write_text(SOURCE)
    (tmp_path / "pytest.ini").touch()
    file = tmp_path / "standstills"
    end = time.monotonic() + (600 if meanwhile else 0)
    file.write_text(f"disk 1 {end}\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.standstill", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "TEST_STANDSTILLS": str(file), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    lines = file.read_text().splitlines()[1:]
    names = ["test_with_fixture", "test_once", "test_always"]
    assert lines == ([f"again test_it.py::{name}" for name in names] if meanwhile else [])
    expected = "1 failed, 3 passed" if meanwhile else "2 failed, 1 passed, 1 error"
    assert ran.stdout.splitlines()[-1].startswith(expected)
