"""Metrics and probes on the port of a registry."""

from prometheus_client.parser import text_string_to_metric_families

from ottla.testing import Kafka
from tests.registry.client import Registry
from tests.registry.schemas import BROKEN, JSON_ONE, ONE

PREFIX = "ottla_schema_registry_"


def samples(registry: Registry) -> dict[tuple[str, tuple[str, ...]], float]:
    answer = registry.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name.removeprefix(PREFIX), tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(answer.value)
        for sample in family.samples
    }


def test_requests_and_registrations_are_counted(kafka: Kafka) -> None:
    registry = Registry(kafka.schema_registry_url)
    registry.register("a", ONE)
    registry.register("b", JSON_ONE, "JSON")
    registry.post("/subjects/a/versions", {"schema": BROKEN})
    registry.get("/nonsense")
    kafka.produce("_schemas", "nonsense", key="nonsense")
    registry.register("c", ONE)
    shown = samples(registry)
    assert shown["requests_total", ("POST", "/subjects/{}/versions", "200")] == 3
    assert shown["requests_total", ("POST", "/subjects/{}/versions", "409")] == 1
    assert shown["requests_total", ("GET", "/", "404")] == 1
    assert (shown["schemas", ("AVRO",)], shown["schemas", ("JSON",)]) == (1, 1)
    assert shown["subjects", ()] == 3
    assert shown["ready", ()] == 1
    assert shown["connections", ()] == 1
    assert shown["rejected_records_total", ()] == 1
    assert shown["lag_records", ()] == 0


def test_probes(kafka: Kafka) -> None:
    registry = Registry(kafka.schema_registry_url)
    assert (registry.get("/livez").status, registry.get("/readyz").status) == (200, 200)
    kafka.registry.halt()
    assert (registry.get("/livez").status, registry.get("/readyz").status) == (200, 503)
    assert samples(registry)["ready", ()] == 0
    kafka.registry.resume()
    assert registry.get("/readyz").value == "ready\n"
