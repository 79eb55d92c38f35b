"""Each metric of Apache Kafka is exported with the same labels, or in the table of docs/metrics.md with the reason.

kafka_families.tsv was recorded with bench/reference/kafka-families.
"""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.observability.exposition import LabelNames, families

RECORDED = Path(__file__).parent / "kafka_families.tsv"
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def recorded() -> dict[str, set[LabelNames]]:
    """Return the sets of label names of Kafka's families."""
    parsed: dict[str, set[LabelNames]] = {}
    for line in RECORDED.read_text().splitlines():
        if not line.startswith("#"):
            name, _, labels = line.split("\t")
            parsed.setdefault(name, set()).add(tuple(labels.split(",")) if labels else ())
    return parsed


def left_out() -> list[str]:
    """Return the patterns of the table of metrics that are not exported."""
    table = DOCS.read_text().partition("## Metrics of Kafka that are not here")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row)]


def test_every_family_of_kafka_is_exported_or_explained(exposition: str) -> None:
    exported, patterns = families(exposition), left_out()
    missing = [
        name
        for name in recorded()
        if name not in exported and not any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
    assert missing == []


def test_exported_families_have_the_labels_of_kafka(exposition: str) -> None:
    exported = families(exposition)
    differences = {
        name: (labels, exported[name].labels)
        for name, labels in recorded().items()
        if name in exported and not labels <= exported[name].labels
    }
    assert differences == {}


def test_no_exported_family_is_in_the_table(exposition: str) -> None:
    exported = families(exposition)
    both = [
        (name, pattern)
        for pattern in left_out()
        for name in recorded()
        if name in exported and fnmatchcase(name, pattern)
    ]
    assert both == []


@pytest.mark.parametrize("pattern", left_out())
def test_every_pattern_of_the_table_is_needed(pattern: str) -> None:
    assert any(fnmatchcase(name, pattern) for name in recorded())
