"""Readers of Delta tables that are not ours, as `scripts/delta-readers` has fetched them: programs of `delta_sql.py`."""

import json
import os
import subprocess
from pathlib import Path

from tests.interop.apache_kafka import CACHE as REFERENCE

CACHE = Path(os.environ.get("OTTLA_INTEROP_CACHE", Path.home() / ".cache" / "ottla-interop"))
JARS = REFERENCE / "delta"
PROGRAM = Path(__file__).with_name("delta_sql.py")
INTERPRETERS = {"spark": CACHE / "pyspark-4.2", "duckdb": CACHE / "duckdb-delta"}


def has_readers() -> bool:
    """Return whether all readers are there."""
    marks = [JARS / ".complete", *(home / "ready" for home in INTERPRETERS.values())]
    return all(mark.exists() for mark in marks)


def answers(engine: str, *statements: str) -> list[list[list[str]]]:
    """The rows of statements, as texts."""
    command = [str(INTERPRETERS[engine] / "bin" / "python"), str(PROGRAM), engine]
    if engine == "spark":
        command.append(",".join(map(str, sorted(JARS.glob("*.jar")))))
    done = subprocess.run(
        command, input=json.dumps(statements), capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows: list[list[list[str]]] = json.loads(done.stdout.splitlines()[-1])
    return rows
