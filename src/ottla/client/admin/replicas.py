"""Admin requests about replicas and leaders: partition reassignments, leader elections."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from ottla.client.admin.requests import Requests, by_topic, refusal
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError, Permission, error_for
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import NONE
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


class ElectionType(IntEnum):
    """Type of a leader election: PREFERRED elects the first replica, UNCLEAN may elect one that is not in sync."""

    PREFERRED = 0
    UNCLEAN = 1


class Reassignment(NamedTuple):
    """Reassignment in progress: all replicas of the partition, those being added and those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ReplicaRequests(Requests):
    """Requests about replicas and leaders (reassignments since Kafka 2.4, elections since 2.2)."""

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Reassign partitions to other replicas, the preferred leader first; None cancels a reassignment (KIP-455).

        allow_replication_factor_change  False: reject a different number of replicas (KIP-860; since Kafka 4.1)
        """

        async def ask(partitions: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            topics: dict[str, ReassignableTopic] = {}
            for partition in partitions:
                nodes = reassignments[partition]
                topics.setdefault(partition.topic, ReassignableTopic(name=partition.topic)).partitions.append(
                    ReassignablePartition(
                        partition_index=partition.partition, replicas=None if nodes is None else list(nodes)
                    )
                )
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self.limit_ms(timeout),
                allow_replication_factor_change=allow_replication_factor_change,
                topics=list(topics.values()),
            )
            answer = await self.controller(request)
            of_all = refusal(
                answer.error_code, "reassign partitions", answer.error_message, Permission("Alter", "cluster")
            )
            outcomes: dict[TopicPartition, KafkaError | None] = dict.fromkeys(partitions, of_all)
            for topic in answer.responses:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    error = refusal(
                        row.error_code, f"reassign {partition}", row.error_message, Permission("Alter", "cluster")
                    )
                    outcomes[partition] = of_all or error
            return outcomes

        return await self.repeating("reassign partitions", reassignments, ask, timeout)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """List the reassignments in progress, of these or (None) of all partitions."""
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=its)
                for name, its in by_topic(partitions).items()
            ]

        async def attempt() -> dict[TopicPartition, Reassignment]:
            request = ListPartitionReassignmentsRequest(timeout_ms=self.limit_ms(timeout), topics=topics)
            answer = await self.controller(request)
            if answer.error_code != NONE:
                self.forget_moved_controller(answer.error_code)
                raise error_for(
                    answer.error_code, "list reassignments", answer.error_message, Permission("Describe", "cluster")
                )
            return {
                TopicPartition(topic.name, row.partition_index): Reassignment(
                    tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas)
                )
                for topic in answer.topics
                for row in topic.partitions
            }

        return await self.metadata.retrying("list reassignments", attempt, self.limit_ms(timeout))

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Elect the leaders of these partitions, or (None) of all that need an election (KIP-183, KIP-460).

        ELECTION_NOT_NEEDED is the error of a partition that has the right leader already.
        """
        requested = None if partitions is None else list(dict.fromkeys(partitions))

        async def elect(its: list[TopicPartition] | None) -> dict[TopicPartition, KafkaError | None]:
            topics = None
            if its is not None:
                topics = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in by_topic(its).items()]
            request = ElectLeadersRequest(topic_partitions=topics, timeout_ms=self.limit_ms(timeout))
            request.election_type = election_type
            answer = await self.controller(request)
            if answer.error_code != NONE:
                self.forget_moved_controller(answer.error_code)
                raise error_for(answer.error_code, "elect leaders", None, Permission("Alter", "cluster"))
            return {
                TopicPartition(topic.topic, row.partition_id): refusal(
                    row.error_code,
                    f"elect the leader of {topic.topic}-{row.partition_id}",
                    row.error_message,
                    Permission("Alter", "cluster"),
                )
                for topic in answer.replica_election_results
                for row in topic.partition_result
            }

        # Errors of a partition are final: ELECTION_NOT_NEEDED is retriable in the table, and would be retried for ever.
        outcomes = await self.metadata.retrying("elect leaders", lambda: elect(requested), self.limit_ms(timeout))
        results = Results[TopicPartition, None]()
        for partition, error in outcomes.items():
            results.put(partition, None, error)
        return results
