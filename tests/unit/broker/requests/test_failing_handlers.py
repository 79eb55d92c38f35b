"""A handler that raises: every API in every version, at its first step and at a later one.

The request is answered in its version with UNKNOWN_SERVER_ERROR in all of its rows, the failure is logged once, and the
connection stays open.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.conformance.conftest import Wire
from tests.testing.samples import codes_in, sample

from ottla.broker.requests import dispatch
from ottla.broker.requests.handlers import SERVED
from ottla.protocol.api import APIS
from ottla.protocol.errors import NONE, UNKNOWN_SERVER_ERROR
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.testing import EmbeddedBroker


class Bug(Exception):
    """An exception that nothing expects."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker({"unstable.api.versions.enable": "true", "auto.create.topics.enable": "false"}) as broker:
        yield broker


@pytest.fixture
def wire(broker: EmbeddedBroker) -> Iterator[Wire]:
    wire = Wire(broker.address, is_kafka=False)
    yield wire
    wire.close()
    broker.server.pipeline._routes.clear()


def raise_bug(*_: Any) -> Any:
    raise Bug


def fail_at_first_step(monkeypatch: pytest.MonkeyPatch, key: int, _: threading.Thread) -> None:
    route = dispatch.route_of(key)
    monkeypatch.setitem(dispatch._ROUTES, key, route._replace(handler=raise_bug, is_coroutine=False))


def fail_where_the_response_is_made(monkeypatch: pytest.MonkeyPatch, key: int, thread: threading.Thread) -> None:
    """The response is made after all that a handler waits for; the second one is that of the failure. Those of other threads,
    of brokers of other tests, do not fail.
    """
    response_class = APIS[key].response_class()
    response_class()  # its constructor is made with the first object
    construct = response_class.__init__
    made = 0

    def fail_once(response: Any, **values: Any) -> None:
        nonlocal made
        made += threading.current_thread() is thread
        if made == 1 and threading.current_thread() is thread:
            raise Bug
        construct(response, **values)

    monkeypatch.setattr(response_class, "__init__", fail_once)


@pytest.mark.parametrize("plant", [fail_at_first_step, fail_where_the_response_is_made])
@pytest.mark.parametrize("key", SERVED, ids=lambda key: APIS[key].name)
def test_every_api_answers_a_failure_of_its_handler(
    wire: Wire,
    broker: EmbeddedBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    key: int,
    plant: Callable[[pytest.MonkeyPatch, int, threading.Thread], None],
) -> None:
    for version in range(SERVED[key].versions[0], SERVED[key].versions[1] + 1):
        caplog.clear()
        broker.server.pipeline._routes.clear()
        with monkeypatch.context() as planted, caplog.at_level(logging.WARNING):
            assert broker._thread is not None
            plant(planted, key, broker._thread)
            response = wire.send(sample(key, version), version)
        codes = [code for _, code in codes_in(response)]
        assert UNKNOWN_SERVER_ERROR in codes, version
        assert set(codes) <= {UNKNOWN_SERVER_ERROR, NONE}, version
        assert [record.levelname for record in caplog.records] == ["ERROR"], version
        assert "Bug" in caplog.text
        broker.server.pipeline._routes.clear()
        assert wire.send(ApiVersionsRequest(), 0).error_code == NONE
