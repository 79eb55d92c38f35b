"""Admin requests about topics: create, delete, list, describe; delete records; list offsets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.arguments import checked_tuple
from ottla.client.admin.requests import Requests, refusal
from ottla.client.admin.results import Results
from ottla.client.errors import KafkaError, Permission, RequestTimedOut, UnsupportedVersion, error_for
from ottla.client.offsets import Lookup
from ottla.client.permissions import AclOperation, authorized_operations
from ottla.client.topics import FoundOffset, TopicInfo, TopicPartition
from ottla.net.connection import Link
from ottla.protocol.errors import NONE, UNSUPPORTED_VERSION
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

_FIRST_WITH_DEFAULTS: Final = 4
"""First version of CreateTopics that takes -1 for the broker's default (KIP-464)."""


@checked_tuple
class NewTopic(NamedTuple):
    """Topic to create.

    num_partitions, replication_factor  -1: the broker's default
    replica_assignment                  node ids of the replicas of each partition, in place of both numbers
    config                              topic configs
    """

    topic: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignment: tuple[tuple[int, ...], ...] = ()
    config: Mapping[str, str | None] = {}


class CreatedTopic(NamedTuple):
    """Created topic; numbers are -1 if the broker does not return them (before Kafka 2.4)."""

    topic_id: bytes
    num_partitions: int
    replication_factor: int


@checked_tuple
class NewPartitions(NamedTuple):
    """New number of partitions of a topic.

    new_total_count     total number of partitions, including the existing ones
    replica_assignment  node ids of the replicas of each new partition; chosen by the broker by default
    """

    topic: str
    new_total_count: int
    replica_assignment: tuple[tuple[int, ...], ...] = ()


