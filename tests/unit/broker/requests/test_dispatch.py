"""From a request to its handler, and what a bug in a handler does."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from tests.queues import manual_queue

from ottla.broker.requests import dispatch
from ottla.broker.requests.handlers import SERVED
from ottla.broker.requests.pipeline import Pipeline
from ottla.protocol import api
from ottla.protocol.api import APIS
from ottla.protocol.connection import ClientConnection, Envelope, open_envelope
from ottla.protocol.context import RequestContext
from ottla.protocol.errors import UNKNOWN_SERVER_ERROR
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.schema import Request
from ottla.protocol.wire import PeerError


def envelope_of(request: Request, version: int) -> Envelope:
    frame = b"".join(ClientConnection("test").request(request, version))[4:]
    return open_envelope(frame)


def pipeline() -> Pipeline:
    """Return a pipeline whose handlers get a broker without services."""
    broker: Any = SimpleNamespace(tasks=manual_queue())
    return Pipeline(broker, lambda: 0)


def answer(request: Request, version: int) -> Any:
    envelope = envelope_of(request, version)
    context = RequestContext.__new__(RequestContext)
    return pipeline().serve(envelope, context)


@pytest.mark.parametrize("key", SERVED)
def test_every_api_that_is_served_has_a_handler_of_its_own_class(key: int) -> None:
    route = dispatch.route_of(key)
    assert route.request_class is APIS[key].request_class()
    for version in range(SERVED[key].versions.first, SERVED[key].versions.last + 1):
        assert version in route.request_class.VERSIONS


def test_a_version_that_is_not_served_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    served = SERVED[api.HEARTBEAT]
    monkeypatch.setitem(SERVED, api.HEARTBEAT, served._replace(versions=served.versions._replace(last=2)))
    with pytest.raises(PeerError, match="version 3 is not served"):
        answer(HeartbeatRequest(group_id="g", member_id="m"), 3)
    monkeypatch.delitem(SERVED, api.HEARTBEAT)
    with pytest.raises(PeerError, match="is not served"):
        answer(HeartbeatRequest(group_id="g", member_id="m"), 0)


def test_a_bug_in_a_handler_is_logged_and_answered(caplog: pytest.LogCaptureFixture) -> None:
    """Broker None stands for the bug: every use of it fails."""
    with caplog.at_level(logging.ERROR, "ottla.broker"):
        response = answer(HeartbeatRequest(group_id="g", member_id="m"), 4)
    assert isinstance(response, HeartbeatResponse)
    assert response.error_code == UNKNOWN_SERVER_ERROR
    assert "cannot serve " in caplog.text
    assert "AttributeError" in caplog.text


def test_a_request_without_a_response_that_fails_ends_the_connection() -> None:
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    with pytest.raises(PeerError, match="without acknowledgement failed"):
        dispatch.refusal(envelope_of(request, 9), UNKNOWN_SERVER_ERROR)


def test_a_truncated_body_raises_peer_error() -> None:
    envelope = envelope_of(ListGroupsRequest(states_filter=["x"]), 4)
    cut = open_envelope(envelope.frame[:-3])
    with pytest.raises(PeerError):
        pipeline().serve(cut, RequestContext.__new__(RequestContext))
