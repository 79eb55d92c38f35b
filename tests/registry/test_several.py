"""Several registries on one topic: one writes; without an election it is the one that has begun last."""

import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from ottla import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    Admin,
    ResourcePattern,
)
from ottla.registry.records import setting_record
from ottla.registry.service import RegistryConfig, RegistryThread
from ottla.testing import Kafka
from ottla.testing.cluster import KafkaCluster
from tests.free_ports import free_ports
from tests.registry.client import Registry
from tests.registry.schemas import ONE, TWO
from tests.registry.test_command import running


@contextmanager
def another(kafka: Kafka, group: str = "") -> Iterator[Registry]:
    thread = RegistryThread(RegistryConfig(kafka.client_config, port=0, group=group))
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
            wait_for(second, "/readyz", "another registry leads, and none is known to which changes can be sent\n")
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


def test_topic_that_was_deleted_and_created_again_is_a_new_state(kafka: Kafka) -> None:
    """Not the old one with new records: ids would be given that other registries do not know."""
    registry = Registry(kafka.schema_registry_url)
    registry.register("a", ONE)
    registry.register("b", TWO)
    kafka.delete_topic("_schemas")
    kafka.create_topic("_schemas", cleanup_policy="compact")
    wait_for(registry, "/subjects", [])
    assert registry.register("c", TWO) == 1


def test_topic_that_a_broker_creates_itself_stops_the_registry(kafka: Kafka) -> None:
    """It deletes schemas after a week, and the registry says so."""
    registry = Registry(kafka.schema_registry_url)
    registry.register("a", ONE)
    kafka.delete_topic("_schemas")
    kafka.create_topic("_schemas")
    deadline = time.monotonic() + 10
    while "You must configure the topic to 'compact'" not in str(registry.get("/subjects").value):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert registry.get("/readyz").status == 503


# Elections.

GROUP = "schema-registry"


def leader_of(registries: list[Registry]) -> Registry:
    """Return the registry that writes, once there is one, and all others know it."""
    deadline = time.monotonic() + 30
    while True:
        shown = [registry.get("/metrics").value for registry in registries]
        leading = [
            registry
            for registry, text in zip(registries, shown, strict=True)
            if re.search(r"^ottla_schema_registry_ready 1(\.0)?$", text, re.MULTILINE)
        ]
        ready = [registry.get("/readyz").status for registry in registries]
        if len(leading) == 1 and set(ready) == {200}:
            return leading[0]
        assert time.monotonic() < deadline, (leading, ready)
        time.sleep(0.05)


def test_changes_are_sent_to_the_registry_with_the_smallest_url(kafka: Kafka) -> None:
    with ExitStack() as stack:
        registries = [stack.enter_context(another(kafka, GROUP)) for _ in range(3)]
        kafka.wait_for_group(GROUP, members=3, timeout=20)
        smallest = min(registries, key=lambda registry: registry.url)
        deadline = time.monotonic() + 20
        while leader_of(registries) is not smallest:
            assert time.monotonic() < deadline
        answered = []
        for number, registry in enumerate(registries):
            answered.append(
                registry.register(f"s{number}", json.dumps({"type": "fixed", "name": "F", "size": number + 1}))
            )
        assert sorted(answered) == [1, 2, 3]
        for registry in registries:
            wait_for(registry, "/subjects", ["s0", "s1", "s2"])
            refused = registry.post("/subjects/s0/versions", {"schema": '"int"'})
            assert refused.status == 409  # an error is passed on too
        follower = next(registry for registry in registries if registry is not smallest)
        assert follower.put("/config/s0", {"compatibility": "NONE"}).value == {"compatibility": "NONE"}
        assert smallest.get("/config/s0").value == {"compatibilityLevel": "NONE"}
        assert follower.delete("/subjects/s1").value == [1]
        refused = follower.ask("DELETE", "/subjects/s2", headers={"X-Forward": "true"})
        assert refused.error == (500, 50004)  # it was forwarded once already


def test_another_registry_is_elected_when_the_leader_leaves(kafka: Kafka) -> None:
    with ExitStack() as stack:
        stacks = [stack.enter_context(ExitStack()) for _ in range(3)]
        registries = [one.enter_context(another(kafka, GROUP)) for one in stacks]
        kafka.wait_for_group(GROUP, members=3, timeout=20)
        for number in range(2):
            leader = leader_of(registries)
            assert (
                leader.register(f"s{number}", json.dumps({"type": "fixed", "name": "F", "size": number + 1}))
                == number + 1
            )
            at = registries.index(leader)
            registries.pop(at)
            stacks.pop(at).close()
        (last,) = registries
        assert leader_of([last]) is last
        assert last.register("s2", '"int"') == 3