class PartitionDescription(NamedTuple):
    """Leader and replicas of a partition.

    leader                    node, -1 without a leader
    leader_epoch              -1 if the broker does not return it (before Kafka 2.1)
    isr                       nodes with in-sync replicas
    offline                   nodes with offline replicas
    eligible_leader_replicas  nodes outside of the ISR that may become leader (KIP-966); None if the broker does not return them
    last_known_eligible       nodes that were eligible leader replicas last (KIP-966); None if the broker does not return them
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_eligible: tuple[int, ...] | None = None


class TopicDescription(NamedTuple):
    """Topic with its partitions; the id is ZERO_UUID before Kafka 2.8.

    authorized_operations  operations that this client is authorized for; None unless requested
    """

    name: str
    topic_id: bytes
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    authorized_operations: tuple[AclOperation, ...] | None = None


class Topics(Requests):
    """Requests about topics."""

    async def create_topics(
        self, new_topics: Iterable[NewTopic | str], *, validate_only: bool = False, timeout: float | None = None
    ) -> Results[str, CreatedTopic]:
        """Create topics, or only validate them (`validate_only`). Results are by name; timeout in seconds."""
        new_by_name = {new.topic: new for new in (NewTopic(new) if isinstance(new, str) else new for new in new_topics)}

        async def ask(names: list[str]) -> dict[str, CreatedTopic | KafkaError]:
            link = await self.controller_link()
            outcomes: dict[str, CreatedTopic | KafkaError] = {}
            if link.version(CreateTopicsRequest) < _FIRST_WITH_DEFAULTS:
                outcomes |= {name: _without_default(name, link) for name in names if _has_default(new_by_name[name])}
            request = CreateTopicsRequest(
                topics=[_creatable(new_by_name[name]) for name in names if name not in outcomes],
                timeout_ms=self.limit_ms(timeout),
                validate_only=validate_only,
            )
            if request.topics:
                outcomes |= {row.name: _creation_outcome(row) for row in (await self.controller(request)).topics}
            return outcomes

        return await self.repeating("create topics", new_by_name, ask, timeout)

    async def create_partitions(
        self, new_partitions: Iterable[NewPartitions], *, validate_only: bool = False, timeout: float | None = None
    ) -> Results[str, None]:
        """Increase the number of partitions of topics. Results are by name; timeout in seconds."""
        new_by_name = {new.topic: new for new in new_partitions}

        async def ask(names: list[str]) -> dict[str, KafkaError | None]:
            request = CreatePartitionsRequest(
                topics=[_to_partitions_topic(new_by_name[name]) for name in names],
                timeout_ms=self.limit_ms(timeout),
                validate_only=validate_only,
            )
            answer = await self.controller(request)
            for name in names:
                self.metadata.forget(name)
            return {
                row.name: refusal(
                    row.error_code, f"create partitions of {row.name}", row.error_message, _on_topic("Alter", row.name)
                )
                for row in answer.results
            }

        return await self.repeating("create partitions", new_by_name, ask, timeout)

    async def delete_topics(
        self, topics: Iterable[str | bytes], *, timeout: float | None = None
    ) -> Results[str | bytes, None]:
        """Delete topics by name, or by id (bytes; since Kafka 2.8); timeout in seconds."""

        async def ask(keys: list[str | bytes]) -> dict[str | bytes, KafkaError | None]:
            link = await self.controller_link()
            by_id = any(isinstance(key, bytes) for key in keys)
            version = link.version(DeleteTopicsRequest, oldest=6 if by_id else 0)
            request = DeleteTopicsRequest(timeout_ms=self.limit_ms(timeout))
            if version < 6:
                request.topic_names = [key for key in keys if isinstance(key, str)]
            else:
                request.topics = [
                    DeleteTopicState(name=key) if isinstance(key, str) else DeleteTopicState(topic_id=key)
                    for key in keys
                ]
            answer = await link.request(request, version)
            self.metadata.forget()
            outcomes: dict[str | bytes, KafkaError | None] = {}
            for row in answer.responses:
                key = row.topic_id if row.topic_id in keys or row.name is None else row.name
                outcomes[key] = refusal(
                    row.error_code,
                    f"delete topic {row.name or ''}".rstrip(),
                    row.error_message,
                    _on_topic("Delete", row.name),
                )
            return outcomes

        return await self.repeating("delete topics", topics, ask, timeout)

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records before an offset of each partition (-1: all records); return the new log start offsets."""

        async def ask(node: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int | KafkaError]:
            topics: dict[str, DeleteRecordsTopic] = {}
            for partition in partitions:
                topic = topics.setdefault(partition.topic, DeleteRecordsTopic(name=partition.topic))
                topic.partitions.append(
                    DeleteRecordsPartition(partition_index=partition.partition, offset=offsets[partition])
                )
            request = DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self.limit_ms(timeout))
            answer = await self.on_node(node, request)
            outcomes: dict[TopicPartition, int | KafkaError] = {}
            for topic_answer in answer.topics:
                for row in topic_answer.partitions:
                    partition = TopicPartition(topic_answer.name, row.partition_index)
                    about = f"delete records of {partition}"
                    outcomes[partition] = (
                        row.low_watermark
                        if row.error_code == NONE
                        else error_for(row.error_code, about, None, _on_topic("Delete", partition.topic))
                    )
            return outcomes

        return await self.at_leaders("delete records", offsets, ask, timeout)

    async def describe_topics(
        self,
        topics: Iterable[str | bytes],
        *,
        include_authorized_operations: bool = False,
        partitions_per_answer: int = 2000,
        timeout: float | None = None,
    ) -> Results[str | bytes, TopicDescription]:
        """Describe the partitions, leaders and replicas of topics, by name or by id (bytes; since Kafka 3.1).

        include_authorized_operations  also return what this client is authorized for (KIP-430; since Kafka 2.3)
        partitions_per_answer          number of partitions in a response (DescribeTopicPartitions, KIP-966)
        """

        async def ask(keys: list[str | bytes]) -> dict[str | bytes, TopicDescription | KafkaError]:
            link = await self.metadata.any_link()
            names = [key for key in keys if isinstance(key, str)]
            outcomes: dict[str | bytes, TopicDescription | KafkaError] = {}
            if names and link.serves(DescribeTopicPartitionsRequest):
                outcomes |= await self._describe_in_parts(link, names, partitions_per_answer)
                keys = [key for key in keys if not isinstance(key, str)]
            if keys:
                outcomes |= await self._describe_by_metadata(link, keys, include_authorized_operations)
            if not include_authorized_operations:  # DescribeTopicPartitions returns them always
                outcomes = {key: _without_operations(outcome) for key, outcome in outcomes.items()}
            return outcomes

        return await self.repeating("describe topics", topics, ask, timeout)

    async def _describe_in_parts(
        self, link: Link, names: list[str], limit: int
    ) -> dict[str | bytes, TopicDescription | KafkaError]:
        """Describe topics by DescribeTopicPartitions requests, each for the next partitions, until all are described."""
        outcomes: dict[str | bytes, TopicDescription | KafkaError] = {}
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in sorted(names)], response_partition_limit=limit
        )
        while True:
            version = link.version(DescribeTopicPartitionsRequest)
            answer = await link.request(request, version)
            for row in answer.topics:
                if row.name is None:
                    continue
                error = refusal(row.error_code, f"topic {row.name}", None, _on_topic("Describe", row.name))
                earlier = outcomes.get(row.name)
                before = earlier.partitions if isinstance(earlier, TopicDescription) else ()
                outcomes[row.name] = error or TopicDescription(
                    row.name,
                    row.topic_id,
                    row.is_internal,
                    before
                    + tuple(
                        PartitionDescription(
                            part.partition_index,
                            part.leader_id,
                            part.leader_epoch,
                            tuple(part.replica_nodes),
                            tuple(part.isr_nodes),
                            tuple(part.offline_replicas),
                            _optional(part.eligible_leader_replicas),
                            _optional(part.last_known_elr),
                        )
                        for part in row.partitions
                    ),
                    authorized_operations(row.topic_authorized_operations),
                )
            if answer.next_cursor is None:
                return outcomes
            request.cursor = answer.next_cursor

    async def _describe_by_metadata(
        self, link: Link, keys: list[str | bytes], include_operations: bool
    ) -> dict[str | bytes, TopicDescription | KafkaError]:
        """Describe topics by a Metadata request, which every broker serves; topics by id since Kafka 3.1."""
        by_id = any(isinstance(key, bytes) for key in keys)
        version = link.version(MetadataRequest, oldest=12 if by_id else 8 if include_operations else 0)
        request = MetadataRequest(
            topics=[
                MetadataRequestTopic(name=key)
                if isinstance(key, str)
                else MetadataRequestTopic(name=None, topic_id=key)
                for key in keys
            ],
            allow_auto_topic_creation=version < 4,
            include_topic_authorized_operations=include_operations,
        )
        answer = await link.request(request, version)
        outcomes: dict[str | bytes, TopicDescription | KafkaError] = {}
        for row in answer.topics:
            key = row.topic_id if row.topic_id in keys or row.name is None else row.name or row.topic_id
            outcomes[key] = refusal(
                row.error_code, f"topic {row.name or ''}".rstrip(), None, _on_topic("Describe", row.name)
            ) or TopicDescription(
                row.name or "",
                row.topic_id,
                row.is_internal,
                tuple(
                    PartitionDescription(
                        part.partition_index,
                        part.leader_id,
                        part.leader_epoch,
                        tuple(part.replica_nodes),
                        tuple(part.isr_nodes),
                        tuple(part.offline_replicas),
                    )
                    for part in sorted(row.partitions, key=lambda part: part.partition_index)
                ),
                authorized_operations(row.topic_authorized_operations),
            )
        return outcomes

    async def list_topics(self, *, internal: bool = True, timeout: float | None = None) -> dict[str, TopicInfo]:
        """List all topics by name; internal topics only with `internal`."""
        answer = await self.metadata.retrying("list topics", lambda: self.metadata.fetch(None), self.limit_ms(timeout))
        infos = (self.metadata.known(row.name) for row in answer.topics if row.name is not None)
        return {info.name: info for info in sorted(filter(None, infos)) if internal or not info.internal}

    async def list_offsets(
        self, partitions: Mapping[TopicPartition, int], *, read_committed: bool = False, timeout: float | None = None
    ) -> Results[TopicPartition, FoundOffset]:
        """List offsets by timestamp: EARLIEST, LATEST, another special value, or ms since the epoch."""
        lookup = Lookup(self.core, partitions, read_committed)
        try:
            await self.metadata.retrying("list offsets", lookup.attempt, self.limit_ms(timeout))
        except RequestTimedOut as late:
            for partition in partitions.keys() - lookup.offsets.keys():
                lookup.errors.setdefault(partition, late)
        return Results(lookup.offsets, lookup.errors)


