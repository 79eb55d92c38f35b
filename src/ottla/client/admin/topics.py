"""Topics: made, deleted, listed; where their partitions begin and end."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.admin.requests import Requests, refusal
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError, RequestTimedOut
from ottla.client.offsets import Lookup
from ottla.client.topics import FoundOffset, TopicInfo, TopicPartition
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState


class NewTopic(NamedTuple):
    """A topic to be made.

    num_partitions, replication_factor  -1: the broker's default
    replica_assignment                  node ids of each partition's replicas, in place of both
    config                              topic configs
    """

    topic: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignment: tuple[tuple[int, ...], ...] = ()
    config: Mapping[str, str | None] = {}


class CreatedTopic(NamedTuple):
    """What became of a new topic; -1 where the broker does not say (before Kafka 2.4)."""

    topic_id: bytes
    num_partitions: int
    replication_factor: int


class Topics(Requests):
    """Requests about topics."""

    async def create_topics(
        self, new_topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout: float | None = None
    ) -> Results[str, CreatedTopic]:
        """Make topics, all checked and none made with `validate_only`. By name; timeout in seconds."""
        wanted = {
            each.topic: each for each in (NewTopic(each) if isinstance(each, str) else each for each in new_topics)
        }

        async def ask(names: list[str]) -> dict[str, CreatedTopic | KafkaError]:
            request = CreateTopicsRequest(
                topics=[_creatable(wanted[name]) for name in names],
                timeout_ms=self.limit_ms(timeout),
                validate_only=validate_only,
            )
            answer = await self.controller(request)
            return {row.name: _created(row) for row in answer.topics}

        return await self.repeating("create topics", wanted, ask, timeout)

    async def delete_topics(self, topics: Iterable[str], *, timeout: float | None = None) -> Results[str, None]:
        """Delete topics by name; timeout in seconds."""

        async def ask(names: list[str]) -> dict[str, KafkaError | None]:
            request = DeleteTopicsRequest(
                topic_names=names,
                topics=[DeleteTopicState(name=name) for name in names],
                timeout_ms=self.limit_ms(timeout),
            )
            answer = await self.controller(request)
            for name in names:
                self.metadata.forget(name)
            return {
                row.name: refusal(row.error_code, f"delete topic {row.name}", row.error_message)
                for row in answer.responses
            }

        return await self.repeating("delete topics", topics, ask, timeout)

    async def list_topics(self, *, internal: bool = True, timeout: float | None = None) -> dict[str, TopicInfo]:
        """Every topic, by name; Kafka's own only with `internal`."""
        await self.metadata.retrying("list topics", lambda: self.metadata.fetch(None), self.limit_ms(timeout))
        return {info.name: info for info in await self.metadata.all_topics() if internal or not info.internal}

    async def list_offsets(
        self, partitions: Mapping[TopicPartition, int], *, read_committed: bool = False, timeout: float | None = None
    ) -> Results[TopicPartition, FoundOffset]:
        """Offsets by time: EARLIEST, LATEST, ..., or ms since the epoch."""
        lookup = Lookup(self.core, partitions, read_committed)
        try:
            await self.metadata.retrying("list offsets", lookup.attempt, self.limit_ms(timeout))
        except RequestTimedOut as late:
            for partition in partitions.keys() - lookup.found.keys():
                lookup.errors.setdefault(partition, late)
        return Results(lookup.found, lookup.errors)


def _creatable(topic: NewTopic) -> CreatableTopic:
    assigned = bool(topic.replica_assignment)
    return CreatableTopic(
        name=topic.topic,
        num_partitions=-1 if assigned else topic.num_partitions,
        replication_factor=-1 if assigned else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(nodes))
            for index, nodes in enumerate(topic.replica_assignment)
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.config.items()],
    )


def _created(row: CreatableTopicResult) -> CreatedTopic | KafkaError:
    error = refusal(row.error_code, f"create topic {row.name}", row.error_message)
    return error or CreatedTopic(row.topic_id, row.num_partitions, row.replication_factor)
