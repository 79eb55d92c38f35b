"""States of the records of a share group beyond its start offsets, as the share coordinator has stored them (KIP-932).

Kafka has no admin request for them: ReadShareGroupState is meant for the leaders of partitions, and needs ClusterAction on the
cluster where there is an authorizer. Read with the leader epoch that is stored, it changes nothing. Records that a member has
acquired are stored as available: only the leader of their partition knows that they are in flight (`broker_metrics`).
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.client.admin.share_groups import ShareGroupOffset
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import NONE
from ottla.protocol.messages.read_share_group_state import (
    PartitionData,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateData,
    StateBatch,
)
from ottla.protocol.uuids import uuid_text

AVAILABLE: Final = 0
ACKNOWLEDGED: Final = 2
ARCHIVED: Final = 4
COORDINATOR: Final = 2
"""Type of the key of a share partition in FindCoordinator."""


class ShareState(NamedTuple):
    """Numbers of records of a share partition beyond its start offset.

    redelivered   that were released, or whose lock ended: they are delivered again
    deliveries    largest number of deliveries of these
    acknowledged  that were accepted
    archived      that were rejected, or delivered too often
    """

    redelivered: int = 0
    deliveries: int = 0
    acknowledged: int = 0
    archived: int = 0


def share_state(batches: Iterable[StateBatch]) -> ShareState:
    """Add up the stored states of a share partition."""
    counts = {AVAILABLE: 0, ACKNOWLEDGED: 0, ARCHIVED: 0}
    deliveries = 0
    for batch in batches:
        if batch.delivery_state == AVAILABLE and batch.delivery_count == 0:
            continue
        counts[batch.delivery_state] = counts.get(batch.delivery_state, 0) + batch.last_offset - batch.first_offset + 1
        if batch.delivery_state == AVAILABLE:
            deliveries = max(deliveries, batch.delivery_count)
    return ShareState(counts[AVAILABLE], deliveries, counts[ACKNOWLEDGED], counts[ARCHIVED])


def key_of(group_id: str, topic_id: bytes, partition: int) -> str:
    """Return the key of a share partition for its coordinator."""
    return f"{group_id}:{uuid_text(topic_id)}:{partition}"


def state_request(
    group_id: str,
    partitions: Iterable[TopicPartition],
    offsets: Mapping[TopicPartition, ShareGroupOffset],
    topic_ids: Mapping[str, bytes],
) -> ReadShareGroupStateRequest:
    """Return the request for the states of partitions with one coordinator."""
    topics: dict[bytes, ReadStateData] = {}
    for partition in partitions:
        topic_id = topic_ids[partition.topic]
        topic = topics.setdefault(topic_id, ReadStateData(topic_id=topic_id))
        epoch = offsets[partition].leader_epoch
        topic.partitions.append(PartitionData(partition=partition.partition, leader_epoch=epoch))
    return ReadShareGroupStateRequest(group_id=group_id, topics=list(topics.values()))


def states_of(
    response: ReadShareGroupStateResponse, topic_ids: Mapping[str, bytes]
) -> dict[TopicPartition, ShareState]:
    """Return the states of a response; partitions with an error are left out."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return {
        TopicPartition(names[topic.topic_id], row.partition): share_state(row.state_batches)
        for topic in response.results
        for row in topic.partitions
        if row.error_code == NONE and topic.topic_id in names
    }
