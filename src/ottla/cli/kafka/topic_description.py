"""Output of `ottla topics --describe`: topics, their partitions, their configs."""

from collections.abc import Iterable, Mapping
from typing import Any

import click

from ottla.cli.authorized_operations import describe_with_operations, operation_names
from ottla.cli.cluster_access import AdminConnection, CommandFailed
from ottla.cli.kafka.topic_matching import PARTITION_FILTERS, matching
from ottla.cli.table import echo_json
from ottla.client.admin.configs import ConfigEntry, ConfigResource, Configs, ResourceType
from ottla.client.admin.replicas import Reassignment, ReplicaRequests
from ottla.client.admin.topics import PartitionDescription, TopicDescription, Topics
from ottla.client.errors import KafkaError, UnsupportedVersion
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.uuids import uuid_bytes, uuid_text

ConfigsOfTopic = Mapping[str, ConfigEntry]
_MISSING = (UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION)


class DescribeAdmin(Topics, Configs, ReplicaRequests):
    """Subset of the admin client for the description."""


def describe(cluster: AdminConnection[DescribeAdmin], options: dict[str, Any]) -> None:
    """Print the descriptions of the selected topics. Raises CommandFailed for a topic that does not exist."""
    topics = _topics(cluster, options)
    configs = _configs(cluster, topics)
    moving = _reassignments(cluster, topics)
    documents = []
    for topic in topics:
        its = configs.get(topic.name, {})
        own = {name: entry.value for name, entry in its.items() if not entry.is_default}
        chosen = [
            part for part in topic.partitions if _passes_filters(part, _adding(topic, part, moving), its, options)
        ]
        filtered = any(options[name] for name in PARTITION_FILTERS)
        if options["topics_with_overrides"] and not own:
            continue
        if options["as_json"]:
            if chosen or not filtered:
                documents.append(_document(topic, chosen, own, moving))
            continue
        if not filtered:
            _echo_topic(topic, own, moving)
        if not options["topics_with_overrides"]:
            for part in chosen:
                _echo_partition(topic.name, part, moving.get(TopicPartition(topic.name, part.partition)))
    if options["as_json"]:
        echo_json(documents)


def _topics(cluster: AdminConnection[DescribeAdmin], options: dict[str, Any]) -> list[TopicDescription]:
    keys: list[str | bytes] = []
    if options["topic_id"] is not None:
        try:
            keys.append(uuid_bytes(options["topic_id"]))
        except ValueError:
            raise click.UsageError(f"--topic-id {options['topic_id']} is not a topic id of 22 characters") from None
    else:
        keys += [info.name for info in matching(cluster, options)]
    limit = options["partition_size_limit_per_response"]
    results = describe_with_operations(
        cluster,
        lambda include: cluster.admin.describe_topics(
            keys, include_authorized_operations=include, partitions_per_answer=limit
        ),
        include=options["as_json"],
    )
    for key, error in results.errors.items():
        if error.code in _MISSING and options["if_exists"]:
            continue
        if error.code in _MISSING and isinstance(key, bytes):
            raise CommandFailed(f"topic id {options['topic_id']} does not exist")
        raise error
    return sorted(results.successes.values())


def _configs(cluster: AdminConnection[DescribeAdmin], topics: Iterable[TopicDescription]) -> dict[str, ConfigsOfTopic]:
    """Return configs by topic; empty for brokers before Kafka 0.11, which do not support the request."""
    resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]
    results = cluster.ask(cluster.admin.describe_configs(resources))
    for error in results.errors.values():
        if not isinstance(error, UnsupportedVersion):
            raise error
    return {resource.name: entries for resource, entries in results.successes.items()}


def _reassignments(
    cluster: AdminConnection[DescribeAdmin], topics: Iterable[TopicDescription]
) -> dict[TopicPartition, Reassignment]:
    """Return reassignments in progress; empty for brokers before Kafka 2.4 and without permission, as in Kafka's tool."""
    partitions = [TopicPartition(topic.name, part.partition) for topic in topics for part in topic.partitions]
    if not partitions:
        return {}
    try:
        return cluster.ask(cluster.admin.list_partition_reassignments(partitions))
    except KafkaError as error:
        if error.name not in ("UNSUPPORTED_VERSION", "CLUSTER_AUTHORIZATION_FAILED"):
            raise
        return {}


