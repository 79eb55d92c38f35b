"""The Python environment of a session's processes."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest

from ottla.spark.session import session_builder

SOURCE = Path(__file__).parents[3] / "src" / "ottla" / "spark" / "ottla-spark-python"


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder with both programs; python3 says what it was called with."""
    folder = tmp_path / "an environment" / "bin"
    folder.mkdir(parents=True)
    shutil.copy(SOURCE, folder)
    script = folder / "python3"
    script.write_text('#!/bin/sh\necho "$PYTHONPATH"\nfor each; do echo "<$each>"; done\n')
    script.chmod(0o755)
    (folder / "python").symlink_to("python3")
    return folder


def chosen(monkeypatch: pytest.MonkeyPatch, executable: Path) -> str:
    monkeypatch.setattr(sys, "executable", str(executable))
    # `session_builder` sets it in this process: restored after the test.
    monkeypatch.setenv("PYSPARK_PYTHON", "-")
    monkeypatch.delenv("PYSPARK_PYTHON")
    session_builder("test")
    return os.environ["PYSPARK_PYTHON"]


@pytest.mark.parametrize(
    ("python_path", "left"),
    [
        (None, ""),
        ("/e/lib/pyspark/python/lib/pyspark.zip:/e/lib/pyspark/python/lib/py4j-0.10.9.9-src.zip:/a.jar", "/a.jar"),
        ("/a b:/e/pyspark/python/lib/pyspark.zip:/c", "/a b:/c"),
        ("/opt/spark/python/lib/pyspark.zip:/opt/spark/python/lib/py4j-0.10.9.9-src.zip", None),
    ],
)
def test_archives_of_pip_are_left_out(bin_folder: Path, python_path: str | None, left: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    if python_path is not None:
        environment["PYTHONPATH"] = python_path
    command = [str(bin_folder / "ottla-spark-python"), "-m", "pyspark.daemon", "two words"]
    lines = subprocess.check_output(command, env=environment, text=True).splitlines()
    assert lines == [python_path if left is None else left, "<-m>", "<pyspark.daemon>", "<two words>"]


def test_the_program_beside_the_interpreter_is_taken(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__file__", str(Path(sysconfig.get_path("purelib")) / "pyspark" / "__init__.py"))
    assert chosen(monkeypatch, bin_folder / "python") == str(bin_folder / "ottla-spark-python")


@pytest.mark.parametrize("lacks", ["program", "python3", "installed PySpark"])
def test_otherwise_it_is_the_interpreter_itself(bin_folder: Path, monkeypatch: pytest.MonkeyPatch, lacks: str) -> None:
    executable = bin_folder / "python3.11"
    shutil.copy(bin_folder / "python3", executable)
    if lacks == "program":
        executable = bin_folder / "python"
        (bin_folder / "ottla-spark-python").unlink()
    elif lacks == "installed PySpark":
        executable = bin_folder / "python"
        monkeypatch.setattr(pyspark, "__file__", "/opt/spark/python/pyspark/__init__.py")
    assert chosen(monkeypatch, executable) == str(executable)


def test_a_given_interpreter_stays(bin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python")
    monkeypatch.setattr(sys, "executable", str(bin_folder / "python"))
    session_builder("test")
    assert os.environ["PYSPARK_PYTHON"] == "/elsewhere/python"
