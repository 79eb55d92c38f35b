"""The fixtures of the conformance tests: `broker` is Ottla, or whatever `--broker HOST:PORT` names.

An expectation is believed once Apache Kafka meets it; a deliberate difference is marked in its test with `ottla_only` or
`differs`, and the reason.
"""

import socket
import time
import uuid
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import pytest

from ottla.broker.requests.handlers import SERVED
from ottla.protocol import codec
from ottla.protocol.connection import ClientConnection
from ottla.protocol.errors import NONE, name_of
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import Request, Response
from ottla.records.batch import build
from ottla.records.record import Record
from ottla.testing import EmbeddedBroker

R = TypeVar("R", bound=Response)


class Closed(Exception):
    """The broker closed the connection."""


class Wire:
    """One connection, spoken to in messages."""

    def __init__(self, address: tuple[str, int], *, is_kafka: bool) -> None:
        self.address = address
        self.is_kafka = is_kafka
        self.client_id = "conformance"
        self._connections: list[socket.socket] = []
        self._socket: socket.socket | None = None
        self._connection = ClientConnection(self.client_id)
        self._answers: deque[Response] = deque()

    def socket(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(self.address, timeout=30)
            self._connections.append(self._socket)
            self._connection = ClientConnection(self.client_id)
        return self._socket

    def another(self) -> "Wire":
        """A second connection to the same broker."""
        other = Wire(self.address, is_kafka=self.is_kafka)
        other._connections = self._connections
        return other

    def send_only(self, request: Request, version: int, *, expect_answer: bool = True) -> None:
        self.socket().sendall(b"".join(self._connection.request(request, version, expect_answer=expect_answer)))

    def receive(self) -> Any:
        """The next response. Raises Closed."""
        while not self._answers:
            try:
                data = self.socket().recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                self.socket().close()
                self._socket = None
                raise Closed
            self._answers.extend(answer for answer in self._connection.feed(data) if isinstance(answer, Response))
        return self._answers.popleft()

    def send(self, request: Request, version: int) -> Any:
        """Send and wait for the answer."""
        self.send_only(request, version)
        return self.receive()

    def send_raw(self, data: bytes) -> None:
        self.socket().sendall(data)

    def receive_raw(self, size: int) -> bytes:
        """`size` bytes as they come. Raises Closed."""
        data = b""
        while len(data) < size:
            more = self.socket().recv(size - len(data))
            if not more:
                self.socket().close()
                self._socket = None
                raise Closed
            data += more
        return data

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._socket = None


class Topic:
    """A topic of this test alone."""

    def __init__(self, wire: Wire, name: str, topic_id: bytes) -> None:
        self.wire = wire
        self.name = name
        self.id = topic_id

    def append(self, count: int, *, partition: int = 0, timestamp: int = 1_700_000_000_000, codec_id: int = 0) -> int:
        """Produce `count` records in one batch, key k0.., value v0.., one ms apart; returns the first offset."""
        records = [Record(i, timestamp + i, b"k%d" % i, b"v%d" % i) for i in range(count)]
        answer = self.produce(build(records, codec=codec_id), partition=partition)
        assert answer.error_code == NONE, name_of(answer.error_code)
        return int(answer.base_offset)

    def produce(
        self, batch: bytes | None, *, partition: int = 0, version: int = 9, acks: int = -1, timeout_ms: int = 10_000
    ) -> Any:
        """Produce raw bytes; returns the partition's answer."""
        data = PartitionProduceData(index=partition, records=batch)
        topic = TopicProduceData(partition_data=[data])
        if version >= 13:
            topic.topic_id = self.id
        else:
            topic.name = self.name
        answer = self.wire.send(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic]), version)
        return answer.responses[0].partition_responses[0]


