"""Tables of `ottla top`: brokers, topics and groups."""

from typing import Any, Final

from ottla.cli.own.cluster_figures import Figures

NUMBERS: Final = frozenset({"LEADERS", "REPLICAS", "SIZE", "RECORDS/S", "BYTES/S", "PARTITIONS", "END", "LAG"})
_SIZES: Final = frozenset({"SIZE", "BYTES/S"})


def tables(shown: Figures) -> list[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """Return titles and rows of brokers, topics and groups."""
    return [
        (
            ("BROKER", "ADDRESS", "CONTROLLER", "LEADERS", "REPLICAS", "SIZE", "RECORDS/S", "BYTES/S"),
            [(*row[:2], "yes" if row.controller else "no", *row[3:]) for row in shown.brokers],
        ),
        (("TOPIC", "PARTITIONS", "END", "SIZE", "RECORDS/S", "BYTES/S"), [tuple(row) for row in shown.topics]),
        (("GROUP", "TYPE", "STATE", "LAG", "RECORDS/S"), [tuple(row) for row in shown.groups]),
    ]


def cell_texts(titles: tuple[str, ...], row: tuple[Any, ...]) -> list[str]:
    """Return the cells of a row for a terminal: sizes have units, numbers separators of thousands."""
    return [_cell(title, cell) for title, cell in zip(titles, row, strict=True)]


def _cell(title: str, cell: Any) -> str:
    if cell is None:
        return "-"
    if title in _SIZES:
        return human(cell)
    return f"{cell:,}" if isinstance(cell, int | float) and title in NUMBERS else str(cell)


def human(size: float) -> str:
    """Format a size with a unit: "1.5 KiB" for 1536."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
