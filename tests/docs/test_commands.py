"""Every command in README and docs/ works as it stands there, but for the port: examples run on a free one."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing import EmbeddedBroker
from tests.unit.metadata.kraft_directory import lay_out, topic

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def serve_commands() -> list[str]:
    lines = (line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines())
    return sorted({line.partition("#")[0].strip() for line in lines if re.match(r"    (\w+=\S+ )*ottla serve", line)})


def storage_commands() -> list[str]:
    """In the order of the page: a later one may need what an earlier one did."""
    text = (ROOT / "docs" / "storage.md").read_text(encoding="utf-8")
    return [line.partition("#")[0].strip() for line in text.splitlines() if line.startswith("    ottla storage ")]


def python_blocks() -> list[tuple[str, str]]:
    blocks = []
    for page in PAGES:
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)):
            blocks.append((f"{page.stem}-{number}", block))
    return blocks


@pytest.mark.parametrize("command", serve_commands())
def test_serve_as_the_docs_say(command: str, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("log.segment.bytes=1048576\n", encoding="utf-8")
    words = shlex.split(command)
    environment = dict(os.environ)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    words[:1] = [sys.executable, "-m", "ottla"]
    if "--listen" in words:
        words[words.index("--listen") + 1] = "127.0.0.1:0"
    else:
        words += ["--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("ottla is listening on PLAINTEXT://127.0.0.1:")
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")


def test_storage_as_the_docs_say(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "configured"):
        lay_out(directory / "kafka-data", topic("flights", bytes(range(16)), 1))
    config = "node.id=1\nprocess.roles=broker,controller\nlog.dirs=configured/kafka-data\n"
    (tmp_path / "server.properties").write_text(config, encoding="utf-8")
    commands = storage_commands()
    assert len(commands) > 2
    for command in commands:
        words = [sys.executable, "-m", "ottla", *shlex.split(command)[1:]]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert "flights" in done.stdout
    for directory in (tmp_path, tmp_path / "configured"):
        assert (directory / "kafka-data" / "metadata.db").exists()


@pytest.mark.parametrize(
    "block", [block for _, block in python_blocks() if "spark" not in block], ids=lambda block: block.splitlines()[0]
)
def test_python_examples_run(block: str) -> None:
    """Those with Spark run in tests/spark, in its one session."""
    with EmbeddedBroker() as broker:
        code = block.replace("127.0.0.1:9092", broker.bootstrap_servers)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