def test_lone_registry_leads_at_once_although_its_dead_member_is_in_the_group(kafka_factory: Any) -> None:
    """The first member of a group waits for others, 5 s here, and a dead one stays for its session of 10 s."""
    kafka: Kafka = kafka_factory({"group.initial.rebalance.delay.ms": 5000})
    port = free_ports(1)[0]
    listen = ("schema-registry", "--bootstrap-server", kafka.bootstrap_servers, "--listen", f"127.0.0.1:{port}")
    with running(*listen) as process:
        begin = time.monotonic()
        process.registry().register("a", ONE)
        assert time.monotonic() - begin < 10  # with the start of Python
        kafka.wait_for_group(GROUP, members=1, timeout=20)
        process.process.kill()
        process.finish()
    thread = RegistryThread(RegistryConfig(kafka.client_config, port=port))
    try:
        begin = time.monotonic()
        thread.run(thread.service.wait_ready())
        assert Registry(thread.url).register("a", TWO) == 2
        assert time.monotonic() - begin < 4
    finally:
        begin = time.monotonic()
        thread.stop()  # it does not wait for the group either
        assert time.monotonic() - begin < 6


def test_registry_that_may_not_join_the_group_leads_alone() -> None:
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Kafka(authorizer) as kafka, Admin(kafka.client_config) as admin:
        entry = AccessControlEntry("User:eve", AclOperation.READ, AclPermissionType.ALLOW)
        admin.create_acls([AclBinding(ResourcePattern(AclResourceType.GROUP, GROUP), entry)]).check()
        with another(kafka, GROUP) as registry:
            assert registry.register("a", ONE) == 1
            time.sleep(0.5)
            assert registry.register("a", TWO) == 2


def test_leader_is_killed_under_registrations(kafka_cluster: Any, request: pytest.FixtureRequest) -> None:
    """Of three registries on three brokers. No id is given twice, no version that was answered is lost, and registrations go
    on after its session.
    """
    rounds = int(request.config.getoption("--soak"))
    kafka: KafkaCluster = kafka_cluster(3)
    ports = sorted(free_ports(3), key=str)
    with ExitStack() as stack:
        arguments = (
            "schema-registry",
            "--bootstrap-server",
            kafka.bootstrap_servers,
            "--log-level",
            "error",
            "--listen",
        )
        processes = [stack.enter_context(running(*arguments, f"127.0.0.1:{port}")) for port in ports]
        registries = [process.registry() for process in processes]
        kafka.wait_for_group(GROUP, members=3, timeout=20)
        leader_of(registries)
        registries[0].put("/config", {"compatibility": "NONE"})
        answered: dict[str, int] = {}
        ended = threading.Event()

        def register(number: int) -> None:
            while not ended.is_set():
                number += 3
                text = json.dumps({"type": "fixed", "name": "F", "size": number}, separators=(",", ":"))
                try:
                    answer = registries[number // 3 % 3].post("/subjects/a/versions", {"schema": text})
                except (OSError, http.client.HTTPException):
                    time.sleep(0.05)  # that process is dead
                    continue
                if answer.status == 200:
                    answered[text] = answer.value["id"]

        clients = [threading.Thread(target=register, args=(start,)) for start in range(3)]
        for client in clients:
            client.start()
        for _ in range(rounds):
            time.sleep(0.5)
            processes[0].process.kill()  # it has the smallest URL
            processes[0].finish()
            count = len(answered)
            deadline = time.monotonic() + 20
            while len(answered) < count + 20:
                assert time.monotonic() < deadline, "no registration succeeds after the leader was killed"
                time.sleep(0.1)
            processes[0] = stack.enter_context(running(*arguments, f"127.0.0.1:{ports[0]}"))
            processes[0].registry()
        time.sleep(1)
        ended.set()
        for client in clients:
            client.join()
        assert len(set(answered.values())) == len(answered) > 20
        leader = leader_of(registries)
        for text, number in answered.items():
            assert leader.get(f"/schemas/ids/{number}").value == {"schema": text}
        versions = leader.get("/subjects/a/versions").value
        assert len(versions) >= len(answered)
