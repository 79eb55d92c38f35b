"""Every difference in docs/differences.md names a test that exists."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "differences.md"
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| (?!Ottla )", line)]


def names_of_tests(path: Path) -> set[str]:
    """Names of the test functions of a file, those of its classes too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("row", ROWS)
def test_a_difference_has_a_test(row: str) -> None:
    cells = row.strip("| ").split(" | ")
    assert len(cells) == 3, row
    matched = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", cells[2])
    assert matched is not None, row
    assert matched[2] in names_of_tests(ROOT / matched[1]), f"there is no {cells[2]}"


def test_every_area_has_differences() -> None:
    assert len(ROWS) > 40
