"""Figures of `ottla top`: rates from two samples of a cluster. Sends no requests."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.addresses import address_text
from ottla.client.admin.cluster import ClusterDescription
from ottla.client.admin.groups import ListedGroup
from ottla.client.topics import TopicPartition


class ClusterSample(NamedTuple):
    """State of a cluster at one moment.

    seconds    time of a monotonic clock
    leaders    leader of each observed partition, -1 for none
    ends       end offsets, without those of partitions whose request failed
    sizes      node -> bytes of each replica on it; a node that does not report sizes is missing
    committed  group -> committed offset of each partition; a group whose request failed is missing
    lags       group -> lag in records, None if unknown
    trouble    errors of the requests that failed
    """

    seconds: float
    cluster: ClusterDescription
    leaders: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    sizes: Mapping[int, Mapping[TopicPartition, int]]
    groups: Mapping[str, ListedGroup]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    lags: Mapping[str, int | None]
    trouble: tuple[str, ...] = ()


class BrokerRow(NamedTuple):
    """Figures of a broker: rates of the partitions that it leads, size of its replicas in bytes; both of observed topics."""

    broker: int
    address: str
    controller: bool
    leaders: int
    replicas: int | None
    size: int | None
    records_per_second: float | None
    bytes_per_second: float | None


class TopicRow(NamedTuple):
    """Figures of a topic: size of the leaders' replicas in bytes, sum of its end offsets."""

    topic: str
    partitions: int
    end: int
    size: int | None
    records_per_second: float | None
    bytes_per_second: float | None


class GroupRow(NamedTuple):
    """Figures of a group: type and state are None if unknown; the rate is that of committed offsets."""

    group: str
    type: str | None
    state: str | None
    lag: int | None
    records_per_second: float | None


class Figures(NamedTuple):
    """Figures of a cluster; `seconds` is the time between the samples, None for a single sample."""

    cluster_id: str | None
    seconds: float | None
    brokers: list[BrokerRow]
    topics: list[TopicRow]
    groups: list[GroupRow]
    trouble: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the figures as a JSON object."""
        rows = {name: [row._asdict() for row in getattr(self, name)] for name in ("brokers", "topics", "groups")}
        return {"cluster_id": self.cluster_id, "seconds": self.seconds, **rows, "trouble": list(self.trouble)}


SORTS = ("bytes", "lag", "name", "records", "size")


def figures(before: ClusterSample | None, now: ClusterSample, sort: str = "bytes") -> Figures:
    """Compute the figures of a sample; the rates need an earlier one and are unset (None) without it.

    sort  one of SORTS, largest first; by name if it does not apply
    """
    seconds = None if before is None else max(now.seconds - before.seconds, 1e-3)
    growth = _Growth(before, now, seconds)
    topics = sorted(growth.topics(), key=lambda row: (-_weight(row, sort), row.topic))
    by = sort if sort in ("name", "records") else "lag"
    groups = sorted(growth.groups(), key=lambda row: (-_weight(row, by), row.group))
    return Figures(now.cluster.cluster_id, seconds, growth.brokers(), topics, groups, now.trouble)


def _weight(row: TopicRow | GroupRow, sort: str) -> float:
    field = {"bytes": "bytes_per_second", "records": "records_per_second"}.get(sort, sort)
    return getattr(row, field, 0) or 0 if sort != "name" else 0


class _Growth:
    """Growth between two samples; a new partition has grown from 0."""

    def __init__(self, before: ClusterSample | None, now: ClusterSample, seconds: float | None) -> None:
        self._now = now
        self._seconds = seconds
        self._records: dict[TopicPartition, int] = {}
        self._bytes: dict[TopicPartition, int] = {}
        self._read: dict[str, int] = {}
        self._sizes = self._leader_sizes(now)
        if before is None:
            return
        sizes_before = self._leader_sizes(before)
        for partition in now.leaders:
            new = partition not in before.leaders
            for grown, old, young in (
                (self._records, before.ends, now.ends),
                (self._bytes, sizes_before, self._sizes),
            ):
                start = 0 if new else old.get(partition)
                if start is not None and partition in young:
                    grown[partition] = max(young[partition] - start, 0)
        for group, offsets in now.committed.items():
            earlier = before.committed.get(group, {})
            self._read[group] = sum(
                max(offset - earlier.get(partition, offset), 0) for partition, offset in offsets.items()
            )

    @staticmethod
    def _leader_sizes(sample: ClusterSample) -> dict[TopicPartition, int]:
        """Return the bytes of the leaders' replicas."""
        sizes_led = {}
        for partition, leader in sample.leaders.items():
            size = sample.sizes.get(leader, {}).get(partition)
            if size is not None:
                sizes_led[partition] = size
        return sizes_led

    def _rate(self, grown: Mapping[TopicPartition, int], partitions: list[TopicPartition]) -> float | None:
        known = [grown[partition] for partition in partitions if partition in grown]
        return None if self._seconds is None or (partitions and not known) else round(sum(known) / self._seconds, 1)

    def brokers(self) -> list[BrokerRow]:
        """Return the brokers, sorted by id."""
        led: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition, leader in self._now.leaders.items():
            led[leader].append(partition)
        rows = []
        for node in sorted(self._now.cluster.nodes):
            sizes = self._now.sizes.get(node.id)
            replicas = None if sizes is None else {part: sizes[part] for part in sizes if part in self._now.leaders}
            rows.append(
                BrokerRow(
                    node.id,
                    address_text(node.host, node.port),
                    node.id == self._now.cluster.controller,
                    len(led[node.id]),
                    None if replicas is None else len(replicas),
                    None if replicas is None else sum(replicas.values()),
                    self._rate(self._records, led[node.id]),
                    self._rate(self._bytes, led[node.id]),
                )
            )
        return rows

    def topics(self) -> list[TopicRow]:
        """Return the topics, unsorted."""
        of_topic: dict[str, list[TopicPartition]] = defaultdict(list)
        for partition in self._now.leaders:
            of_topic[partition.topic].append(partition)
        rows = []
        for topic, partitions in of_topic.items():
            sizes = [self._sizes[partition] for partition in partitions if partition in self._sizes]
            end = sum(self._now.ends.get(partition, 0) for partition in partitions)
            rates = self._rate(self._records, partitions), self._rate(self._bytes, partitions)
            rows.append(TopicRow(topic, len(partitions), end, sum(sizes) if sizes else None, *rates))
        return rows

    def groups(self) -> list[GroupRow]:
        """Return the groups, unsorted."""
        rows = []
        for name, group in self._now.groups.items():
            read = self._read.get(name)
            rate = None if read is None or self._seconds is None else round(read / self._seconds, 1)
            rows.append(GroupRow(name, group.type or None, group.state or None, self._now.lags.get(name), rate))
        return rows
