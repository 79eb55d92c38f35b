"""Output of commands: tables with the columns of Kafka's tools, or JSON.

A column is as wide as its widest cell, its title and its minimum width; the last one is not padded, so that lines have no
trailing blanks. On a terminal titles are bold.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import click

UNSET = "-"
"""Placeholder of Kafka's tools for a missing value."""


class Column(NamedTuple):
    """Column of a table; `name` is its key in JSON."""

    title: str
    width: int = 0

    @property
    def name(self) -> str:
        """Key in JSON: "start_offset" for "START-OFFSET"."""
        return self.title.strip("#").lower().replace("-", "_").replace(" (id)", "")


def echo_table(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> None:
    """Print titles and rows; None prints as `-`."""
    cells = [[UNSET if cell is None else str(cell) for cell in row] for row in rows]
    widths = [
        max([column.width, len(column.title), *(len(row[index]) for row in cells)])
        for index, column in enumerate(columns)
    ]
    click.echo(click.style(_line([column.title for column in columns], widths), bold=True))
    for row in cells:
        click.echo(_line(row, widths))


def echo_tabbed(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print titles and rows with tabs between padded cells, as newer Kafka tools do; None prints as `None`."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max([len(title), *(len(row[index]) for row in cells)]) for index, title in enumerate(titles)]
    for number, row in enumerate([list(titles), *cells]):
        line = "\t".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(" ")
        click.echo(click.style(line, bold=number == 0))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells[:-1], widths[:-1], strict=True)]
    return " ".join([*padded, cells[-1]])


def echo_metrics(client_id: str, metrics: Mapping[str, float]) -> None:
    """Print metrics of a client ("producer-metrics:request-total") in the format of Kafka's tools."""
    named = {f"{name}:{{client-id={client_id}}}": value for name, value in metrics.items()}
    width = max(map(len, named), default=0)
    click.echo()
    click.echo(f"{'Metric Name':<{width}}   Value")
    for name, value in sorted(named.items()):
        click.echo(f"{name:<{width}} : {value:.3f}")


def as_objects(columns: Sequence[Column], rows: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return rows as JSON objects."""
    return [dict(zip((column.name for column in columns), row, strict=True)) for row in rows]


def echo_rows(columns: Sequence[Column], rows: Sequence[Sequence[Any]], *, as_json: bool) -> None:
    """Print rows as a table, or as JSON objects."""
    if as_json:
        echo_json(as_objects(columns, rows))
    else:
        echo_table(columns, rows)


def echo_json(value: Any) -> None:
    """Print a JSON document."""
    import json  # tables need none

    click.echo(json.dumps(value, indent=2))
