"""Faults between the pieces of a large request: every API that is served in pieces, at pauses from the first to the last.

The broker pauses at every chance here, as the clock of its CPU time runs ahead. A fault hits at one of them: the topic that the
request names is deleted, its leader moves, its configs change, the permission for it is taken, the connection is closed, or the
broker stops. The request is then answered, with all of its rows and no error that stands for a bug; or, as of a stopped broker,
its connection is closed. Nothing is logged as an error, and the broker goes on.
"""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, Final

import pytest
from tests.conformance.conftest import Closed, Wire
from tests.testing.samples import codes_in
from tests.unit.broker.requests.test_parts import CONFIGS, build_request

from ottla.broker.broker import Broker
from ottla.broker.requests import dispatch
from ottla.broker.requests.handlers import SERVED
from ottla.metadata import changes
from ottla.metadata.image import NO_LEADER, Image
from ottla.metadata.store import Change
from ottla.protocol.api import ALTER_PARTITION_REASSIGNMENTS, APIS
from ottla.protocol.errors import UNKNOWN_SERVER_ERROR
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.rows import count_rows, path_in, response_path
from ottla.protocol.schema import Struct
from ottla.security.acls import Acl
from ottla.testing import EmbeddedBroker

NS_A_LOOK: Final = 20_000_000
"""More than the time of a pass, so that each look at the clock pauses."""
TOPIC: Final = 2
MANY: Final = 1 << 20
LITERAL, DENY, ALL = 3, 2, 2
KEYS: Final = [key for key in SERVED if dispatch.route_of(key).paths]
PARTS_OF_THE_WAY: Final = (0.02, 0.6)
Wires = Callable[[EmbeddedBroker, int], list[Wire]]


