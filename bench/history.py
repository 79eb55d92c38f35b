"""Figures of all runs that docs/benchmarks.md has shown, in bench/history.jsonl, and charts of those that matter most.

A line is one run: the script's name, what the figures depend on, and the rows of its table. `benchmarks_page.py` adds a line
with each table that it writes. The lines up to 2026-11-28 were read from the page's versions in git, with rounded figures.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

HISTORY: Final = Path(__file__).parent / "history.jsonl"
CHARTED: Final = (
    ("broker_speed", "produce requests of 100 bytes, 1 in flight, /s"),
    ("broker_speed", "produce, MB/s"),
    ("replication", "produce MB/s"),
)
"""Script and row of each chart: what Ottla reaches of Apache Kafka in the same run."""


def line_of(name: str, conditions: Mapping[str, Any], rows: Mapping[str, Any]) -> str:
    """Return the line of a run; `rows` has the figures of each side by row."""
    return json.dumps({"name": name, **conditions, "rows": rows}, separators=(",", ":"), ensure_ascii=False)


def with_line(history: str, line: str) -> str:
    """Return the history with a run at its end, once: a page may be written again from the same figures."""
    return history if line in history.splitlines() else f"{history}{line}\n"


def charts(history: str, ours: str, theirs: str) -> str:
    """Return a Mermaid chart for each row of CHARTED that has at least two runs with both sides."""
    runs = [json.loads(line) for line in history.splitlines()]
    drawn = []
    for name, row in CHARTED:
        points = []
        for run in runs:
            cells = run["rows"].get(row, {}) if run["name"] == name else {}
            if ours in cells and theirs in cells:
                points.append((run["commit"][:7], round(cells[ours] / cells[theirs], 2)))
        if len(points) > 1:
            drawn.append(_chart(f"{row} ({name}), times {theirs}", points))
    return "\n\n".join(drawn)


def _chart(title: str, points: Sequence[tuple[str, float]]) -> str:
    commits = ", ".join(f'"{commit}"' for commit, _ in points)
    ratios = [ratio for _, ratio in points]
    return "\n".join(
        [
            "```mermaid",
            "xychart-beta",
            f'    title "{title}"',
            f"    x-axis [{commits}]",
            f"    y-axis 0 --> {max(*ratios, 1) * 1.1:.1f}",
            f"    line {ratios}",
            "```",
        ]
    )
