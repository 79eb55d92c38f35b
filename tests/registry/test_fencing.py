"""A registry that was paused while it led: what it sends after another one has begun to lead is refused."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager

import pytest

from ottla import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    Admin,
    ResourcePattern,
    TopicPartition,
)
from ottla.client.errors import FencedError, KafkaError
from ottla.registry.fencing import Fencing
from ottla.registry.records import Record, setting_record
from ottla.registry.service import RegistryConfig, RegistryThread
from ottla.registry.store import Store
from ottla.testing import Kafka
from tests.free_ports import free_ports
from tests.registry.client import Answer, Registry
from tests.registry.schemas import ONE, TWO
from tests.registry.test_command import running

GROUP = "schema-registry"
TRANSACTIONAL_ID = "schema-registry:schema-registry"


def level(name: str) -> Record:
    return setting_record("CONFIG", "", {"compatibilityLevel": name})


@asynccontextmanager
async def open_store(kafka: Kafka, fencing: Fencing) -> AsyncIterator[Store]:
    store = Store(kafka.client_config, "_schemas", lambda: None, fencing)
    try:
        await store.open()
        yield store
    finally:
        await store.close()


def run(kafka: Kafka, test: Callable[[Store, Store], Awaitable[None]]) -> None:
    """Run a test with two registries on one topic, each with a process of its own in mind."""

    async def main() -> None:
        one, other = Fencing(TRANSACTIONAL_ID), Fencing(TRANSACTIONAL_ID)
        async with open_store(kafka, one) as first, open_store(kafka, other) as second:
            await test(first, second)

    asyncio.run(main())


def reported(log: pytest.LogCaptureFixture) -> int:
    return sum("paused while it led" in record.message for record in log.records)


def test_record_of_a_paused_leader_is_refused_once_its_successor_leads(kafka: Kafka) -> None:
    async def test(paused: Store, successor: Store) -> None:
        await paused.lead()
        await paused.write([level("FORWARD")])
        await successor.lead()
        await successor.write([level("FULL")])
        for _ in range(3):  # nothing raises its epoch again
            with pytest.raises(FencedError):
                await paused.write([level("NONE")])
        assert not paused.leads
        await successor.write([level("BACKWARD")])
        await paused.catch_up()
        assert successor.state.config("")["compatibilityLevel"] == "BACKWARD"
        assert paused.state.config("")["compatibilityLevel"] == "BACKWARD"

    run(kafka, test)


def test_paused_leader_may_be_elected_again(kafka: Kafka) -> None:
    async def test(paused: Store, successor: Store) -> None:
        await paused.lead()
        await successor.lead()
        with pytest.raises(FencedError):
            await paused.write([level("NONE")])
        await paused.lead()
        await paused.write([level("FULL")])
        with pytest.raises(FencedError):
            await successor.write([level("NONE")])

    run(kafka, test)


def test_write_that_fails_is_followed_by_an_epoch_of_the_coordinator(kafka: Kafka) -> None:
    """A producer raises its epoch itself after a failure: that could be the epoch of the next leader."""

    async def test(leader: Store, successor: Store) -> None:
        await leader.lead()
        kafka.fail("Produce", error="INVALID_REQUIRED_ACKS", count=1)
        with pytest.raises(KafkaError):
            await leader.write([level("NONE")])
        await leader.renew()
        await leader.write([level("FULL")])
        partition = TopicPartition("_schemas", 0)
        with Admin(kafka.client_config) as admin:
            (state,) = admin.describe_producers([partition])[partition]
            transaction = admin.describe_transactions([TRANSACTIONAL_ID])[TRANSACTIONAL_ID]
        identity = transaction.producer_id, transaction.producer_epoch
        assert (state.producer_id, state.producer_epoch) == identity
        assert state.producer_epoch == 1
        await successor.lead()
        with pytest.raises(FencedError):
            await leader.write([level("NONE")])

    run(kafka, test)


def test_oldest_release_that_registries_need_has_epochs(kafka: Kafka) -> None:
    kafka.pin_versions("0.11.0")

    async def test(paused: Store, successor: Store) -> None:
        await paused.lead()
        await successor.lead()
        with pytest.raises(FencedError):
            await paused.write([level("NONE")])

    run(kafka, test)


def test_cluster_without_epochs_is_used_with_the_noop_alone(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    kafka.fail("InitProducerId", error="UNSUPPORTED_VERSION", count=None)

    async def test(paused: Store, successor: Store) -> None:
        for store in (paused, successor, paused, successor):
            await store.lead()
        await successor.write([level("FULL")])
        await paused.write([level("NONE")])  # what a paused leader had sent arrives

    with caplog.at_level(logging.WARNING, "ottla.registry"):
        run(kafka, test)
    assert reported(caplog) == 2  # once for each registry


def test_registry_leads_before_the_transaction_coordinator_answers_and_is_fenced_later(kafka: Kafka) -> None:
    """In a new cluster that has to create its topic first."""

    async def test(paused: Store, successor: Store) -> None:
        loading = kafka.fail("InitProducerId", error="COORDINATOR_LOAD_IN_PROGRESS", count=None)
        leading = asyncio.create_task(paused.lead())
        await asyncio.sleep(2.5)
        loading.end()  # that of a producer without a transactional id as well
        await leading
        assert paused.leads
        first = paused.state.led_from
        async with asyncio.timeout(20):
            while paused.state.led_from == first or not paused.leads:
                await asyncio.sleep(0.05)
        await paused.write([level("FORWARD")])
        await successor.lead()
        with pytest.raises(FencedError):
            await paused.write([level("NONE")])

    run(kafka, test)


def test_registry_that_may_not_use_the_transactional_id_leads_with_the_noop_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Kafka(authorizer) as kafka, Admin(kafka.client_config) as admin:
        entry = AccessControlEntry("User:eve", AclOperation.WRITE, AclPermissionType.ALLOW)
        pattern = ResourcePattern(AclResourceType.TRANSACTIONAL_ID, TRANSACTIONAL_ID)
        admin.create_acls([AclBinding(pattern, entry)]).check()
        with caplog.at_level(logging.WARNING, "ottla.registry"):
            thread = RegistryThread(RegistryConfig(kafka.client_config, port=0))
            thread.run(thread.service.wait_ready())
            assert Registry(thread.url).register("a", ONE) == 1
            thread.stop()
    assert reported(caplog) == 1
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in caplog.text


async def lead_once(kafka: Kafka) -> None:
    """Take the lead as a registry that ends before it is a member of the group."""
    async with open_store(kafka, Fencing(TRANSACTIONAL_ID)) as store:
        await store.lead()


def test_leader_that_was_fenced_refuses_changes_and_leads_again(kafka: Kafka) -> None:
    """Its group has no other member: what took the lead has ended."""
    thread = RegistryThread(RegistryConfig(kafka.client_config, port=0))
    try:
        thread.run(thread.service.wait_ready())
        registry = Registry(thread.url)
        assert registry.register("a", ONE) == 1
        kafka.wait_for_group(GROUP, members=1, timeout=20)
        asyncio.run(lead_once(kafka))
        refused = registry.put("/config", {"compatibility": "NONE"})
        assert refused.error == (500, 50004)
        deadline = time.monotonic() + 20
        while registry.get("/readyz").status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert registry.register("a", TWO) == 2
        assert registry.get("/config").value == {"compatibilityLevel": "BACKWARD"}
    finally:
        thread.stop()


def test_request_that_reaches_a_paused_leader_undoes_nothing_of_its_successor(kafka: Kafka) -> None:
    """The process stands still for longer than its session, and finds a request when it continues."""
    ports = sorted(free_ports(2), key=str)
    arguments = ("schema-registry", "--bootstrap-server", kafka.bootstrap_servers, "--log-level", "error", "--listen")
    with ExitStack() as stack:
        paused, successor = (stack.enter_context(running(*arguments, f"127.0.0.1:{port}")) for port in ports)
        registries = [process.registry() for process in (paused, successor)]
        kafka.wait_for_group(GROUP, members=2, timeout=30)
        deadline = time.monotonic() + 30
        while "ottla_schema_registry_ready 1" not in str(registries[0].get("/metrics").value):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.kill(paused.process.pid, signal.SIGSTOP)
        answers: list[Answer] = []
        waiting = threading.Thread(
            target=lambda: answers.append(registries[0].put("/config", {"compatibility": "NONE"}))
        )
        waiting.start()
        deadline = time.monotonic() + 40
        while registries[1].put("/config", {"compatibility": "FULL"}).status != 200:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        os.kill(paused.process.pid, signal.SIGCONT)
        waiting.join()
        expected = "NONE" if answers[0].status == 200 else "FULL"  # forwarded to the successor, or refused
        time.sleep(0.5)
        assert registries[1].get("/config").value == {"compatibilityLevel": expected}
        assert answers[0].status in (200, 500)
