"""Several registries on one topic: the one that has begun last writes, the others read along."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ottla.registry.records import setting_record
from ottla.registry.service import RegistryConfig, RegistryThread
from ottla.testing import Kafka
from tests.registry.client import Registry
from tests.registry.schemas import ONE, TWO


@contextmanager
def another(kafka: Kafka) -> Iterator[Registry]:
    thread = RegistryThread(RegistryConfig(kafka.client_config, port=0))
    try:
        thread.run(thread.service.wait_ready())
        yield Registry(thread.url)
    finally:
        thread.stop()


def wait_for(registry: Registry, path: str, value: object) -> None:
    deadline = time.monotonic() + 10
    while registry.get(path).value != value:
        assert time.monotonic() < deadline, registry.get(path)
        time.sleep(0.01)


def test_registry_that_has_begun_last_writes(kafka: Kafka) -> None:
    with another(kafka) as first, another(kafka) as second:
        assert first.get("/subjects").value == []
        assert second.register("a", ONE) == 1
        wait_for(first, "/subjects", ["a"])
        refused = first.post("/subjects/a/versions", {"schema": TWO})
        assert refused.error == (500, 50004)
        assert refused.message == "Leader not known."
        assert first.register("a", ONE) == 1  # a version already: nothing to write
        assert first.get("/readyz").status == 503
        assert second.get("/readyz").status == 200
        assert second.register("a", TWO) == 2
        wait_for(first, "/subjects/a/versions", [1, 2])
        with another(kafka) as third:
            wait_for(second, "/readyz", "another registry leads; this one only reads\n")
            assert third.register("b", '"int"') == 3


def test_no_id_and_no_version_is_lost_while_the_leader_changes(kafka: Kafka) -> None:
    """Registrations in one subject go on while other registries begin; what was answered is there, and stays."""
    with ExitStack() as stack:
        registries = [stack.enter_context(another(kafka))]
        answered: dict[int, str] = {}
        ended = threading.Event()

        def register(start: int) -> None:
            number = start
            while not ended.is_set():
                number += 1
                text = json.dumps({"type": "fixed", "name": "F", "size": number}, separators=(",", ":"))
                answer = registries[number % len(registries)].post("/subjects/a/versions", {"schema": text})
                if answer.status == 200:
                    answered[answer.value["id"]] = text

        registries[0].put("/config", {"compatibility": "NONE"})
        clients = [threading.Thread(target=register, args=(start,)) for start in (0, 100_000)]
        for client in clients:
            client.start()
        for _ in range(3):
            time.sleep(0.3)
            registries.append(stack.enter_context(another(kafka)))
        time.sleep(0.3)
        ended.set()
        for client in clients:
            client.join()
        last = registries[-1]
        missing = [
            number
            for number, text in answered.items()
            if last.get(f"/schemas/ids/{number}").value.get("schema") != text
        ]
        assert len(answered) > 10
        assert missing == []


def test_record_of_another_registry_is_seen(kafka: Kafka) -> None:
    """Also one of Karapace or Confluent, and answers that were kept are computed again."""
    registry = Registry(kafka.schema_registry_url)
    assert registry.get("/config").value == {"compatibilityLevel": "BACKWARD"}
    key, value = setting_record("CONFIG", "", {"compatibilityLevel": "FULL"}).encoded()
    kafka.produce("_schemas", value, key=key)
    wait_for(registry, "/config", {"compatibilityLevel": "FULL"})


def test_records_of_karapace_are_read(kafka: Kafka) -> None:
    """As Karapace writes them: keys of texts sorted, configs without their subject, a global key with null."""
    registry = Registry(kafka.schema_registry_url)
    text = '{"fields":[{"name":"id","type":"long"}],"name":"Order","type":"record"}'
    rows = [
        (
            {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1},
            {"subject": "orders-value", "version": 1, "id": 1, "schema": text, "deleted": False, "schemaType": "AVRO"},
        ),
        ({"keytype": "CONFIG", "subject": "orders-value", "magic": 0}, {"compatibilityLevel": "NONE"}),
        ({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "FULL"}),
    ]
    for key, value in rows:
        kafka.produce("_schemas", json.dumps(value), key=json.dumps(key, separators=(",", ":")))
    wait_for(registry, "/config", {"compatibilityLevel": "FULL"})
    assert registry.get("/config/orders-value").value == {"compatibilityLevel": "NONE"}
    assert registry.get("/schemas/ids/1").value == {"schema": text}
    assert registry.register("orders-value", ONE) == 1  # the same schema in another order
    assert registry.post("/subjects/orders-value", {"schema": ONE}).value["version"] == 1
    assert registry.register("orders-value", TWO) == 2
