"""Families by topic and by partition: what was appended and read, the state of logs and replicas.

Partitions are examined in steps, between which the broker serves requests.
"""

from collections import Counter
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.metrics.selection import OTHERS, TopicSelection
from ottla.broker.metrics.traffic import TopicTraffic, Traffic
from ottla.observability.families import COUNTER, GAUGE, Family

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.log.log import Log
    from ottla.metadata.image import PartitionImage
    from ottla.replication.partition import Partition

_PARTITIONS_A_STEP: Final = 100
_BY_PARTITION: Final = ("topic", "partition")
_LATE_MS: Final = 300_000
"""Time after transaction.max.timeout.ms after which a transaction that is still open is late, as in Kafka."""


class _Counters(NamedTuple):
    """Counters of a log at one time."""

    records: int = 0
    size: int = 0
    rejected: int = 0
    replicated: int = 0


class _Appended:
    """Totals of a topic's logs; they stay when a log is closed."""

    __slots__ = ("bytes_in", "messages", "rejected", "replicated")

    def __init__(self) -> None:
        self.messages = self.bytes_in = self.rejected = self.replicated = 0

    def add(self, now: _Counters, before: _Counters) -> None:
        """Add what has come since the last reading of a log."""
        self.messages += now.records - before.records
        self.bytes_in += now.size - before.size
        self.rejected += now.rejected - before.rejected
        self.replicated += now.replicated - before.replicated

    def include(self, other: "_Appended") -> None:
        """Add the totals of another topic."""
        self.messages += other.messages
        self.bytes_in += other.bytes_in
        self.rejected += other.rejected
        self.replicated += other.replicated


class ReplicaFigures:
    """Numbers of partitions of this broker, added up while the partitions are examined."""

    def __init__(self) -> None:
        self.partitions = self.leaders = self.producer_ids = self.late_transactions = 0
        self.under_replicated = self.under_min_isr = self.at_min_isr = self.reassigning = 0
        self.follower_lag: Counter[int] = Counter()
        """Records that each follower lacks, of the partition where it lacks most."""


class _LogFamilies:
    """Families of logs and replicas by partition."""

    def __init__(self) -> None:
        def family(name: str, text: str) -> Family:
            return Family(name, GAUGE, text, _BY_PARTITION)

        self.size = family("kafka_log_log_size", "Size of the log in bytes.")
        self.end = family("kafka_log_log_logendoffset", "Log end offset.")
        self.start = family("kafka_log_log_logstartoffset", "Log start offset.")
        self.segments = family("kafka_log_log_numlogsegments", "Number of segments.")
        self.retention = family(
            "kafka_log_log_retentionsizeinpercent", "Size in percent of retention.bytes; 0 without it."
        )
        self.isr = family("kafka_cluster_partition_insyncreplicascount", "Number of replicas in sync; 0 on a follower.")
        self.replicas = family("kafka_cluster_partition_replicascount", "Number of replicas; 0 on a follower.")
        self.under_replicated = family("kafka_cluster_partition_underreplicated", "1 if a replica is not in sync.")
        self.under_min_isr = family(
            "kafka_cluster_partition_underminisr", "1 if fewer than min.insync.replicas are in sync."
        )
        self.at_min_isr = family("kafka_cluster_partition_atminisr", "1 if just min.insync.replicas are in sync.")
        self.stable_lag = family(
            "kafka_cluster_partition_laststableoffsetlag", "High watermark minus last stable offset."
        )
        self.current = family("kafka_topic_partition_current_offset", "High watermark of a partition led here.")
        self.oldest = family("kafka_topic_partition_oldest_offset", "Log start offset of a partition led here.")

    def all(self) -> list[Family]:
        return list(vars(self).values())