class Looks:
    """Clock of CPU time that is looked at before each pause; a fault hits at one of the looks."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.count = 0
        self.hits_at = -1
        self.fault: Callable[[], object] | None = None

    def arm(self, hits_at: int, fault: Callable[[], object] | None) -> None:
        self.count, self.hits_at, self.fault = 0, hits_at, fault

    def __call__(self) -> int:
        self.now_ns += NS_A_LOOK
        if self.count == self.hits_at and self.fault is not None:
            self.fault()
        self.count += 1
        return self.now_ns


def commit(broker: Broker, change_of: Callable[[Image], Change]) -> None:
    """Make a change of the metadata behind what runs now."""

    async def make() -> None:
        await broker.metadata.commit(change_of(broker.image))

    broker.tasks.call(lambda: broker.tasks.background(make(), "fault"))


def delete(broker: Broker, wire: Wire, topic: str) -> None:
    commit(broker, lambda image: next(iter(changes.delete_topics(image, [image.topics[topic]], 1000)))[1])


def lose_leader(broker: Broker, wire: Wire, topic: str) -> None:
    def change(image: Image) -> Change:
        its = image.topics[topic]
        states = [
            (its, index, row._replace(leader=NO_LEADER, leader_epoch=row.leader_epoch + 1, epoch=row.epoch + 1))
            for index, row in enumerate(its.partitions)
        ]
        return changes.partition_states(image, states)

    commit(broker, change)


def configure(broker: Broker, wire: Wire, topic: str) -> None:
    commit(broker, lambda image: changes.configure(image, TOPIC, topic, {"retention.ms": "123456"}))


def deny(broker: Broker, wire: Wire, topic: str) -> None:
    denied = Acl(TOPIC, LITERAL, topic, "User:*", "*", ALL, DENY)
    commit(broker, lambda image: next(iter(changes.set_acls(image, [denied], [], 1000))))


def close(broker: Broker, wire: Wire, topic: str) -> None:
    wire.socket().shutdown(socket.SHUT_RDWR)


FAULTS: Final = {
    "deleted": delete,
    "leader lost": lose_leader,
    "configured": configure,
    "denied": deny,
    "closed": close,
}


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks()
    monkeypatch.setattr("ottla.environment.process.thread_cpu_ns", looks)
    return looks


@pytest.fixture
def broker(looks: Looks) -> Iterator[EmbeddedBroker]:
    """A broker with a topic for each fault."""
    with EmbeddedBroker(CONFIGS) as broker:
        wire = Wire(broker.address, is_kafka=False)
        names = ["none", *(name_of(fault, part) for fault in FAULTS for part in PARTS_OF_THE_WAY)]
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in names]
        answer = wire.send(CreateTopicsRequest(topics=topics), 5)
        assert {row.error_code for row in answer.topics} == {0}
        wire.close()
        yield broker


@pytest.fixture
def wires() -> Iterator[Wires]:
    """Open connections, until the end of the test."""
    with ExitStack() as stack:

        def opened(broker: EmbeddedBroker, count: int) -> list[Wire]:
            made = [Wire(broker.address, is_kafka=False) for _ in range(count)]
            for wire in made:
                stack.callback(wire.close)
            return made

        yield opened


def name_of(fault: str, part: float) -> str:
    return f"{fault.replace(' ', '-')}-{part}"


def request_of(broker: EmbeddedBroker, key: int, topic: str) -> Any:
    """A request for 600 unknown rows and then as many of a topic, or for the topic as the last of 601."""
    version = SERVED[key].versions[1]
    route = dispatch.route_of(key)
    path = path_in(route.request_class, route.paths, version)
    request = build_request(key, version, path, [("unknown", 600), (topic, 600 if len(path) > 1 else 1)])
    identify(request, topic, broker.broker.image.topics[topic].id)
    return request


def identify(struct: Any, topic: str, topic_id: bytes) -> None:
    """Put the id of the topic where its name stands for it."""
    for declared in struct.FIELDS:
        value = getattr(struct, declared.name)
        if value == topic.encode()[:16].rjust(16):
            setattr(struct, declared.name, topic_id)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Struct):
                identify(inner, topic, topic_id)


def codes(answer: Any) -> set[int]:
    return {code for _, code in codes_in(answer)}


def check_faults(
    broker: EmbeddedBroker, looks: Looks, wires: Wires, caplog: pytest.LogCaptureFixture, key: int
) -> None:
    """Let each fault hit a request of an API at each part of its way, and check what it answers."""
    version = SERVED[key].versions[1]
    wire, *others = wires(broker, 1 + len(FAULTS) * len(PARTS_OF_THE_WAY))
    looks.arm(-1, None)
    wire.send(request_of(broker, key, "none"), version)  # what a first request creates is there for the next one
    looks.arm(-1, None)
    undisturbed = wire.send(request_of(broker, key, "none"), version)
    pauses = looks.count
    assert pauses > 3
    missed = set()
    for fault, hit in FAULTS.items():
        for part in PARTS_OF_THE_WAY:
            topic = name_of(fault, part)
            own = others.pop()
            request = request_of(broker, key, topic)
            own.socket()  # connected here: the fault, which hits on the broker's thread, may come before the request
            looks.arm(int(pauses * part), partial(hit, broker.broker, own, topic))
            with caplog.at_level(logging.WARNING):
                if fault == "closed":
                    with suppress(Closed, OSError):  # unless its last pauses come after the response
                        own.send(request, version)
                else:
                    answer = own.send(request, version)
                    assert UNKNOWN_SERVER_ERROR not in codes(answer) - codes(undisturbed), (fault, part)
                    assert shape(key, answer) == shape(key, undisturbed), (fault, part)
                assert wire.send(ApiVersionsRequest(), 0).error_code == 0
            if looks.count <= int(pauses * part):
                missed.add(part)  # a request that repeats what another has done has fewer pauses
            looks.arm(-1, None)
    assert PARTS_OF_THE_WAY[0] not in missed
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("key", KEYS, ids=lambda key: APIS[key].name)
def test_a_fault_at_a_pause_is_an_answer_of_its_rows(
    broker: EmbeddedBroker, looks: Looks, wires: Wires, caplog: pytest.LogCaptureFixture, key: int
) -> None:
    check_faults(broker, looks, wires, caplog, key)


def test_a_handler_that_uses_an_old_image_after_a_pause_fails(
    broker: EmbeddedBroker,
    looks: Looks,
    wires: Wires,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    route = dispatch.route_of(ALTER_PARTITION_REASSIGNMENTS)

    async def trusting(request: Any, broker: Broker) -> Any:
        known = [row.name for row in request.topics if row.name in broker.image.topics]
        for _ in range(1000):
            await broker.tasks.pace()
        assert all(broker.image.topics[name].partitions for name in known)
        answer: Any = route.handler(request, broker)
        return await answer

    monkeypatch.setitem(dispatch._ROUTES, ALTER_PARTITION_REASSIGNMENTS, route._replace(handler=trusting))
    with pytest.raises(AssertionError, match="deleted"):
        check_faults(broker, looks, wires, caplog, ALTER_PARTITION_REASSIGNMENTS)


def shape(key: int, answer: Any) -> int:
    """Number of the rows of a response."""
    version = SERVED[key].versions[1]
    route = dispatch.route_of(key)
    path = response_path(APIS[key].response_class(), version, path_in(route.request_class, route.paths, version))
    return count_rows(answer, path, MANY) if path and getattr(answer, path[0]) is not None else 0


@pytest.mark.parametrize("part", PARTS_OF_THE_WAY)
@pytest.mark.parametrize("key", KEYS, ids=lambda key: APIS[key].name)
def test_a_broker_that_stops_at_a_pause_closes_the_connection(
    broker: EmbeddedBroker, looks: Looks, wires: Wires, caplog: pytest.LogCaptureFixture, key: int, part: float
) -> None:
    version = SERVED[key].versions[1]
    (wire,) = wires(broker, 1)
    request = request_of(broker, key, "none")
    for _ in range(2):
        looks.arm(-1, None)
        wire.send(request, version)
    reached = threading.Event()
    looks.arm(int(looks.count * part), reached.set)
    wire.send_only(request, version)
    assert reached.wait(20)
    with caplog.at_level(logging.WARNING):
        broker.close()
        with suppress(Closed, OSError):
            wire.receive()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
