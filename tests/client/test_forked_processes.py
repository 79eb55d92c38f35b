"""Clients of the parent in a forked process raise one clear error; the parent goes on, and the child may have its own."""

import asyncio
import inspect
import os
import signal
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ottla import Admin, Consumer, Producer, ShareConsumer, TopicPartition, aio
from ottla.client.errors import IllegalState
from ottla.testing import EmbeddedBroker

from .conftest import Read

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")

PARTITIONS = [[TopicPartition("t", 0)]]
ARGUMENTS = {
    "produce_arrow": (pa.table({"value": ["1"]}), "t"),
    "assign": PARTITIONS,
    "pause": PARTITIONS,
    "resume": PARTITIONS,
}
"""Of methods that look at them before anything else; all others are called with a list of one text for each argument."""


def in_child(function: Callable[[], object]) -> str:
    """Run `function` in a forked process; return its result or exception as a line. A process that hangs ends after 20 s."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.12: there are threads, which is what is tried here
        process = os.fork()
    if not process:
        signal.alarm(20)
        try:
            outcome = f"returned {function()!r}"
        except BaseException as error:  # noqa: BLE001  (the parent compares it)
            outcome = f"{type(error).__name__}: {error}"
        os.write(writing, outcome.encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        outcome = pipe.read().decode()
    assert os.waitpid(process, 0)[1] == 0, f"the child was ended by its alarm; its outcome so far: {outcome!r}"
    return outcome


def methods(kind: type) -> list[str]:
    """Public methods that ask for something: all but `close`."""
    names = [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    return [name for name in names if name != "close"]


def call(client: Any, name: str) -> object:
    method = getattr(client, name)
    required = [
        parameter
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    answer = method(*ARGUMENTS.get(name, [["x"]] * len(required)))
    return asyncio.run(answer) if inspect.iscoroutine(answer) else answer


def silent(client: Any) -> str:
    """The methods that raise something else than the error of a forked process, or nothing."""
    wrong = []
    for name in methods(type(client)):
        try:
            wrong.append(f"{name} returned {call(client, name)!r}")
        except IllegalState as error:
            if "create one in each process, after the fork" not in str(error):
                wrong.append(f"{name}: {error}")
        except Exception as error:  # noqa: BLE001  (listed)
            wrong.append(f"{name}: {error!r}")
    return "; ".join(wrong)


CLIENTS = [
    (Producer, {}),
    (Producer, {"transactional_id": "forked"}),
    (Consumer, {"group_id": "forked"}),
    (ShareConsumer, {"group_id": "forked-share"}),
    (Admin, {}),
]


@pytest.mark.parametrize(("kind", "options"), CLIENTS)
def test_every_method_of_the_parents_client_raises_one_clear_error(
    bootstrap_servers: str, kind: Any, options: dict[str, str]
) -> None:
    with kind(bootstrap_servers=bootstrap_servers, **options) as client:
        assert len(methods(kind)) > 8
        assert in_child(lambda: silent(client)) == "returned ''"


@pytest.mark.parametrize("kind", [aio.Producer, aio.Consumer, aio.ShareConsumer, aio.Admin])
def test_clients_of_asyncio_raise_the_same_error(bootstrap_servers: str, kind: Any) -> None:
    async def fork() -> str:
        options = {} if kind in (aio.Producer, aio.Admin) else {"group_id": "forked"}
        async with kind(bootstrap_servers=bootstrap_servers, **options) as client:
            return in_child(lambda: silent(client))

    assert asyncio.run(fork()) == "returned ''"


def test_the_error_names_both_processes(bootstrap_servers: str) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        outcome = in_child(lambda: producer.produce("t", "of the child"))
    assert outcome.startswith(f"IllegalState: this Producer belongs to process {os.getpid()}, from which process ")


def test_the_end_of_a_with_block_in_the_child_leaves_the_parent_its_client(
    bootstrap_servers: str, topic: str, read: Read
) -> None:
    def child() -> str:
        producer.close()
        with Producer(bootstrap_servers=bootstrap_servers) as own:
            own.produce(topic, "of the child", partition=0)
        return "its own works"

    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.produce(topic, "before", partition=0)
        assert producer.flush(10) == 0
        assert in_child(child) == "returned 'its own works'"
        producer.produce(topic, "after", partition=0)
        assert producer.flush(10) == 0
    assert [record.value for record in read(topic, 3)] == [b"before", b"of the child", b"after"]


def test_records_that_the_parent_has_fetched_are_not_processed_in_the_child_too(
    bootstrap_servers: str, topic: str
) -> None:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.produce_many(topic, [str(number) for number in range(10)], partition=0)
    with Consumer(bootstrap_servers=bootstrap_servers, group_id=f"g-{topic}", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        first = consumer.poll(20)
        assert first is not None
        assert "IllegalState: this Consumer belongs to process" in in_child(lambda: consumer.poll(5))
        assert [record.value for record in consumer.consume(9, 20)] == [str(number).encode() for number in range(1, 10)]


def test_a_broker_of_the_parent_is_not_stopped_by_the_child() -> None:
    with EmbeddedBroker() as broker:
        assert in_child(broker.close) == "returned None"
        assert broker.data_dir.exists()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.describe_cluster(timeout=10).nodes
