"""What a client knows of a cluster: brokers, topics, leaders; and requests that find the right broker by themselves.

Metadata is cached until it is metadata.max.age.ms old or an answer shows that it is stale (NOT_LEADER_OR_FOLLOWER,
UNKNOWN_TOPIC_OR_PARTITION, a broken connection). What may be repeated is repeated with exponential backoff and jitter
(KIP-580) until default.api.timeout.ms is over; the error then says what the last attempt met.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ottla.client.config import ClientConfig
from ottla.client.errors import (
    BrokersUnreachable,
    KafkaError,
    RequestTimedOut,
    StaleMetadata,
    UnknownTopic,
    error_for,
)
from ottla.client.pool import Connection, Pool
from ottla.client.topics import FoundOffset, TopicInfo, TopicPartition
from ottla.environment import Clock, Random, SystemClock, SystemRandom
from ottla.protocol.errors import NONE, UNKNOWN_TOPIC_OR_PARTITION
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.schema import ZERO_UUID, Request

T = TypeVar("T")


def _pause(milliseconds: int) -> None:
    time.sleep(milliseconds / 1000)


class Cluster:
    """One cluster seen through one config. Not for two threads at once."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        pool: Pool | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        pause: Callable[[int], None] = _pause,
    ) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self.pool = pool or Pool(config, self.clock, pause)
        self._random = random or SystemRandom()
        self._pause = pause
        self._topics: dict[str, TopicInfo] = {}

    # -- repeating --

    def backoff_ms(self, failures: int) -> int:
        """How long to wait after so many failures: doubling, within ±20 % (KIP-580)."""
        base = self.config["retry.backoff.ms"]
        ceiling = max(self.config["retry.backoff.max.ms"], base)
        milliseconds = min(base << min(failures - 1, 20), ceiling)
        return int(milliseconds * (80 + self._random.below(41)) // 100)

    def retrying(self, about: str, attempt: Callable[[], T], timeout_ms: int | None = None) -> T:
        """`attempt()` until it raises nothing retriable; BrokersUnreachable is final, it has waited long enough.

        Raises RequestTimedOut after `timeout_ms` (default.api.timeout.ms).
        """
        limit = self.config["default.api.timeout.ms"] if timeout_ms is None else timeout_ms
        deadline = self.clock.now_ms() + limit
        failures = 0
        while True:
            try:
                return attempt()
            except BrokersUnreachable:
                raise
            except KafkaError as error:
                if not error.retriable:
                    raise
                failures += 1
                self.forget()
                if self.clock.now_ms() >= deadline:
                    raise RequestTimedOut(f"{about}: no success within {limit} ms; last: {error}", error.code) from None
                # The last wait ends at the deadline, so that there is one more attempt.
                self.pause(min(self.backoff_ms(failures), max(deadline - self.clock.now_ms(), 0)))

    def pause(self, milliseconds: int) -> None:
        """Wait; tests wait in virtual time."""
        self._pause(milliseconds)

    def deadline(self) -> int:
        """When a request sent now has waited long enough (request.timeout.ms)."""
        return self.clock.now_ms() + int(self.config["request.timeout.ms"])

    # -- metadata --

    def forget(self, topic: str | None = None) -> None:
        """Metadata of a topic, or all of it, is stale."""
        if topic is None:
            self._topics.clear()
        else:
            self._topics.pop(topic, None)

    def topic_names(self, *, internal: bool = False) -> list[str]:
        """Every topic of the cluster, sorted; Kafka's own only when asked for."""
        self.retrying("list topics", lambda: self._fetch_metadata(None, create=False))
        return sorted(info.name for info in self._topics.values() if internal or not info.internal)

    def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """A topic from the cache, or asked for. `create` lets the broker make it (auto.create.topics.enable).

        Raises UnknownTopic at once, unless `create`: then after max.block.ms.
        """
        known = self._topics.get(name)
        if known is not None and self.clock.now_ms() - known.fetched_ms < self.config["metadata.max.age.ms"]:
            return known
        if not create:
            return self.retrying(f"metadata of topic {name}", lambda: self._one_topic(name, create=False))
        try:
            return self.retrying(
                f"topic {name}", lambda: self._one_topic(name, create=True), self.config["max.block.ms"]
            )
        except RequestTimedOut as error:
            if error.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise UnknownTopic(f"topic {name} does not exist and the broker does not create it", error.code) from None

    def _one_topic(self, name: str, *, create: bool) -> TopicInfo:
        answer = self._fetch_metadata([name], create=create)
        found = answer.topics[0]
        if found.error_code == UNKNOWN_TOPIC_OR_PARTITION and not create:
            raise UnknownTopic(f"topic {name} does not exist", found.error_code)
        if found.error_code != NONE:
            raise error_for(found.error_code, f"topic {name}")
        return self._topics[name]

    def _fetch_metadata(self, names: list[str] | None, *, create: bool) -> MetadataResponse:
        connection = self.pool.any_broker()
        version = connection.version(MetadataRequest)
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        connection.send(request, version)
        answer: MetadataResponse = connection.receive(self.deadline())
        if answer.error_code != NONE:
            raise error_for(answer.error_code, "metadata")
        self.pool.brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        now = self.clock.now_ms()
        if names is None:
            self._topics.clear()
        for topic in answer.topics:
            if topic.error_code == NONE and topic.name is not None:
                leaders = {part.partition_index: part.leader_id for part in topic.partitions}
                self._topics[topic.name] = TopicInfo(topic.name, topic.topic_id, topic.is_internal, leaders, now)
        return answer

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic, in order. Raises UnknownTopic."""
        return [TopicPartition(topic, number) for number in sorted(self.topic(topic).leaders)]

    def leader(self, partition: TopicPartition) -> int:
        """The node that leads. Raises StaleMetadata while nobody does, UnknownTopic for a partition that is none."""
        leaders = self.topic(partition.topic).leaders
        if partition.partition not in leaders:
            raise UnknownTopic(f"topic {partition.topic} has no partition {partition.partition}")
        node = leaders[partition.partition]
        if node < 0:
            self.forget(partition.topic)
            raise StaleMetadata(f"{partition} has no leader")
        return node

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic, None where the cluster has none (before Kafka 2.8)."""
        found = self.topic(topic).id
        return None if found == ZERO_UUID else found

    # -- requests --

    def ask(self, connection: Connection, request: Request, newest: int = 32767) -> Any:
        """Send and wait for the answer. Raises ConnectionLost, RequestTimedOut, UnsupportedVersion."""
        connection.send(request, connection.version(type(request), newest))
        return connection.receive(self.deadline())

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, committed: bool | None = None
    ) -> dict[TopicPartition, FoundOffset]:
        """Offsets by time: EARLIEST, LATEST, or ms since the epoch (the first record at or after it).

        committed  LATEST is the last stable offset; the config's isolation.level unless given

        Raises UnknownTopic, NotAuthorized, RequestTimedOut.
        """
        isolation = self.config.read_committed if committed is None else committed
        found: dict[TopicPartition, FoundOffset] = {}

        def attempt() -> dict[TopicPartition, FoundOffset]:
            left = {part: time for part, time in wanted.items() if part not in found}
            for node, parts in self.by_leader(left).items():
                self._list_at(node, {part: left[part] for part in parts}, isolation, found)
            return found

        return self.retrying("list offsets", attempt) if wanted else found

    def by_leader(self, parts: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions of each leader."""
        groups: dict[int, list[TopicPartition]] = {}
        for part in parts:
            groups.setdefault(self.leader(part), []).append(part)
        return groups

    def _list_at(
        self, node: int, wanted: dict[TopicPartition, int], committed: bool, found: dict[TopicPartition, FoundOffset]
    ) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for part, moment in wanted.items():
            topic = topics.setdefault(part.topic, ListOffsetsTopic(name=part.topic))
            topic.partitions.append(ListOffsetsPartition(partition_index=part.partition, timestamp=moment))
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=list(topics.values()),
            timeout_ms=self.config["request.timeout.ms"],
        )
        answer = self.ask(self.pool.broker(node), request)
        failed: KafkaError | None = None
        for topic_answer in answer.topics:
            for row in topic_answer.partitions:
                part = TopicPartition(topic_answer.name, row.partition_index)
                if row.error_code != NONE:
                    failed = error_for(row.error_code, f"list offsets of {part}")
                else:
                    found[part] = FoundOffset(row.offset, row.timestamp)
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Close every connection."""
        self.pool.close()
