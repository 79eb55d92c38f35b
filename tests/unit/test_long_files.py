"""Long files: each says at its top why it is one piece."""

import ast
from pathlib import Path

import ottla

MOST_LINES = 600


def test_a_long_file_says_why_it_is_one_piece() -> None:
    sources = Path(ottla.__file__).parent
    without = []
    for path in sorted(sources.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MOST_LINES and "ne file" not in (ast.get_docstring(ast.parse(text)) or ""):
            without.append(path.relative_to(sources).as_posix())
    assert without == []