class TopicFamilies:
    """Families by topic and partition, with counters that survive the logs they were taken from."""

    def __init__(self, broker: "Broker", traffic: Traffic, selection: TopicSelection) -> None:
        self._broker = broker
        self._traffic = traffic
        self._selection = selection
        self._appended: dict[str, _Appended] = {}
        self._known: dict[tuple[str, int], tuple[Log, _Counters]] = {}
        """Each log with its counters at the last reading."""
        self.figures = ReplicaFigures()
        self.selected: frozenset[str] = frozenset()

    def collect(self) -> Generator[None, None, list[Family]]:
        """Examine all partitions, in steps; returns the families, and sets `figures` and `selected`."""
        by_topic = self._broker.replicas.by_topic()
        self.selected = self._selection.of({name: len(partitions) for name, partitions in by_topic.items()})
        figures, families, left = ReplicaFigures(), _LogFamilies(), _PARTITIONS_A_STEP
        late_ms = self._broker.clock.wall_ms() - self._broker.config.integer("transaction.max.timeout.ms") - _LATE_MS
        known: dict[tuple[str, int], tuple[Log, _Counters]] = {}
        others: list[int] = [0, 0, 0]
        for partition in self._broker.replicas.all():
            self._count_appended(partition, known)
            is_selected = partition.topic in self.selected
            self._examine(partition, figures, families if is_selected else None, others, late_ms)
            left -= 1
            if not left:
                left = _PARTITIONS_A_STEP
                yield None
        self._known, self.figures = known, figures
        if others[0]:
            for family, value in zip((families.segments, families.size), others[1:], strict=True):
                family.add(value, OTHERS, OTHERS)
        yield None
        topics = Family("kafka_topic_partitions", GAUGE, "Number of partitions of a topic.", ("topic",))
        for name, topic in self._broker.image.topics.items():
            if name in self.selected:
                topics.add(len(topic.partitions), name)
        return [*families.all(), topics, *self._traffic_families()]

    def _count_appended(self, partition: "Partition", known: "dict[tuple[str, int], tuple[Log, _Counters]]") -> None:
        log, key = partition.log, (partition.topic, partition.index)
        held = self._known.get(key)
        before = _Counters() if held is None or held[0] is not log else held[1]
        now = _Counters(log.appended_records, log.appended_bytes, log.rejected_bytes, log.replicated_bytes)
        appended = self._appended.get(partition.topic)
        if appended is None:
            appended = self._appended[partition.topic] = _Appended()
        appended.add(now, before)
        known[key] = log, now

    def _examine(
        self,
        partition: "Partition",
        figures: ReplicaFigures,
        families: _LogFamilies | None,
        others: list[int],
        late_ms: int,
    ) -> None:
        log = partition.log
        leads = partition.leader_id == self._broker.node_id
        placed = self._broker.image.partition(partition.topic_id, partition.index)
        figures.partitions += 1
        figures.leaders += leads
        figures.producer_ids += len(log.producers)
        if not log.producers.is_settled:
            figures.late_transactions += any(
                producer.transaction_start >= 0 and producer.timestamp < late_ms for producer in log.producers.active()
            )
        state = (0, 0, 0, 0, 0) if placed is None or not leads else _state(partition, placed)
        figures.under_replicated += state[2]
        figures.under_min_isr += state[3]
        figures.at_min_isr += state[4]
        figures.reassigning += leads and placed is not None and bool(placed.adding or placed.removing)
        if partition.leadership is not None:
            for node_id, follower in partition.leadership.followers.items():
                lag = log.end_offset - max(0, follower.end_offset)
                figures.follower_lag[node_id] = max(figures.follower_lag[node_id], lag)
        if families is None:
            others[0] += 1
            others[1] += len(log.segments)
            others[2] += log.size
            return
        _add_log(families, partition, leads, state)

    def _traffic_families(self) -> list[Family]:
        names = self._broker.image.topics_by_id
        by_name = {OTHERS: TopicTraffic()}
        by_name[OTHERS].add(self._traffic.others)
        for key, traffic in self._traffic.by_topic.items():
            topic = names.get(key) if isinstance(key, bytes) else None
            name = key if isinstance(key, str) else OTHERS if topic is None else topic.name
            name = name if name in self.selected else OTHERS
            whole = by_name.setdefault(name, TopicTraffic())
            whole.add(traffic)
        self._leave_out_deleted()
        appended: dict[str, _Appended] = {}
        for topic_name, counted in self._appended.items():
            appended.setdefault(topic_name if topic_name in self.selected else OTHERS, _Appended()).include(counted)
        return [*_by_topic(by_name, appended), *_of_broker(by_name, appended)]

    def _leave_out_deleted(self) -> None:
        """Add the totals of deleted topics to those of the others."""
        topics = self._broker.image.topics
        for name in [name for name in self._appended if name not in topics and name != OTHERS]:
            self._appended.setdefault(OTHERS, _Appended()).include(self._appended.pop(name))


