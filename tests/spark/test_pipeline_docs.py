"""docs/pipelines.md from top to bottom: its commands on one broker, its Python in the tests' session."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.spark.pipelines.template import FILES, SAMPLE
from ottla.spark.releases import RELEASE
from ottla.testing import EmbeddedBroker
from tests.spark.test_pipeline_runs import QUICK

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
BEFORE, _, REST = PAGE.partition("## Tables")
TABLES = REST.partition("\n## ")[0]


def on_path(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    """The environment with modules as commands."""
    folder.mkdir()
    programs = {name: f'"{sys.executable}" -m {name}' for name in names} | {"python": f'"{sys.executable}"'}
    for name, program in programs.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n', encoding="utf-8")
        (folder / name).chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.usefixtures("a_spark_of_its_own")
@pytest.mark.timeout(240)
def test_commands_as_the_page_says(tmp_path: Path) -> None:
    environment = on_path(tmp_path / "bin", ("ottla", "pytest"))
    commands = [line.strip() for line in BEFORE.splitlines() if re.match(r"    (ottla|echo|pytest) ", line)]
    assert len(commands) == 7
    outputs = {}
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
            outputs[command.partition(" --")[0]] = done.stdout
    # What the page shows, but for the times.
    (shown,) = re.findall(r"```\n(FLOW.*?)```", PAGE, re.DOTALL)
    rows = [line.split()[:6] for line in outputs["ottla pipeline run shop"].splitlines()]
    expected = [line.split()[:6] for line in shown.splitlines()[1:6]]
    if RELEASE >= (4, 2):
        offsets = [line.split()[:6] for line in outputs["ottla consumer-groups"].splitlines()]
        assert ["shop", "orders", "0", "6", "6", "0"] in offsets
    else:
        expected = [[*row[:4], "-", row[5]] for row in expected]  # no lag in the progress of a query
    assert sorted(rows[1:6]) == sorted(expected)
    assert outputs["ottla console-consumer"] == '{"number":1,"customer":"ada","amount":120.0}\n'
    assert "1 passed" in outputs["pytest shop"]
    for name in re.findall(r"^\| `(\S+)` \| ", PAGE.partition("## Running")[0], re.MULTILINE):
        assert (tmp_path / "shop" / name).exists(), name


def test_python_as_the_page_says(spark: SparkSession) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "pipelines.md", "exec"), {"spark": spark})


@pytest.mark.usefixtures("a_spark_of_its_own")
@pytest.mark.timeout(400)
def test_tables_as_the_page_and_the_readme_say(tmp_path: Path) -> None:
    """The three commands of the README on a topic with the sample data, then those of the page on more of it."""
    pytest.importorskip("deltalake", reason="the extra delta")
    environment = on_path(tmp_path / "bin", ("ottla",))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    three = re.findall(r"^    ((?:ottla pipeline|python -c).*)$", readme, re.MULTILINE)
    commands = re.findall(r"^    ((?:ottla|python) .*)$", TABLES, re.MULTILINE)
    assert (len(three), len(commands)) == (3, 5)
    sample = tmp_path / "sample"
    sample.write_text(FILES[SAMPLE], encoding="utf-8")
    with EmbeddedBroker() as broker:
        environment |= {"OTTLA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}

        def run_command(command: str) -> str:
            words = command.replace("127.0.0.1:9092", broker.bootstrap_servers)
            if " pipeline run " in words:
                words += f" --conf '{QUICK[-1]}'"
            run = ["sh", "-c", words]
            done = subprocess.run(
                run, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=150, check=False
            )
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            return done.stdout

        run_command(f"ottla console-producer --topic orders < {sample}")
        *_, table = [run_command(command) for command in three]
        assert [line.split()[1:3] for line in table.splitlines()[1:]] == [
            ["1", "ada"],
            ["3", "ada"],
            ["4", "eve"],
            ["5", "bob"],
        ]
        (tmp_path / "lake").rename(tmp_path / "readme")
        answers = {command.split(" --")[0]: run_command(command) for command in commands}
        assert answers[commands[2]] == table
        (shown,) = re.findall(r"```\n(TABLE.*?)```", TABLES, re.DOTALL)
        # What the page shows, but for bytes and times.
        rows = [
            [cell for n, cell in enumerate(line.split()) if n not in (4, 5)]
            for line in answers["ottla pipeline status lake"].splitlines()
        ]
        assert rows == [[cell for n, cell in enumerate(line.split()) if n not in (4, 5)] for line in shown.splitlines()]
        assert "data/tables/orders" in answers["ottla pipeline compact lake"]