def _passes_filters(
    part: PartitionDescription, adding: int, configs: ConfigsOfTopic, options: Mapping[str, Any]
) -> bool:
    """Return True if Kafka's tool shows a partition with these options: it passes one of the filters, if there are any.

    Replicas that are being added are not missing, and a partition without a leader is below every minimum.
    """
    if not any(options[name] for name in PARTITION_FILTERS):
        return True
    least = int(configs["min.insync.replicas"].value or 1) if "min.insync.replicas" in configs else 1
    return (
        (options["under_replicated_partitions"] and len(part.isr) < len(part.replicas) - adding)
        or (options["unavailable_partitions"] and part.leader < 0)
        or (options["under_min_isr_partitions"] and (part.leader < 0 or len(part.isr) < least))
        or (options["at_min_isr_partitions"] and len(part.isr) == least)
    )


def _replication_factor(topic: TopicDescription, moving: Mapping[TopicPartition, Reassignment]) -> int:
    """Return the replication factor of the first partition, without replicas being added."""
    first = topic.partitions[0]
    return len(first.replicas) - _adding(topic, first, moving)


def _adding(topic: TopicDescription, part: PartitionDescription, moving: Mapping[TopicPartition, Reassignment]) -> int:
    """Return the number of replicas that are being added to a partition."""
    under_way = moving.get(TopicPartition(topic.name, part.partition))
    return 0 if under_way is None else len(under_way.adding)


def _echo_topic(
    topic: TopicDescription, own: Mapping[str, str | None], moving: Mapping[TopicPartition, Reassignment]
) -> None:
    cells = [f"Topic: {topic.name}"]
    if topic.topic_id != ZERO_UUID:
        cells.append(f"TopicId: {uuid_text(topic.topic_id)}")
    cells.append(f"PartitionCount: {len(topic.partitions)}")
    cells.append(f"ReplicationFactor: {_replication_factor(topic, moving)}")
    cells.append(f"Configs: {','.join(f'{name}={value}' for name, value in own.items())}")
    click.echo("\t".join(cells))


def _echo_partition(topic: str, part: PartitionDescription, under_way: Reassignment | None) -> None:
    cells = [
        f"\tTopic: {topic}",
        f"Partition: {part.partition}",
        f"Leader: {part.leader if part.leader >= 0 else 'none'}",
        f"Replicas: {_nodes(part.replicas)}",
        f"Isr: {_nodes(part.isr)}",
    ]
    if under_way is not None:
        cells += [f"Adding Replicas: {_nodes(under_way.adding)}", f"Removing Replicas: {_nodes(under_way.removing)}"]
    for title, nodes in (("Elr", part.eligible_leader_replicas), ("LastKnownElr", part.last_known_eligible)):
        cells.append(f"{title}: {'N/A' if nodes is None else _nodes(nodes)}")
    click.echo("\t".join(cells))


def _nodes(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes))


def _document(
    topic: TopicDescription,
    chosen: Iterable[PartitionDescription],
    own: Mapping[str, str | None],
    moving: Mapping[TopicPartition, Reassignment],
) -> dict[str, Any]:
    partitions = []
    for part in chosen:
        row: dict[str, Any] = part._asdict()
        under_way = moving.get(TopicPartition(topic.name, part.partition))
        if under_way is not None:
            row |= {"adding_replicas": under_way.adding, "removing_replicas": under_way.removing}
        partitions.append(row)
    return {
        "topic": topic.name,
        "topic_id": uuid_text(topic.topic_id) if topic.topic_id != ZERO_UUID else None,
        "internal": topic.internal,
        "replication_factor": _replication_factor(topic, moving),
        "configs": dict(own),
        "authorized_operations": operation_names(topic.authorized_operations),
        "partitions": partitions,
    }
