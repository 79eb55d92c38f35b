"""Tables in docstrings, as the site shows them: an extension of griffe, which mkdocs.yml names.

name   what it is, and more of it
       on a second line               becomes a row of a table in Markdown.
"""

import re
from typing import Any

import griffe

_ROW = re.compile(r"(?P<name>\S+(?:,? \S+)*?)  +(?P<text>\S.*)")


def with_tables(docstring: str) -> str:
    """Replace each block of rows by a table; other paragraphs stay."""
    return "\n\n".join(_table(block) or block for block in re.split(r"\n{2,}", docstring))


def _table(block: str) -> str | None:
    lead, rows = "", []
    for line in block.split("\n"):
        row = _ROW.fullmatch(line)
        if row:
            rows.append([row["name"], row["text"]])
        elif rows and line.startswith("  "):  # the text goes on
            rows[-1][1] += f" {line.strip()}"
        elif rows:
            return None
        else:
            lead += f"{line}\n"
    if not rows:
        return None
    lines = [f"| `{name}` | {text.replace('|', '&#124;')} |" for name, text in rows]
    return "\n".join([*([lead] if lead else []), "| | |", "|---|---|", *lines])


class DocstringTables(griffe.Extension):
    """Griffe's hook for objects whose docstrings are loaded."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = with_tables(obj.docstring.value)