def _state(partition: "Partition", placed: "PartitionImage") -> tuple[int, int, int, int, int]:
    """Return the numbers of replicas in sync and of replicas, and whether they are too few, below and at the minimum."""
    in_sync, replicas = len(placed.isr), len(placed.replicas)
    leadership = partition.leadership
    least = min(partition.log.config.min_insync_replicas, replicas) if leadership is None else leadership.min_isr
    return in_sync, replicas, int(in_sync < replicas), int(in_sync < least), int(in_sync == least)


def _add_log(
    families: _LogFamilies, partition: "Partition", leads: bool, state: tuple[int, int, int, int, int]
) -> None:
    log, labels = partition.log, (partition.topic, str(partition.index))
    size, limit = log.size, log.config.retention_bytes
    values = (
        size,
        log.end_offset,
        log.start_offset,
        len(log.segments),
        size * 100 // limit if limit > 0 else 0,
        *state,
        log.high_watermark - log.last_stable_offset if leads else 0,
    )
    for family, value in zip(families.all(), values, strict=False):
        family.samples.append((labels, value))
    if leads:
        families.current.samples.append((labels, log.high_watermark))
        families.oldest.samples.append((labels, log.start_offset))


_PREFIX: Final = "kafka_server_brokertopicmetrics_"
_FROM_TRAFFIC: Final = (
    ("bytesout", "bytes_out", "Bytes sent to consumers."),
    ("totalproducerequests", "produces", "Partitions in Produce requests."),
    ("totalfetchrequests", "fetches", "Partitions in Fetch requests."),
    ("totalsharefetchrequests", "share_fetches", "Partitions in ShareFetch requests."),
    ("totalshareacknowledgementrequests", "share_acknowledgements", "Partitions in ShareAcknowledge requests."),
)
_FROM_APPENDED: Final = (
    ("messagesin", "messages", "Records appended by this broker as leader."),
    ("bytesin", "bytes_in", "Bytes appended by this broker as leader."),
    ("bytesrejected", "rejected", "Bytes of batches that were too large."),
)
_OF_BROKER: Final = (
    ("failedproducerequests", "failed_produces", "Partitions in Produce requests that failed."),
    ("failedfetchrequests", "failed_fetches", "Partitions in Fetch requests that failed."),
    ("failedsharefetchrequests", "failed_share_fetches", "Partitions in ShareFetch requests that failed."),
    (
        "failedshareacknowledgementrequests",
        "failed_share_acknowledgements",
        "Partitions whose acknowledgements failed.",
    ),
    ("replicationbytesout", "replication_bytes_out", "Bytes sent to followers."),
)


def _by_topic(traffic: Mapping[str, TopicTraffic], appended: Mapping[str, _Appended]) -> list[Family]:
    families = []
    for source, rows in ((appended, _FROM_APPENDED), (traffic, _FROM_TRAFFIC)):
        for suffix, slot, text in rows:
            family = Family(f"{_PREFIX}{suffix}_total", COUNTER, text, ("topic",))
            total = Family(family.name, COUNTER, text)
            whole = 0
            for name in sorted(source):
                value = getattr(source[name], slot)
                whole += value
                if value:
                    family.add(value, name)
            total.add(whole)
            families += [total, family]
    return families


def _of_broker(traffic: Mapping[str, TopicTraffic], appended: Mapping[str, _Appended]) -> list[Family]:
    families = []
    for suffix, slot, text in _OF_BROKER:
        family = Family(f"{_PREFIX}{suffix}_total", COUNTER, text)
        family.add(sum(getattr(of_topic, slot) for of_topic in traffic.values()))
        families.append(family)
    replicated = Family(f"{_PREFIX}replicationbytesin_total", COUNTER, "Bytes appended by this broker as follower.")
    replicated.add(sum(of_topic.replicated for of_topic in appended.values()))
    return [*families, replicated]
