"""Clusters of a console: their clients, and the metadata of their topics, which is kept for some seconds."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from anyio import CancelScope

from ottla.client.admin.cluster import ClusterDescription
from ottla.client.admin.share_groups import ShareGroupOffset
from ottla.client.aio import Admin, Consumer, Producer
from ottla.client.errors import KafkaError, UnsupportedVersion
from ottla.client.topics import TopicPartition
from ottla.console.sampler import Sampler
from ottla.console.settings import ClusterAccess
from ottla.console.share_states import COORDINATOR, ShareState, key_of, state_request, states_of
from ottla.environment import Clock
from ottla.protocol.errors import NONE
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.schemas.registry_values import RegistryValues

TIMEOUT_S: Final = 10.0
"""Longest wait for an answer of the cluster."""
_FRESH_MS: Final = 5_000
_KEPT_MS: Final = 15_000
"""Age up to which metadata is shown; from _FRESH_MS on it is fetched again after the response."""
_MOST_STATES: Final = 100
"""Share partitions whose states one page shows."""
_CONFIGS: Final = {"client.id": "ottla-console", "default.api.timeout.ms": int(TIMEOUT_S * 1000)}


class TopicSummary(NamedTuple):
    """Topic in the list of topics; the numbers count partitions."""

    name: str
    internal: bool
    partitions: int
    replicas: int
    under_replicated: int
    leaderless: int


class ConsoleAdmin(Admin):
    """Admin client that also returns the metadata of all topics as one response, and states of share groups."""

    async def all_metadata(self) -> MetadataResponse:
        """Return the metadata of all topics: leaders, replicas and ISR of each partition."""
        metadata = self._admin.metadata
        limit_ms = self._admin.limit_ms(TIMEOUT_S)
        return await self._run(metadata.retrying("list topics", lambda: metadata.fetch(None), limit_ms))

    async def share_states(
        self, group_id: str, offsets: Mapping[TopicPartition, ShareGroupOffset], topic_ids: Mapping[str, bytes]
    ) -> dict[TopicPartition, ShareState]:
        """Return the stored states of share partitions, without those that are not told to this client."""
        asked = sorted(partition for partition in offsets if partition.topic in topic_ids)[:_MOST_STATES]
        return await self._run(self._share_states(group_id, asked, offsets, topic_ids))

    async def _share_states(
        self,
        group_id: str,
        asked: Sequence[TopicPartition],
        offsets: Mapping[TopicPartition, ShareGroupOffset],
        topic_ids: Mapping[str, bytes],
    ) -> dict[TopicPartition, ShareState]:
        keys = {key_of(group_id, topic_ids[place.topic], place.partition): place for place in asked}
        by_node: dict[int, list[TopicPartition]] = {}
        states: dict[TopicPartition, ShareState] = {}
        with suppress(KafkaError):
            request = FindCoordinatorRequest(key_type=COORDINATOR, coordinator_keys=list(keys))
            answer = await self._admin.anywhere("share coordinators", request, TIMEOUT_S)
            for row in answer.coordinators:
                if row.error_code == NONE and row.key in keys:
                    by_node.setdefault(row.node_id, []).append(keys[row.key])
        for node, partitions in by_node.items():
            with suppress(KafkaError):
                of_node = state_request(group_id, partitions, offsets, topic_ids)
                states |= states_of(await self._admin.on_node(node, of_node), topic_ids)
        return states


class Cluster:
    """One cluster: its clients are created on first use."""

    def __init__(self, access: ClusterAccess, clock: Clock) -> None:
        self.access = access
        self._clock = clock
        self._admin: ConsoleAdmin | None = None
        self._metadata: MetadataResponse | None = None
        self._metadata_ms = 0
        self.sampler = Sampler(clock, lambda: self.admin, self.metadata)
        self.registry_text = None if access.registry is None else RegistryValues(access.registry, clock.now_ms)

    @property
    def name(self) -> str:
        """Name in URLs and menus."""
        return self.access.name

    @property
    def servers(self) -> str:
        """Bootstrap servers."""
        return str(self.access.configs.get("bootstrap.servers", ""))

    @property
    def admin(self) -> ConsoleAdmin:
        """Admin client, on the running event loop. Raises KafkaError for invalid configs."""
        if self._admin is None:
            self._admin = ConsoleAdmin({**_CONFIGS, **self.access.configs})
        return self._admin

    async def metadata(self) -> MetadataResponse:
        """Return the metadata of all topics, at most some seconds old."""
        now = self._clock.now_ms()
        if self._metadata is None or now - self._metadata_ms > _KEPT_MS:
            return await self._fetch()
        return self._metadata

    async def _fetch(self) -> MetadataResponse:
        self._metadata = await self.admin.all_metadata()
        self._metadata_ms = self._clock.now_ms()
        return self._metadata

    @property
    def is_stale(self) -> bool:
        """True if the metadata should be fetched again before the next request."""
        return self._metadata is not None and self._clock.now_ms() - self._metadata_ms > _FRESH_MS

    async def refresh(self) -> None:
        """Fetch the metadata again; an error is left to the next request."""
        with suppress(KafkaError):
            await self._fetch()

    def forget(self) -> None:
        """Forget the metadata after a change."""
        self._metadata = None

    async def topics(self) -> list[TopicSummary]:
        """Return all topics, sorted by name."""
        summaries = [
            TopicSummary(
                topic.name or "",
                topic.is_internal,
                len(topic.partitions),
                max((len(partition.replica_nodes) for partition in topic.partitions), default=0),
                sum(len(partition.isr_nodes) < len(partition.replica_nodes) for partition in topic.partitions),
                sum(partition.leader_id < 0 for partition in topic.partitions),
            )
            for topic in (await self.metadata()).topics
        ]
        return sorted(summaries)

    async def description(self) -> ClusterDescription:
        """Describe the cluster, with fenced brokers where the cluster can (since Kafka 4.0)."""
        try:
            return await self.admin.describe_cluster(include_fenced_brokers=True, timeout=TIMEOUT_S)
        except UnsupportedVersion:
            return await self.admin.describe_cluster(timeout=TIMEOUT_S)

    @asynccontextmanager
    async def consumer(self, **configs: Any) -> AsyncIterator[Consumer]:
        """Open a consumer without group; it is closed even if the request is cancelled."""
        consumer = Consumer({**_CONFIGS, **self.access.configs, "enable.auto.commit": "false", **configs})
        try:
            yield consumer
        finally:
            with CancelScope(shield=True):
                await consumer.close(1.0)

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Producer]:
        """Open a producer for one record."""
        timeout_ms = int(TIMEOUT_S * 1000)
        producer = Producer(
            {
                **_CONFIGS,
                **self.access.configs,
                "delivery.timeout.ms": timeout_ms,
                "request.timeout.ms": timeout_ms // 2,
                "linger.ms": 0,
            }
        )
        try:
            yield producer
        finally:
            with CancelScope(shield=True):
                await producer.close(1.0)

    async def close(self) -> None:
        """End the looks of the sampler, and close the admin client."""
        await self.sampler.close()
        if self._admin is not None:
            admin, self._admin = self._admin, None
            await admin.close()
