"""The commands of docs/sql.md, in their order, and what they print; then its Python."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ottla import Producer
from ottla.testing import EmbeddedBroker

from .test_commands import on_path

pytest.importorskip("duckdb", reason="the extra sql")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")


def test_sql_as_the_docs_say(tmp_path: Path) -> None:
    environment = on_path(tmp_path)
    blocks = re.findall(r"((?:^    [^\n]+\n)+)(?:\n```text\n(.*?)```)?", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    with EmbeddedBroker() as broker:
        for commands, shown in blocks:
            lines = [line.strip() for line in commands.replace("127.0.0.1:9092", broker.bootstrap_servers).splitlines()]
            done = subprocess.run(
                ["sh", "-c", " && ".join(lines)],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (done.returncode, done.stdout) == (0, shown), (commands, done.stderr)
        (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        words = [sys.executable, "-W", "error", "-c", code.replace("127.0.0.1:9092", broker.bootstrap_servers)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[('A1', 'pad'), ('A1', 'pen')]\n", "")


def test_the_query_of_the_readme_works(tmp_path: Path) -> None:
    (command,) = re.findall(r"^    (ottla query .*)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    with EmbeddedBroker() as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.produce("greetings", key="en", value="hello")
        producer.flush()
        environment = {**on_path(tmp_path), "OTTLA_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
        done = subprocess.run(
            ["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
    assert done.stdout.split() == ["key", "count_star()", "en", "1"]
