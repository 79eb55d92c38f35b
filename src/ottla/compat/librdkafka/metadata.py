"""Metadata of a cluster as librdkafka's clients return it."""

from collections.abc import Coroutine
from typing import Any, TypeVar

from ottla.addresses import address_text
from ottla.client.core import Core
from ottla.client.errors import BrokersUnreachable, RequestTimedOut
from ottla.compat.librdkafka.errors import KafkaError
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from ottla.tasks.deferred import Deferred

T = TypeVar("T")


class ClusterMetadata:
    """Brokers and topics of a cluster."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerMetadata] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.orig_broker_id = -1
        self.orig_broker_name: str | None = None

    def __repr__(self) -> str:
        return f"ClusterMetadata({self.cluster_id})"

    def __str__(self) -> str:
        return str(self.cluster_id)


class BrokerMetadata:
    """Id and address of a broker."""

    def __init__(self) -> None:
        self.id = -1
        self.host: str | None = None
        self.port = -1

    def __repr__(self) -> str:
        return f"BrokerMetadata({self.id}, {address_text(str(self.host), self.port)})"

    def __str__(self) -> str:
        return f"{address_text(str(self.host), self.port)}/{self.id}"


class TopicMetadata:
    """Partitions of a topic, or its error."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.partitions: dict[int, PartitionMetadata] = {}
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"TopicMetadata({self.topic}, {len(self.partitions)} partitions{error})"

    def __str__(self) -> str:
        return str(self.topic)


class PartitionMetadata:
    """Leader and replicas of a partition."""

    def __init__(self) -> None:
        self.id = -1
        self.leader = -1
        self.replicas: list[int] = []
        self.isrs: list[int] = []
        self.error: KafkaError | None = None

    def __repr__(self) -> str:
        error = "" if self.error is None else f", {self.error}"
        return f"PartitionMetadata({self.id}{error})"

    def __str__(self) -> str:
        return f"{self.id}"


def cluster_metadata(response: MetadataResponse) -> ClusterMetadata:
    """Convert a response of a broker."""
    cluster = ClusterMetadata()
    cluster.cluster_id, cluster.controller_id = response.cluster_id, response.controller_id
    for node in response.brokers:
        broker = cluster.brokers[node.node_id] = BrokerMetadata()
        broker.id, broker.host, broker.port = node.node_id, node.host, node.port
    for broker in list(cluster.brokers.values())[:1]:
        cluster.orig_broker_id, cluster.orig_broker_name = broker.id, str(broker)
    for row in response.topics:
        topic = _topic(row)
        cluster.topics[str(topic.topic)] = topic
    return cluster


def _topic(row: MetadataResponseTopic) -> TopicMetadata:
    topic = TopicMetadata()
    topic.topic, topic.error = row.name, KafkaError(row.error_code) if row.error_code else None
    for part in sorted(row.partitions, key=lambda part: part.partition_index):
        partition = topic.partitions[part.partition_index] = PartitionMetadata()
        partition.id, partition.leader = part.partition_index, part.leader_id
        partition.replicas, partition.isrs = list(part.replica_nodes), list(part.isr_nodes)
        partition.error = KafkaError(part.error_code) if part.error_code else None
    return topic


async def fetched(core: Core, topic: str | None, timeout_ms: int) -> ClusterMetadata:
    """Return the metadata of the cluster, or of one topic. Raises BrokersUnreachable without a response in time."""
    try:
        response = await bounded(core, core.metadata.fetch(None if topic is None else [topic]), timeout_ms)
    except RequestTimedOut as error:
        raise BrokersUnreachable(str(error)) from None
    return cluster_metadata(response)


async def bounded(core: Core, work: Coroutine[Deferred[Any], Any, T], timeout_ms: int) -> T:
    """Await work of the core for at most `timeout_ms`. Raises RequestTimedOut."""
    task = core.scheduler.start(work, "request")
    if not await core.scheduler.within(task, timeout_ms):
        task.cancel()
        raise RequestTimedOut(f"no response within {timeout_ms} ms")
    return task.result()
