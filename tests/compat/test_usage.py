"""`python -m ottla.compat --check`: what programs use and is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.compat.usage import missing_names

CASES = {
    "import confluent_kafka": [],
    "import confluent_kafka.admin as admin\nadmin.AdminClient({}).list_groups()\nadmin.Nope": ["3 admin.Nope"],
    "from confluent_kafka.schema_registry import Schema, Association": ["1 schema_registry.Association"],
    "from confluent_kafka.schema_registry.serde import Migration as M\nM.x": [
        "1 schema_registry.serde.Migration",
        "2 schema_registry.serde.Migration.x",
    ],
    "import confluent_kafka as ck\nck.KafkaError._TIMED_OUT\nck.KafkaError.NOPE": ["3 KafkaError.NOPE"],
    "import confluent_kafka\nconfluent_kafka.admin.Nope": ["2 admin.Nope"],
    "import confluent_kafka\nconfluent_kafka.nope.Nope": ["2 nope", "2 nope.Nope"],
    "from confluent_kafka import admin\nadmin.ConfigResource.Type.TOPIC": [],
    "from confluent_kafka.admin import *": [],
    "from confluent_kafka.schema_registry.rules.cel import X": ["1 schema_registry.rules.cel.X"],
    "import confluent_kafka.kafkatest": ["1 kafkatest"],
    "from confluent_kafka.schema_registry.serde import RuleExecutor": ["1 schema_registry.serde.RuleExecutor"],
    "from .confluent_kafka import Nope\nimport other\nother.Nope": [],
    "from confluent_kafka import Producer\np = Producer({})\np.produce('t')\np.nope()": ["4 Producer.nope"],
    "from confluent_kafka import Consumer\nwith Consumer({}) as c:\n    c.poll()\n    c.nope()": ["4 Consumer.nope"],
    "from confluent_kafka import Producer\np = Producer({})\np = 5\np.nope()": [],
    "from confluent_kafka import Producer\np = Producer({})\ndef f(p):\n    p.nope()": [],
    "from confluent_kafka import Message\nm = Message()\nm.topic()\nm.anything": [],
    "from confluent_kafka.schema_registry import SchemaRegistryClient\nSchemaRegistryClient.get_schema": [],
    "try:\n    import confluent_kafka.aio_\nexcept ImportError:\n    pass": ["2 aio_"],
}


@pytest.mark.parametrize("program", CASES)
def test_missing_names_of_a_program(program: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(program)
    rows = missing_names(path)
    assert [f"{row.line} {row.name.removeprefix('confluent_kafka.')}" for row in rows] == CASES[program]
    assert all(row.reason for row in rows)


def check(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the check."""
    command = [sys.executable, "-m", "ottla.compat", "--check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_check_lists_files_and_lines(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("import confluent_kafka")
    good = check(str(tmp_path))
    assert (good.returncode, good.stdout, good.stderr) == (0, "1 file: all names are there\n", "")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "bad.py").write_text("\nfrom confluent_kafka.schema_registry import Association\n")
    (tmp_path / "broken.py").write_text("def (")
    bad = check(str(tmp_path))
    lines = bad.stdout.splitlines()
    assert (bad.returncode, bad.stderr, len(lines)) == (1, "", 2)
    assert lines[0].startswith(f"{tmp_path}/broken.py:1: the file: cannot be parsed: ")
    name = "confluent_kafka.schema_registry.Association"
    assert lines[1] == f"{tmp_path}/inner/bad.py:2: {name}: associations of subjects with resources are not built"


def test_check_without_a_directory_is_a_usage_error(tmp_path: Path) -> None:
    assert check().returncode == 2
    assert check("a", "b").returncode == 2
    missing = check(str(tmp_path / "none"))
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)


def test_the_programs_of_our_own_tests_use_no_missing_name() -> None:
    """They run with both libraries."""
    here = Path(__file__).parent
    assert [str(row) for name in ("libraries.py", "test_programs.py") for row in missing_names(here / name)] == []
