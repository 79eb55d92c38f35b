"""Prometheus' text format, as tests read it; as a program it prints the families of a broker under load."""

import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.observability.load import load

LabelNames = tuple[str, ...]


class Family(NamedTuple):
    """Family of metrics: its name as Prometheus stores its samples, its type, and the label names of its samples."""

    name: str
    type: str
    labels: frozenset[LabelNames]


def families(text: str) -> dict[str, Family]:
    """Return the families of an exposition by the name of their samples, which for counters ends with _total."""
    parsed: dict[str, Family] = {}
    for name, kind, labels in _samples(text):
        before = parsed.get(name)
        known = before.labels if before is not None else frozenset[LabelNames]()
        parsed[name] = Family(name, kind, known | {labels})
    return parsed


def _samples(text: str) -> Iterator[tuple[str, str, LabelNames]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if family.type in ("histogram", "summary") and not sample.name.endswith(("_bucket", "_created")):
                continue
            yield sample.name, family.type, tuple(sorted(sample.labels))


def main(bootstrap_servers: str, url: str) -> None:
    """Print the families of a broker under load."""
    with load(bootstrap_servers):
        time.sleep(3)
        with urllib.request.urlopen(url, timeout=60) as answer:
            parsed = families(answer.read().decode())
    for family in sorted(parsed.values()):
        for labels in sorted(family.labels):
            sys.stdout.write(f"{family.name}\t{family.type}\t{','.join(labels)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
