"""What mypyc compiles to something else than Python does must not be in the modules that it compiles."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILED = re.findall(r'"(src/ottla/[^"]+\.py)"', (ROOT / "setup.py").read_text())
PURE = frozenset(("len", "min", "max"))


def test_the_list_of_modules_is_sorted_and_complete() -> None:
    assert sorted(set(COMPILED)) == COMPILED
    assert not [path for path in COMPILED if not (ROOT / path).exists()]


@pytest.mark.parametrize("path", COMPILED)
def test_bounds_of_slices_have_no_effects(path: str) -> None:
    """mypyc evaluates them twice, but for bytes, str, list and tuple (seen with mypyc 2.4: `view[os.write(fd, view) :]` wrote
    twice).
    """
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Slice):
            calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
            assert all(isinstance(call.func, ast.Name) and call.func.id in PURE for call in calls), (
                f"{path}:{node.lineno}"
            )
