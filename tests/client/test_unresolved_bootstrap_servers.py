"""Clients whose bootstrap servers have no address: what their calls raise (KIP-909)."""

import asyncio
import socket
import time
from collections.abc import Sequence
from typing import Any

import pytest

from ottla import Admin, Consumer, Producer, ShareConsumer
from ottla.client.errors import BootstrapUnresolved, KafkaError
from ottla.environment import connecting

CONFIGS = {"bootstrap.servers": "nowhere.invalid:9092", "bootstrap.resolve.timeout.ms": "400"}


@pytest.fixture(autouse=True)
def _no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(loop: asyncio.AbstractEventLoop, address: tuple[str, int]) -> Sequence[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(connecting, "_resolve", resolve)


def test_poll_of_a_consumer_raises_after_the_timeout() -> None:
    for configs in ({"group.id": "g"}, {"group.id": "g", "group.protocol": "consumer"}):
        with Consumer({**CONFIGS, **configs}) as consumer:
            consumer.subscribe(["t"])
            begun = time.monotonic()
            with pytest.raises(BootstrapUnresolved):
                consumer.poll(10)
            assert 0.3 < time.monotonic() - begun < 5


def test_poll_of_a_share_consumer_raises_after_the_timeout() -> None:
    with ShareConsumer({**CONFIGS, "group.id": "g"}) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(BootstrapUnresolved):
            consumer.poll(10)


def test_a_producer_reports_the_error_of_each_record_and_call() -> None:
    errors: list[KafkaError | None] = []
    with Producer(CONFIGS) as producer:
        with pytest.raises(BootstrapUnresolved):
            producer.partitions_for("t")
        try:
            producer.produce("t", b"x", on_delivery=lambda error, _: errors.append(error))
        except BootstrapUnresolved as error:
            errors.append(error)
        else:
            producer.flush()
    assert [type(error) for error in errors] == [BootstrapUnresolved]


def test_calls_of_an_admin_client_raise() -> None:
    with Admin(CONFIGS) as admin, pytest.raises(BootstrapUnresolved):
        admin.list_topics()
