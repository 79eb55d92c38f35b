"""The schema registry of a test broker: start, clearing, faults."""

import json
import threading
import time
import urllib.error
import urllib.request

import pytest

from ottla.arguments import WrongArgument
from ottla.schemas.registry import RegistryError, Schema, SchemaNotFound, SchemaRegistry
from ottla.testing import Kafka
from tests.registry.schemas import ONE, TWO


def registry_of(kafka: Kafka) -> SchemaRegistry:
    return SchemaRegistry(location=kafka.schema_registry_url, retries=0)


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            json.load(error)
            return error.code


def test_registry_starts_on_first_use_and_ends_with_the_broker() -> None:
    before = threading.active_count()
    with Kafka() as kafka:
        alone = threading.active_count()
        assert "_schemas" not in kafka.topics()
        url = kafka.schema_registry_url
        assert kafka.schema_registry_url == kafka.registry.url == url
        assert registry_of(kafka).register("a", Schema("AVRO", ONE)) == 1
        assert kafka.records("_schemas")
        assert threading.active_count() > alone
    assert threading.active_count() == before
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


def test_clear_forgets_schemas(kafka: Kafka) -> None:
    registry = registry_of(kafka)
    registry.register("a", Schema("AVRO", ONE))
    registry.set_compatibility("a", "NONE")
    for _ in range(3):
        kafka.clear()
        assert registry.subjects() == []
        assert registry.compatibility("a") == "BACKWARD"
        assert registry.register("b", Schema("AVRO", TWO)) == 1


def test_clear_after_a_change_of_configs_and_a_kill(kafka: Kafka) -> None:
    """A new broker takes the place of the old one, on its port."""
    registry = registry_of(kafka)
    registry.register("a", Schema("AVRO", ONE))
    kafka.advance(60_000)
    kafka.clear()
    assert registry.subjects() == []
    kafka.kill()
    kafka.clear()
    assert registry.register("b", Schema("AVRO", TWO)) == 1


def test_registry_goes_on_after_a_restart_of_the_broker(kafka: Kafka) -> None:
    registry = registry_of(kafka)
    registry.register("a", Schema("AVRO", ONE))
    kafka.restart()
    assert registry.subjects() == ["a"]
    assert registry.register("a", Schema("AVRO", TWO)) == 2
    kafka.kill()
    assert registry.subjects() == ["a"]
    kafka.restart()
    assert registry.register("b", Schema("AVRO", '"int"')) == 3


@pytest.mark.parametrize("status", [429, 500, 503])
def test_requests_fail_as_often_as_the_test_says(kafka: Kafka, status: int) -> None:
    url = f"{kafka.schema_registry_url}/subjects"
    fault = kafka.registry.fail(status=status, count=2)
    assert [status_of(url) for _ in range(3)] == [status, status, 200]
    assert fault.hits == 2


def test_fault_ends(kafka: Kafka) -> None:
    url = f"{kafka.schema_registry_url}/subjects"
    with kafka.registry.fail(count=None):
        assert [status_of(url) for _ in range(3)] == [500, 500, 500]
    assert status_of(url) == 200
    kafka.registry.fail(count=None)
    kafka.heal()
    assert status_of(url) == 200


def test_requests_are_delayed(kafka: Kafka) -> None:
    url = f"{kafka.schema_registry_url}/subjects"
    with kafka.registry.delay(300):
        begin = time.monotonic()
        assert status_of(url) == 200
        assert time.monotonic() - begin >= 0.3
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(url, timeout=0.1)


def test_client_retries_a_registry_that_fails(kafka: Kafka) -> None:
    patient = SchemaRegistry(location=kafka.schema_registry_url)
    kafka.registry.fail(status=503, count=2)
    assert patient.register("a", Schema("AVRO", ONE)) == 1
    kafka.registry.fail(status=503)
    with pytest.raises(RegistryError, match="a fault of the test"):
        registry_of(kafka).subjects()


def test_wrong_arguments_are_refused(kafka: Kafka) -> None:
    for wrong in ({"status": 200}, {"status": "500"}, {"count": 0}):
        with pytest.raises(WrongArgument):
            kafka.registry.fail(**wrong)
    with pytest.raises((WrongArgument, ValueError)):
        kafka.registry.delay(-1)


@pytest.mark.kafka(security="SASL_SSL")
def test_registry_of_a_broker_with_security(kafka: Kafka) -> None:
    assert registry_of(kafka).register("a", Schema("AVRO", ONE)) == 1


def test_shared_broker_is_cleared(kafka_session: Kafka) -> None:
    registry = registry_of(kafka_session)
    with pytest.raises(SchemaNotFound):
        registry.latest("left-over")
    registry.register("left-over", Schema("AVRO", ONE))


def test_shared_broker_is_cleared_again(kafka_session: Kafka) -> None:
    test_shared_broker_is_cleared(kafka_session)
