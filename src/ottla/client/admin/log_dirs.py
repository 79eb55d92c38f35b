"""Admin requests about log directories: describe their replicas, move replicas between them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.arguments import checked_tuple
from ottla.client.admin.requests import Requests, by_topic, refusal
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError, Permission, error_for
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import NONE
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)


@checked_tuple
class TopicPartitionReplica(NamedTuple):
    """Replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int


class ReplicaInfo(NamedTuple):
    """Replica in a log directory; `offset_lag` is behind the high watermark, or (`is_future`) behind the replica to replace."""

    size: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """Log directory of a broker.

    error                      error of an offline directory, None otherwise
    total_bytes, usable_bytes  size of its volume, None before Kafka 3.3
    is_cordoned                whether new partitions are placed elsewhere (KIP-1066; since Kafka 4.3)
    """

    error: KafkaError | None
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool


class LogDirs(Requests):
    """Requests about log directories, sent to the broker that owns them."""

    async def describe_log_dirs(
        self,
        nodes: Iterable[int],
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> Results[int, dict[str, LogDir]]:
        """Describe the log directories of brokers by path, with their replicas of all or of these `partitions`."""
        topics = None
        if partitions is not None:
            topics = [DescribableLogDirTopic(topic=name, partitions=its) for name, its in by_topic(partitions).items()]
        limit = self.limit_ms(timeout)

        async def one(node: int) -> dict[str, LogDir]:
            async def attempt() -> dict[str, LogDir]:
                answer = await self.on_node(node, DescribeLogDirsRequest(topics=topics))
                if answer.error_code != NONE:
                    raise error_for(
                        answer.error_code, f"log directories of broker {node}", None, Permission("Describe", "cluster")
                    )
                return {row.log_dir: _directory(row) for row in answer.results}

            return await self.metadata.retrying(f"log directories of broker {node}", attempt, limit)

        return await self.for_each(nodes, one)

    async def alter_replica_log_dirs(
        self, moves: Mapping[TopicPartitionReplica, str], *, timeout: float | None = None
    ) -> Results[TopicPartitionReplica, None]:
        """Move replicas to these directories of their brokers. Returns when the moves have begun."""

        async def one(node: int, its: list[TopicPartitionReplica]) -> dict[TopicPartitionReplica, KafkaError | None]:
            paths: dict[str, AlterReplicaLogDir] = {}
            for replica in its:
                path = paths.setdefault(moves[replica], AlterReplicaLogDir(path=moves[replica]))
                topic = next((row for row in path.topics if row.name == replica.topic), None)
                if topic is None:
                    topic = AlterReplicaLogDirTopic(name=replica.topic)
                    path.topics.append(topic)
                topic.partitions.append(replica.partition)
            try:
                answer = await self.on_node(node, AlterReplicaLogDirsRequest(dirs=list(paths.values())))
            except KafkaError as error:
                return dict.fromkeys(its, error)
            outcomes: dict[TopicPartitionReplica, KafkaError | None] = {}
            for row in answer.results:
                for part in row.partitions:
                    about = f"move {row.topic_name}-{part.partition_index} on broker {node}"
                    replica = TopicPartitionReplica(row.topic_name, part.partition_index, node)
                    outcomes[replica] = refusal(part.error_code, about, None, Permission("Alter", "cluster"))
            return outcomes

        async def ask(left: list[TopicPartitionReplica]) -> dict[TopicPartitionReplica, KafkaError | None]:
            by_node: dict[int, list[TopicPartitionReplica]] = {}
            for replica in left:
                by_node.setdefault(replica.broker_id, []).append(replica)
            outcomes: dict[TopicPartitionReplica, KafkaError | None] = {}
            for answer in await self.side_by_side([one(node, its) for node, its in by_node.items()]):
                outcomes |= answer
            return outcomes

        return await self.repeating("move replicas", moves, ask, timeout)


def _directory(row: DescribeLogDirsResult) -> LogDir:
    replicas = {
        TopicPartition(topic.name, part.partition_index): ReplicaInfo(
            part.partition_size, part.offset_lag, part.is_future_key
        )
        for topic in row.topics
        for part in topic.partitions
    }
    return LogDir(
        refusal(row.error_code, f"log directory {row.log_dir}"),
        replicas,
        row.total_bytes if row.total_bytes >= 0 else None,
        row.usable_bytes if row.usable_bytes >= 0 else None,
        row.is_cordoned,
    )