def _without_operations(outcome: TopicDescription | KafkaError) -> TopicDescription | KafkaError:
    return outcome if isinstance(outcome, KafkaError) else outcome._replace(authorized_operations=None)


def _on_topic(operation: str, name: str | None) -> Permission:
    """Return a permission on a topic; its name is not known to a client that is not authorized to describe its id."""
    return Permission(operation, "topic", (name or "NAME",))


def _has_default(topic: NewTopic) -> bool:
    """Return whether the broker chooses the number of partitions or replicas."""
    return not topic.replica_assignment and -1 in (topic.num_partitions, topic.replication_factor)


def _without_default(name: str, link: Link) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"create topic {name}: {link} needs a number of partitions and a replication factor (--partitions, "
        "--replication-factor), which have defaults from Kafka 2.4 on",
        UNSUPPORTED_VERSION,
    )


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


def _to_partitions_topic(topic: NewPartitions) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=list(nodes)) for nodes in topic.replica_assignment]
    return CreatePartitionsTopic(name=topic.topic, count=topic.new_total_count, assignments=assignments or None)


def _optional(nodes: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if nodes is None else tuple(nodes)


def _creation_outcome(row: CreatableTopicResult) -> CreatedTopic | KafkaError:
    error = refusal(row.error_code, f"create topic {row.name}", row.error_message, _on_topic("Create", row.name))
    return error or CreatedTopic(row.topic_id, row.num_partitions, row.replication_factor)
