"""Admin client with futures, as confluent-kafka's: requests about topics."""

import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from ottla.client import blocking
from ottla.client.admin import topics as client_topics
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError as ClientError
from ottla.compat.librdkafka.codes import CODES
from ottla.compat.librdkafka.configs import settings
from ottla.compat.librdkafka.errors import KafkaError, KafkaException, error_from
from ottla.compat.librdkafka.metadata import ClusterMetadata, bounded, fetched
from ottla.compat.librdkafka.producer import milliseconds
from ottla.protocol import errors as table

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


class _Admin(blocking.Admin):
    """Ottla's admin client, which ends without a warning."""

    def __del__(self) -> None:
        if not self._released and not sys.is_finalizing():
            self._drop()

    def cluster(self, topic: str | None, timeout_ms: int) -> ClusterMetadata:
        """Return the metadata of the cluster, or of one topic."""
        return self._run(fetched(self._core, topic, timeout_ms))

    def cluster_id(self, timeout_ms: int) -> str | None:
        """Return the id of the cluster."""
        return self._run(bounded(self._core, self._admin.describe_cluster(), timeout_ms)).cluster_id


def _replicas(assignment: Iterable[Iterable[int]] | None) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(nodes) for nodes in assignment or ())


def _failure(error: ClientError) -> KafkaException:
    """Return the exception for an error, with the message of the broker where it has sent one."""
    message = str(error).partition(f": {error.name}: ")[2]
    if error.code in CODES and message and message != table.error(error.code).message:
        return KafkaException(KafkaError(error.code, message))
    return KafkaException(error_from(error))


class AdminClient:
    """Requests to a cluster, with librdkafka's configs; every request about topics returns a future for each.

    futures = AdminClient({"bootstrap.servers": "localhost:9092"}).create_topics([NewTopic("work", 3)])
    futures["work"].result()
    """

    def __init__(self, conf: Mapping[str, Any], **kwargs: Any) -> None:
        self._settings = settings("admin client", (dict(conf),), kwargs)
        self._admin = _Admin(self._settings.client)  # type: ignore[arg-type]  # Blocking takes parsed configs, too
        self._executor = ThreadPoolExecutor(4, "ottla-admin")

    def create_topics(
        self,
        new_topics: list[NewTopic],
        *,
        validate_only: bool = False,
        request_timeout: float | None = None,
        operation_timeout: float | None = None,
    ) -> dict[str, "Future[None]"]:
        """Create topics, or only validate them; return a future for each name. Raises ValueError."""
        del operation_timeout
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
            lambda: self._admin.create_topics(topics, validate_only=validate_only, timeout=request_timeout),
        )

    def delete_topics(
        self, topics: list[str], *, request_timeout: float | None = None, operation_timeout: float | None = None
    ) -> dict[str, "Future[None]"]:
        """Delete topics; return a future for each name. Raises ValueError."""
        del operation_timeout
        if not topics:
            raise ValueError("Expected non-empty list of topic strings")
        names = list(topics)
        return self._futures(names, lambda: self._admin.delete_topics(names, timeout=request_timeout))

    def create_partitions(
        self,
        new_partitions: list[NewPartitions],
        *,
        validate_only: bool = False,
        request_timeout: float | None = None,
        operation_timeout: float | None = None,
    ) -> dict[str, "Future[None]"]:
        """Increase the number of partitions of topics; return a future for each name. Raises ValueError."""
        del operation_timeout
        if not new_partitions:
            raise ValueError("Expected non-empty list of NewPartitions objects")
        grown = [
            client_topics.NewPartitions(new.topic, new.new_total_count, _replicas(new.replica_assignment))
            for new in new_partitions
        ]
        return self._futures(
            [new.topic for new in grown],
            lambda: self._admin.create_partitions(grown, validate_only=validate_only, timeout=request_timeout),
        )

    def _futures(self, names: list[str], request: Callable[[], Results[Any, Any]]) -> dict[str, "Future[None]"]:
        """Send a request in the background; return a future for each topic."""
        futures: dict[str, Future[None]] = {name: Future() for name in names}
        for future in futures.values():
            future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                results = request()
            except Exception as error:  # noqa: BLE001  (the futures have it)
                failure = _failure(error) if isinstance(error, ClientError) else error
                for future in futures.values():
                    future.set_exception(failure)
                return
            for name, future in futures.items():
                failed = results.errors.get(name)
                if failed is None:
                    future.set_result(None)
                else:
                    future.set_exception(_failure(failed))

        self._executor.submit(run)
        return futures

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the brokers, and all topics or one. Raises KafkaException."""
        try:
            return self._admin.cluster(topic, milliseconds(timeout))
        except ClientError as error:
            code = error_from(error).code()
            raise KafkaException(KafkaError(code, f"Failed to get metadata: {KafkaError(code).str()}")) from None

    def cluster_id(self, timeout: float = -1) -> str | None:
        """Return the id of the cluster; None if it did not come in time."""
        try:
            return self._admin.cluster_id(milliseconds(timeout))
        except ClientError:
            return None

    def poll(self, timeout: float = -1) -> int:
        """Return 0: futures complete without a poll."""
        del timeout
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executor.shutdown()
        self._admin.close()
