"""Fixtures of the conformance tests with three brokers: Ottla's in this process, or three nodes of Apache Kafka.

`--kafka-cluster DIR` names the directory of `bench/reference/kafka-cluster start 3 PORT DIR`. An expectation is believed once
Apache Kafka meets it.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import NONE
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.testing import KafkaCluster
from tests.conformance.conftest import Closed, Topic, Wire

from .brokers import NODES, WITHIN_S, Brokers, KafkaNodes, OttlaBrokers


class Cluster:
    """Connections to three brokers, and topics of the tests."""

    def __init__(self, brokers: Brokers) -> None:
        self.is_kafka = brokers.is_kafka
        self.addresses = brokers.addresses
        self._brokers = brokers
        self._wires: dict[int, Wire] = {}

    def __getitem__(self, node_id: int) -> Wire:
        """Return a connection to a broker."""
        if node_id not in self._wires:
            self._wires[node_id] = Wire(self.addresses[node_id], is_kafka=self.is_kafka)
        return self._wires[node_id]

    @property
    def has_eligible_replicas(self) -> bool:
        """True if the feature eligible.leader.replicas.version is on: then the ISR of a partition may be empty (KIP-966)."""
        answer = self[1].send(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        levels = {row.name: row.max_version_level for row in answer.finalized_features}
        return bool(levels.get("eligible.leader.replicas.version", 0))

    def close(self) -> None:
        """Close all connections; they are opened again when they are used."""
        for wire in self._wires.values():
            wire.close()

    def stop(self, node_id: int) -> None:
        """Stop a broker cleanly, and wait until the others do not list it."""
        self._brokers.stop(node_id)
        self.close()
        self.wait(lambda: all(node_id not in self.listed(other) for other in NODES if other != node_id))

    def kill(self, node_id: int) -> None:
        """Stop a broker at once, as kill -9 does, and wait until the others do not list it."""
        self._brokers.kill(node_id)
        self.close()
        self.wait(lambda: all(node_id not in self.listed(other) for other in NODES if other != node_id))

    def start(self, node_id: int) -> None:
        """Start a broker again, and wait until all brokers list it."""
        self._brokers.start(node_id)
        self.wait(lambda: all(self.listed(other) == list(NODES) for other in NODES))

    @contextmanager
    def frozen(self, node_id: int) -> Iterator[None]:
        """Let a broker run no code: it stays in the ISR for a while, and fetches nothing."""
        self._brokers.freeze(node_id)
        try:
            yield
        finally:
            self._brokers.thaw(node_id)

    def listed(self, node_id: int) -> list[int]:
        """Return the brokers in the Metadata of a broker; none while it cannot be reached."""
        try:
            answer = self[node_id].send(MetadataRequest(topics=[]), 9)
        except (OSError, Closed):
            self[node_id].close()
            return []
        return sorted(node.node_id for node in answer.brokers)

    def described(self, topic: str, node_id: int = 1) -> Any:
        """Return the row of a topic in the Metadata of a broker."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return self[node_id].send(request, 12).topics[0]

    def topic(self, *assignment: Sequence[int], **configs: str) -> Topic:
        """Create a topic with these replicas for each partition, and wait until all of them know their leader."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        created = create(self[1], name, assignment, **configs)
        assert created.error_code == NONE, created.error_message
        running = [node_id for node_id in NODES if node_id in self.listed(1)]
        for index, replicas in enumerate(assignment):
            for node_id in running:
                self.wait(lambda node_id=node_id, index=index: self._leads(name, node_id, index))  # type: ignore[misc]
            self.wait(lambda index=index, leader=replicas[0]: self._answers(name, leader, index))  # type: ignore[misc]
        return Topic(self[assignment[0][0]], name, created.topic_id)

    def _leads(self, topic: str, node_id: int, index: int) -> bool:
        row = self.described(topic, node_id)
        return bool(row.error_code == NONE) and row.partitions[index].leader_id > 0

    def _answers(self, topic: str, leader: int, index: int) -> bool:
        return bool(list_offset(self[leader], topic, -1, index=index)[0] == NONE)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def wait_for_isr(self, topic: str, *isr: int) -> None:
        """Wait until partition 0 of a topic has these replicas in sync."""
        self.wait(lambda: sorted(partition_of(self.described(topic), 0).isr_nodes) == list(isr))


def partition_of(topic: Any, index: int) -> Any:
    """Return the row of a partition in a row of Metadata."""
    return next(row for row in topic.partitions if row.partition_index == index)


def create(wire: Wire, name: str, assignment: Sequence[Sequence[int]], **configs: str) -> Any:
    """Create a topic, and return its row of the answer."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(assignment)
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    return wire.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics[0]


def fetch(
    wire: Wire,
    topic: Topic,
    offset: int,
    version: int = 17,
    *,
    replica: int = -1,
    broker_epoch: int = -1,
    wait_ms: int = 0,
    rack: str = "",
    **partition: int,
) -> Any:
    """Fetch partition 0, as a follower if `replica` is its node id, and return the answer's row."""
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, **partition)  # type: ignore[arg-type]
    place = FetchTopic(topic_id=topic.id, partitions=[row]) if version >= 13 else FetchTopic(topic=topic.name)
    place.partitions = [row]
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[place])
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=replica, replica_epoch=broker_epoch)
    else:
        request.replica_id = replica
    if version >= 11:
        request.rack_id = rack
    answer = wire.send(request, version)
    assert answer.error_code == NONE
    return answer.responses[0].partitions[0]


def list_offset(
    wire: Wire, topic: str, timestamp: int, *, index: int = 0, replica: int = -1, epoch: int = -1
) -> tuple[int, int]:
    """Return (error code, offset)."""
    row = ListOffsetsPartition(partition_index=index, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic(name=topic, partitions=[row])])
    (answer,) = wire.send(request, 5).topics[0].partitions
    return answer.error_code, answer.offset


@pytest.fixture(scope="session")
def brokers(request: pytest.FixtureRequest) -> Iterator[Brokers]:
    directory = request.config.getoption("--kafka-cluster")
    if directory:
        yield KafkaNodes(Path(directory))
        return
    if request.config.getoption("--broker"):
        pytest.skip("needs three brokers: --kafka-cluster")
    configs = {
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    }
    with KafkaCluster(3, configs, racks=["RACK1", "RACK2", "RACK3"]) as cluster:
        yield OttlaBrokers(cluster)


@pytest.fixture(scope="module")
def cluster(brokers: Brokers) -> Iterator[Cluster]:
    connected = Cluster(brokers)
    yield connected
    connected.close()
