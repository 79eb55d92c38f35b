"""Admin requests about the quorum of controllers that keeps the metadata (KIP-595)."""

from typing import Final, NamedTuple

from ottla.client.admin.requests import Requests
from ottla.client.errors import Permission, error_for
from ottla.protocol.errors import NONE
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from ottla.protocol.uuids import uuid_text

_METADATA_TOPIC: Final = "__cluster_metadata"


class QuorumReplica(NamedTuple):
    """Replica of the metadata log.

    directory_id              None if the quorum does not know it (before KIP-853)
    last_fetch_timestamp      ms since the epoch, None if unknown
    last_caught_up_timestamp  the same
    """

    replica_id: int
    directory_id: str | None
    log_end_offset: int
    last_fetch_timestamp: int | None
    last_caught_up_timestamp: int | None


class QuorumEndpoint(NamedTuple):
    """Address of a controller."""

    listener: str
    host: str
    port: int


class MetadataQuorum(NamedTuple):
    """Quorum of the metadata log.

    endpoints  addresses by node (since Kafka 3.9)
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: dict[int, tuple[QuorumEndpoint, ...]]


class QuorumRequests(Requests):
    """Requests about the quorum."""

    async def describe_metadata_quorum(self, *, timeout: float | None = None) -> MetadataQuorum:
        """Describe the quorum of controllers (KRaft; since Kafka 3.3). Ottla shows its metadata store as one."""
        about = "describe the metadata quorum"

        async def attempt() -> MetadataQuorum:
            topic = TopicData(topic_name=_METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
            return _quorum(await self.metadata.ask(-1, DescribeQuorumRequest(topics=[topic])), about)

        return await self.metadata.retrying(about, attempt, self.limit_ms(timeout))


def _quorum(answer: DescribeQuorumResponse, about: str) -> MetadataQuorum:
    """Convert a response. Raises its error."""
    if answer.error_code != NONE:
        raise error_for(answer.error_code, about, answer.error_message, Permission("Describe", "cluster"))
    partition = answer.topics[0].partitions[0]
    if partition.error_code != NONE:
        raise error_for(partition.error_code, about, partition.error_message)
    return MetadataQuorum(
        partition.leader_id,
        partition.leader_epoch,
        partition.high_watermark,
        tuple(map(_replica, partition.current_voters)),
        tuple(map(_replica, partition.observers)),
        {
            node.node_id: tuple(QuorumEndpoint(row.name, row.host, row.port) for row in node.listeners)
            for node in answer.nodes
        },
    )


def _replica(state: ReplicaState) -> QuorumReplica:
    fetched, caught_up = state.last_fetch_timestamp, state.last_caught_up_timestamp
    return QuorumReplica(
        state.replica_id,
        uuid_text(state.replica_directory_id) if any(state.replica_directory_id) else None,
        state.log_end_offset,
        fetched if fetched >= 0 else None,
        caught_up if caught_up >= 0 else None,
    )
