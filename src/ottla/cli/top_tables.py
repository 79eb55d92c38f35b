"""Tables of `ottla top`: brokers, topics and groups."""

from typing import Any

from ottla.cli.cluster_figures import Figures


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
