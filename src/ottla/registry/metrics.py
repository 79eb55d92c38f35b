"""Metrics of a registry, in Prometheus' text format."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.observability.families import COUNTER, GAUGE, Family, single
from ottla.registry.state import State

_PREFIX = "ottla_schema_registry_"


class Figures(NamedTuple):
    """Figures of a registry besides its state.

    answers      answers by method, path of the table ("" for an unknown one) and status
    connections  open connections
    leads        whether schemas can be registered
    lag          records of the topic that the state lacks, None while that is unknown
    """

    answers: Mapping[tuple[str, str, int], int]
    connections: int
    leads: bool
    lag: int | None


def families(state: State | None, figures: Figures) -> Iterator[Family]:
    """Yield the families; those of the state only while the registry has one."""
    requests = Family(
        f"{_PREFIX}requests_total",
        COUNTER,
        "Answers that were computed, by method, path and status; those from the cache are not counted.",
        ("method", "path", "status"),
    )
    for (method, path, status), count in sorted(figures.answers.items()):
        requests.add(count, method, f"/{path}", str(status))
    yield requests
    yield single(f"{_PREFIX}connections", GAUGE, "Open connections of clients.", figures.connections)
    yield single(f"{_PREFIX}ready", GAUGE, "1 while schemas can be registered, else 0.", int(figures.leads))
    if state is None:
        return
    kinds = Counter(
        identified.value.schema.kind for context in state.contexts.values() for identified in context.ids.values()
    )
    schemas = Family(f"{_PREFIX}schemas", GAUGE, "Schemas with an id, by type.", ("type",))
    for kind, count in sorted(kinds.items()):
        schemas.add(count, kind)
    yield schemas
    yield single(f"{_PREFIX}subjects", GAUGE, "Subjects, hidden ones included.", len(state.subjects))
    text = "Records of the topic that were ignored, as no registry writes them."
    yield single(f"{_PREFIX}rejected_records_total", COUNTER, text, state.rejected)
    if figures.lag is not None:
        yield single(f"{_PREFIX}lag_records", GAUGE, "Records of the topic that were not read yet.", figures.lag)