class TopicFactory:
    """Makes topics."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def __call__(self, partitions: int = 1, name: str = "", **configs: str) -> Topic:
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        created = self._wire.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0]
        assert created.error_code == NONE, created.error_message
        # Apache Kafka answers before all its parts know the topic: wait until it has leaders.
        for _ in range(500):
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
            described = self._wire.send(request, 12).topics[0]
            led = described.error_code == NONE and all(part.leader_id >= 0 for part in described.partitions)
            if led and self._answers(name, len(described.partitions)):
                return Topic(self._wire, name, created.topic_id)
            time.sleep(0.002)
        raise AssertionError(f"{name} has no leaders")

    def _answers(self, name: str, partitions: int) -> bool:
        """Return whether the leaders know that they lead."""
        parts = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts)])
        return all(part.error_code == NONE for part in self._wire.send(request, 5).topics[0].partitions)


@pytest.fixture(scope="session")
def address(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    option = request.config.getoption("--broker")
    if option:
        host, _, port = option.rpartition(":")
        yield host, int(port)
        return
    # Records of the tests carry old timestamps: retention, as Kafka's, would take them away after half a minute.
    configs = {
        "group.initial.rebalance.delay.ms": "0",
        "group.share.min.record.lock.duration.ms": "1000",
        "log.initial.task.delay.ms": "86400000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    }
    with EmbeddedBroker(configs) as embedded:
        yield embedded.address


@pytest.fixture
def broker(request: pytest.FixtureRequest, address: tuple[str, int]) -> Iterator[Wire]:
    wire = Wire(address, is_kafka=bool(request.config.getoption("--broker")))
    yield wire
    wire.close()


@pytest.fixture
def make_topic(broker: Wire) -> TopicFactory:
    return TopicFactory(broker)


@pytest.fixture
def topic(make_topic: TopicFactory) -> Topic:
    return make_topic()


@pytest.fixture
def ottla_only(request: pytest.FixtureRequest) -> None:
    """For what Apache Kafka does not have; the test's docstring says why."""
    if request.config.getoption("--broker"):
        pytest.skip("a deliberate difference: see the test's docstring")


# The oldest version that Kafka 4 has kept of an API that lost some (KIP-896); Produce says 0 and means 3 (KAFKA-18659).
_FIRST_IN_KAFKA_4: Final = {
    0: 3,
    1: 4,
    2: 1,
    8: 2,
    9: 1,
    11: 2,
    19: 2,
    20: 1,
    23: 2,
    27: 1,
    29: 1,
    30: 1,
    31: 1,
    32: 1,
    34: 1,
    35: 1,
    38: 1,
    39: 1,
    40: 1,
    41: 1,
}
_offered: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}


def versions(request_class: type[Request]) -> list[int]:
    """The versions of an API that Ottla serves."""
    first, last = SERVED[request_class.API].versions
    return list(range(first, last + 1))


@pytest.fixture(autouse=True)
def _only_offered_versions(request: pytest.FixtureRequest, address: tuple[str, int]) -> None:
    """Leave out versions that the Apache Kafka under test no longer has."""
    if not request.config.getoption("--broker"):
        return
    removed_only = request.config.getoption("--kafka-version").startswith("3")
    if "version" not in request.fixturenames:
        if removed_only:
            pytest.skip("not about versions that Kafka 4 removed: held against Kafka 4")
        return
    marker = request.node.get_closest_marker("api")
    api = marker.kwargs["request"].API if marker else getattr(request.module, "API").API  # noqa: B009
    version = request.getfixturevalue("version")
    if api not in _offers(address):
        pytest.skip("this Apache Kafka does not have the API")
    first, last = _offers(address)[api]
    if removed_only:
        last = _FIRST_IN_KAFKA_4.get(api, 0) - 1
    elif api == ProduceRequest.API:
        first = _FIRST_IN_KAFKA_4[api]
    if not first <= version <= last:
        pytest.skip(f"this Apache Kafka is the judge of versions {first} to {last}")


def _offers(address: tuple[str, int]) -> dict[int, tuple[int, int]]:
    if address not in _offered:
        wire = Wire(address, is_kafka=True)
        answer = wire.send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        wire.close()
        _offered[address] = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    return _offered[address]


__all__ = ["Closed", "Topic", "TopicFactory", "Wire", "codec", "versions"]
