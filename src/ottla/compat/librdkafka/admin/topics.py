"""Requests about topics."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ottla.client.admin import topics as client_topics
from ottla.client.admin.results import Results
from ottla.compat.librdkafka.admin.requests import Node, Requests, distinct, limit, require
from ottla.compat.librdkafka.enums import operations
from ottla.compat.librdkafka.values import Uuid

_NONE = -1


class _ByTopic:
    """Equality by topic and number of partitions, order and hash by the topic alone."""

    topic: str

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and repr(self) == repr(other)

    def __lt__(self, other: Any) -> bool:
        return self.topic < str(other.topic)

    def __hash__(self) -> int:
        return hash(self.topic)


class NewTopic(_ByTopic):
    """Topic to create.

    num_partitions, replication_factor  -1: the broker's default
    replica_assignment                  nodes of the replicas of each partition; num_partitions is needed, too
    config                              topic configs
    """

    def __init__(
        self,
        topic: str,
        num_partitions: int = _NONE,
        replication_factor: int = _NONE,
        replica_assignment: list[list[int]] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.topic = topic
        self.num_partitions = num_partitions
        self.replication_factor = replication_factor
        self.replica_assignment = replica_assignment
        self.config = config

    def __repr__(self) -> str:
        return f"NewTopic(topic={self.topic},num_partitions={self.num_partitions})"


class NewPartitions(_ByTopic):
    """New number of partitions of a topic.

    replica_assignment  nodes of the replicas of each new partition; chosen by the broker by default
    """

    def __init__(self, topic: str, new_total_count: int, replica_assignment: list[list[int]] | None = None) -> None:
        self.topic = topic
        self.new_total_count = new_total_count
        self.replica_assignment = replica_assignment

    def __repr__(self) -> str:
        return f"NewPartitions(topic={self.topic},new_total_count={self.new_total_count})"


@dataclass(eq=False)
class TopicCollection:
    """Names of topics."""

    topic_names: list[str]


@dataclass(eq=False)
class TopicPartitionInfo:
    """Leader and replicas of a partition."""

    id: int
    leader: Node | None
    replicas: list[Node]
    isr: list[Node]


@dataclass(eq=False)
class TopicDescription:
    """Topic with its partitions.

    authorized_operations  None unless requested
    """

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: list[TopicPartitionInfo]
    authorized_operations: Any = None

    def __post_init__(self) -> None:
        self.authorized_operations = operations(self.authorized_operations)


def _replicas(assignment: Iterable[Iterable[int]] | None) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(nodes) for nodes in assignment or ())


def _description(row: client_topics.TopicDescription, node: Callable[[int], Node]) -> TopicDescription:
    partitions = [
        TopicPartitionInfo(
            part.partition,
            node(part.leader) if part.leader >= 0 else None,
            [node(number) for number in part.replicas],
            [node(number) for number in part.isr],
        )
        for part in row.partitions
    ]
    bits = int.from_bytes(row.topic_id, "big")
    topic_id = Uuid(bits >> 64, bits & (2**64 - 1))
    return TopicDescription(row.name, topic_id, row.internal, partitions, row.authorized_operations)


class Topics(Requests):
    """Requests about topics."""

    def create_topics(
        self,
        new_topics: list[NewTopic],
        *,
        validate_only: bool = False,
        request_timeout: float | None = None,
        operation_timeout: float | None = None,
    ) -> dict[str, "Future[None]"]:
        """Create topics, or only validate them; return a future for each name. Raises ValueError."""
        seconds = limit(request_timeout, operation_timeout)
        if not new_topics:
            raise ValueError("Expected non-empty list of NewTopic objects")
        if any(new.replica_assignment and new.num_partitions < 0 for new in new_topics):
            raise ValueError("Specifying a default partition count and a replica assignment are mutually exclusive")
        topics = [
            client_topics.NewTopic(
                new.topic,
                _NONE if new.replica_assignment else new.num_partitions,
                new.replication_factor,
                _replicas(new.replica_assignment),
                {name: None if value is None else str(value) for name, value in (new.config or {}).items()},
            )
            for new in new_topics
        ]
        return self._futures(
            [new.topic for new in topics],
            lambda: self._admin.create_topics(topics, validate_only=validate_only, timeout=seconds),
        )

    def delete_topics(
        self, topics: list[str], *, request_timeout: float | None = None, operation_timeout: float | None = None
    ) -> dict[str, "Future[None]"]:
        """Delete topics; return a future for each name. Raises ValueError."""
        seconds = limit(request_timeout, operation_timeout)
        if not topics:
            raise ValueError("Expected non-empty list of topic strings")
        names = list(topics)
        return self._futures(names, lambda: self._admin.delete_topics(names, timeout=seconds))

    def create_partitions(
        self,
        new_partitions: list[NewPartitions],
        *,
        validate_only: bool = False,
        request_timeout: float | None = None,
        operation_timeout: float | None = None,
    ) -> dict[str, "Future[None]"]:
        """Increase the number of partitions of topics; return a future for each name. Raises ValueError."""
        seconds = limit(request_timeout, operation_timeout)
        if not new_partitions:
            raise ValueError("Expected non-empty list of NewPartitions objects")
        grown = [
            client_topics.NewPartitions(new.topic, new.new_total_count, _replicas(new.replica_assignment))
            for new in new_partitions
        ]
        return self._futures(
            [new.topic for new in grown],
            lambda: self._admin.create_partitions(grown, validate_only=validate_only, timeout=seconds),
        )

    def describe_topics(
        self,
        topics: TopicCollection,
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> dict[str, "Future[TopicDescription]"]:
        """Describe topics; return a future for each name. Raises TypeError, ValueError."""
        require(isinstance(topics, TopicCollection), TypeError, "Expected input to be instance of TopicCollection")
        names, seconds = topics.topic_names, limit(request_timeout)
        require(isinstance(names, list), TypeError, "Expected list of topic names to be described")
        for index, name in enumerate(names):
            require(isinstance(name, str), TypeError, f"Expected list of topics strings, not {type(name).__name__}")
            require(name, ValueError, f"Empty topic name at index {index} isn't allowed")

        def request() -> Results[Any, Any]:
            distinct(names, "Duplicate topics not allowed")
            node = self._admin.nodes(seconds)
            described = self._admin.describe_topics(
                names, include_authorized_operations=include_authorized_operations, timeout=seconds
            )
            return Results({key: _description(row, node) for key, row in described.successes.items()}, described.errors)

        return self._futures(names, request, lambda description: description)
