"""The features of the cluster (KIP-584): which levels this release knows, and which one is finalized.

A feature stands here once what it means works, so that clients which look at levels before they use something (transactions
by `transaction.version`, groups by `group.version`) are never led into what is not there.
"""

from typing import Final, NamedTuple


class Feature(NamedTuple):
    """Levels from `lowest` to `highest` are known, `level` is finalized (0: the feature is off)."""

    name: str
    lowest: int
    highest: int
    level: int


FEATURES: Final = (
    # The numbers are those of Apache Kafka 4.4, whose answers this broker gives; no format on this disk depends on them.
    Feature("metadata.version", 7, 33, 33),
    # Consumer groups (KIP-848).
    Feature("group.version", 0, 1, 1),
)
