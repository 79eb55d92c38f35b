"""The tables of docs/benchmarks.md, written from the figures of the last runs.

    python bench/benchmarks_page.py [NAME ...]

Each script in bench/ leaves its figures in build/bench/NAME.json. This puts them into the part of the page between the lines
`<!-- figures of NAME -->` and `<!-- end of NAME -->`, with the commit, the machine, the versions and the command of the run.
Without NAME all that have both; a NAME without figures, or without a place on the page, is an error. Each run is added to
bench/history.jsonl, and the charts of the page are drawn from it.
"""

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from brokers import FIGURES
from history import HISTORY, charts, line_of, with_line

PAGE: Final = Path(__file__).parents[1] / "docs" / "benchmarks.md"
OTTLA, KAFKA = "Ottla", "Apache Kafka 4.4.0"
_SIDES: Final = {
    "1 broker": "1 broker",
    "2 brokers": "2 brokers",
    "ottla": OTTLA,
    "Ottla": OTTLA,
    "kafka": KAFKA,
    KAFKA: KAFKA,
    "Apache Kafka": KAFKA,
    "Spark's connector": "Spark's connector",
    'format("ottla")': OTTLA,
    "confluent-kafka": "confluent-kafka",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "kio": "kio",
    "sendfile": "sendfile",
    "Apicurio 3.3.3": "Apicurio 3.3.3",
}
"""Columns of the tables by the names that scripts give to what they measure; a name may go on, such as "ottla 100"."""
_SIDE: Final = re.compile(rf"({'|'.join(map(re.escape, _SIDES))})(?:$|,? (.*))")
_SURROUNDINGS: Final = ("commit", "machine", "python", "ottla", "confluent-kafka", "command", "date")
_SKIPPED: Final = frozenset({"ratio", "unit", "options", "rounds", "load", "megabytes", "connector"})
_SILENT: Final = frozenset({"medians", "figures"})
_WIDTH: Final = 120
Cells = dict[str, dict[str, object]]
"""By row and column: a number, or several of them."""


class NoFigures(Exception):
    """The page cannot be written; the text states what is missing."""


def _leaves(path: tuple[str, ...], tree: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield all figures with their names from the outside to the inside."""
    has_all = isinstance(tree.get("figures"), dict) and "medians" in tree
    unit = () if has_all or "unit" not in tree else (str(tree["unit"]),)
    for name, value in tree.items():
        if name in _SKIPPED or (has_all and name == "medians"):
            continue
        if isinstance(value, dict):
            yield from _leaves((*path, name, *unit), value)
        elif isinstance(value, (int, float, list)) and not isinstance(value, bool):
            yield (*path, name, *unit), value


def rows(figures: dict[str, Any]) -> Cells:
    """Return the table of a run: the names of what was measured, and its figures by side."""
    table: Cells = {}
    tree = {name: value for name, value in figures.items() if name not in (*_SURROUNDINGS, *_SKIPPED)}
    if len(tree) == 1 and isinstance(only := next(iter(tree.values())), dict):
        tree = only  # all rows would begin with its name
    for path, value in _leaves((), tree):
        side, words = OTTLA, []
        for name in path:
            matched = _SIDE.match(name)
            if matched:
                side = _SIDES[matched[1]]
            if name not in _SILENT:
                words.append(name if matched is None else matched[2])
        row = ", ".join(word.replace("_", " ") for word in words if word)
        table.setdefault(row, {})[side] = value
    return table


def _number(value: object) -> str:
    if isinstance(value, list):
        return " / ".join(map(_number, value))
    assert isinstance(value, (int, float))
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 0.1 else 4
    return f"{value:,.{digits}f}"


def _cells(row: dict[str, object], sides: list[str], *, has_ratio: bool) -> list[str]:
    shown = [_number(row[side]) if side in row else "" for side in sides]
    if has_ratio:
        ours, theirs = row.get(OTTLA), row.get(sides[1])
        is_pair = isinstance(ours, (int, float)) and isinstance(theirs, (int, float)) and theirs
        shown.append(f"{ours / theirs:.2f}" if is_pair else "")  # type: ignore[operator]
    return shown


def section(run: dict[str, Any]) -> str:
    """Return the lines of a run: what it depends on, and a table of its figures."""
    table = rows(run)
    sides = sorted({side for row in table.values() for side in row}, key=lambda side: list(_SIDES.values()).index(side))
    has_ratio = len(sides) == 2 and sides[0] == OTTLA
    header = [*sides, f"{OTTLA} / {sides[1]}"] if has_ratio else sides
    conditions = (
        f"`{run['command']}`, {run['date']}, commit {run['commit']}: {run['machine']}, Python {run['python']}, Ottla "
        f"{run['ottla']}, confluent-kafka {run['confluent-kafka']}."
    )
    lines = [
        textwrap.fill(conditions, _WIDTH, break_long_words=False, break_on_hyphens=False),
        "",
        f"| | {' | '.join(header)} |",
        f"|---|{'---|' * len(header)}",
        *(f"| {row} | {' | '.join(_cells(cells, sides, has_ratio=has_ratio))} |" for row, cells in table.items()),
    ]
    return "\n".join(lines)


def places(page: str) -> list[str]:
    """Return the names of the scripts that have a place on the page."""
    return [name for name in re.findall(r"^<!-- figures of (\w+) -->$", page, re.MULTILINE) if name != "history"]


def replaced(page: str, name: str, text: str) -> str:
    """Return the page with `text` in the place of a script.

    Raises NoFigures if the page has no place for it.
    """
    place = re.compile(rf"(<!-- figures of {name} -->\n).*?(\n<!-- end of {name} -->)", re.DOTALL)
    if not place.search(page):
        raise NoFigures(f"{PAGE.name} has no place for the figures of {name}: add <!-- figures of {name} --> to it")
    return place.sub(lambda match: f"{match[1]}{text}{match[2]}", page)


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    runs = HISTORY.read_text(encoding="utf-8")
    names = sys.argv[1:] or [name for name in places(page) if (FIGURES / f"{name}.json").exists()]
    try:
        for name in names:
            path = FIGURES / f"{name}.json"
            if not path.exists():
                raise NoFigures(f"there are no figures of {name}: run scripts/bench {name}")
            run = json.loads(path.read_text(encoding="utf-8"))
            page = replaced(page, name, section(run))
            runs = with_line(runs, line_of(name, {key: run[key] for key in _SURROUNDINGS}, rows(run)))
        page = replaced(page, "history", charts(runs, OTTLA, KAFKA))
    except NoFigures as missing:
        sys.exit(f"benchmarks_page: {missing}")
    HISTORY.write_text(runs, encoding="utf-8")
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
