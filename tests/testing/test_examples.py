"""The tests that docs/testing.md shows, run as a tester would run them."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .test_plugin import WITH_PLUGIN

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
EXAMPLES = re.findall(r"```python pytest\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def libraries(example: str) -> set[str]:
    return set(re.findall(r"^(?:from|import) (\w+)", example, re.MULTILINE))


def title(example: str) -> str:
    matched = re.search(r"def (test_\w+)", example)
    assert matched is not None
    return f"{matched[1]}-{'-'.join(sorted(libraries(example)))}"


def test_all_the_clients_are_there() -> None:
    shown = set().union(*map(libraries, EXAMPLES))
    assert shown >= {"confluent_kafka", "aiokafka", "kafka", "faust", "faststream"}


@pytest.mark.parametrize("example", EXAMPLES, ids=title)
def test_an_example_passes(example: str, tmp_path: Path) -> None:
    for library in sorted(libraries(example)):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    (tmp_path / "test_example.py").write_text(example, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *WITH_PLUGIN]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
