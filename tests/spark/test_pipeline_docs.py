"""docs/pipelines.md from top to bottom: its commands on one broker, its Python in the tests' session."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.spark.releases import RELEASE
from ottla.testing import EmbeddedBroker
from tests.spark.test_pipeline_runs import QUICK

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("a_spark_of_its_own")
@pytest.mark.timeout(240)
def test_commands_as_the_page_says(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("ottla", "pytest"):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {name} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    commands = [line.strip() for line in PAGE.splitlines() if re.match(r"    (ottla|echo|pytest) ", line)]
    assert len(commands) == 7
    said = {}
    with EmbeddedBroker() as broker:
        for command in commands:
            words = command.replace("127.0.0.1:9092", broker.bootstrap_servers)
            if " pipeline run " in words:
                words += f" --conf '{QUICK[-1]}'"
            done = subprocess.run(
                words,
                shell=True,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=150,
                check=False,
            )
            if "--group shop" in command and RELEASE < (4, 2):  # its offsets come a batch late
                assert "Group shop not found" in done.stderr
                continue
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            said[command.partition(" --")[0]] = done.stdout
    # What the page shows, but for the times.
    (shown,) = re.findall(r"```\n(FLOW.*?)```", PAGE, re.DOTALL)
    rows = [line.split()[:6] for line in said["ottla pipeline run shop"].splitlines()]
    expected = [line.split()[:6] for line in shown.splitlines()[1:6]]
    if RELEASE >= (4, 2):
        offsets = [line.split()[:6] for line in said["ottla consumer-groups"].splitlines()]
        assert ["shop", "orders", "0", "6", "6", "0"] in offsets
    else:
        expected = [[*row[:4], "-", row[5]] for row in expected]  # no lag in the progress of a query
    assert sorted(rows[1:6]) == sorted(expected)
    assert said["ottla console-consumer"] == '{"number":1,"customer":"ada","amount":120.0}\n'
    assert "1 passed" in said["pytest shop"]
    for name in re.findall(r"^\| `(\S+)` \| ", PAGE.partition("## Running")[0], re.MULTILINE):
        assert (tmp_path / "shop" / name).exists(), name


def test_python_as_the_page_says(spark: SparkSession) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "pipelines.md", "exec"), {"spark": spark})
