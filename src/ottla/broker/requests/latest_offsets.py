"""High watermarks of partitions, whichever brokers lead them: ListOffsets to the others."""

from collections.abc import Collection, Mapping
from typing import Final

from ottla.broker.broker import Broker
from ottla.metadata.image import NO_LEADER
from ottla.protocol.errors import LEADER_NOT_AVAILABLE, NONE, NOT_LEADER_OR_FOLLOWER
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.tasks.deferred import awaitable

_LATEST: Final = -1
_CONSUMER: Final = -1
_PURPOSE: Final = "latest offsets"
TopicPartition = tuple[str, int]
"""Topic and partition."""
LatestOffset = tuple[int, int]
"""Error code and high watermark."""
_NOT_AVAILABLE: Final[LatestOffset] = (LEADER_NOT_AVAILABLE, -1)


async def latest_offsets(
    broker: Broker, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, LatestOffset]:
    """Return the high watermark of each partition, or an error: LEADER_NOT_AVAILABLE if it has no leader, or none that answers.

    Source: NetworkPartitionMetadataClient.
    """
    latest: dict[TopicPartition, LatestOffset] = {}
    of_leaders: dict[int, list[TopicPartition]] = {}
    for place in partitions:
        partition = broker.replicas.leader(*place)
        if not isinstance(partition, int):
            latest[place] = NONE, partition.log.high_watermark
        elif partition != NOT_LEADER_OR_FOLLOWER:
            latest[place] = partition, -1
        else:
            topic, index = place
            leader = broker.image.topics[topic].partitions[index].leader
            latest[place] = _NOT_AVAILABLE
            if leader != NO_LEADER:
                of_leaders.setdefault(leader, []).append(place)
    requests = [
        broker.peers.request(leader, _request(places), purpose=_PURPOSE) for leader, places in of_leaders.items()
    ]
    for request in requests:
        latest.update(_offsets(await awaitable(request, broker.tasks)))
    return latest


def _request(places: list[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, index in places:
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
    return ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))


def _offsets(response: ListOffsetsResponse | None) -> Mapping[TopicPartition, LatestOffset]:
    if response is None:
        return {}
    return {
        (topic.name, row.partition_index): (row.error_code, row.offset)
        for topic in response.topics
        for row in topic.partitions
    }
