"""docs/compat.md: its commands print what stands below them, and the releases of frameworks are those that run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.test_frameworks import FRAMEWORKS

SOURCES = Path(__file__).parents[2] / "src"
PAGE = (SOURCES.parent / "docs" / "compat.md").read_text("utf-8")
EXAMPLES = re.findall(r"((?:^    .+\n)+)\n```text\n((?:[^`].*\n)+)```", PAGE, re.MULTILINE)
RELEASES = {
    "Airflow's provider": "airflow_provider",
    "Celery": "celery_tasks",
    "FastStream": "faststream_application",
    "Kombu": "kombu_queues",
    "OpenTelemetry": "opentelemetry_spans",
    "Quix Streams": "quix_streams",
}
"""Row of the page -> program of tests/interop/frameworks."""


@pytest.mark.parametrize(("commands", "output"), EXAMPLES)
def test_commands_print_what_the_page_shows(commands: str, output: str, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(SOURCES)}
    result = subprocess.run(commands, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, output)


def test_examples_are_there() -> None:
    assert len(EXAMPLES) == 2


def test_the_releases_of_the_page_are_those_that_run() -> None:
    rows = dict(
        re.findall(
            r"^\| (\S.*?) \| (.*?\d.*?) \|", PAGE.partition("## Frameworks")[2].partition("\n## ")[0], re.MULTILINE
        )
    )
    assert rows.keys() == RELEASES.keys()
    assert set(RELEASES.values()) == FRAMEWORKS.keys()
    for row, program in RELEASES.items():
        pinned = {match for requirement in FRAMEWORKS[program] for match in re.findall(r"==(\d+\.\d+)", requirement)}
        assert set(re.findall(r"\d+\.\d+", rows[row])) <= pinned
