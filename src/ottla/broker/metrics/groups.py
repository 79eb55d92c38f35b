"""Families of the coordinators: groups and their lag, transactions, share groups.

Lag is that of partitions with a replica here, from the committed offset to the high watermark; kafka_exporter has its names.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinators.groups.state import Groups
from ottla.coordinators.share.acknowledgement import ACCEPT, REJECT, RELEASE, RENEW
from ottla.coordinators.share.state import UNKNOWN
from ottla.metadata.image import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.observability.families import COUNTER, GAUGE, Family, single
from ottla.protocol.errors import NONE

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.coordination.coordinators import Coordination
    from ottla.broker.share_partitions.partitions import SharePartitions
    from ottla.observability.request_metrics import RequestMetrics

_COORDINATOR: Final = "kafka_server_group_coordinator_metrics_"
_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager_"
_STATES: Final = {
    "classic": ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable"),
    "consumer": ("Empty", "Assigning", "Reconciling", "Stable"),
    "share": ("Empty", "Stable"),
    "streams": ("Empty", "NotReady", "Assigning", "Reconciling", "Stable"),
}
_OF_PARTITION: Final = ("consumergroup", "topic", "partition")
_OF_SHARE: Final = ("sharegroup", "topic", "partition")
MOST_LAGS: Final = 10_000
"""Number of offsets that are exported one by one; the sums by group and topic have all."""
_OFFSETS_A_STEP: Final = 1000


def group_families(coordination: "Coordination | None", requests: "RequestMetrics") -> Iterator[Family]:
    """Iterate over the families of the group coordinator."""
    shards: Sequence[Groups] = [] if coordination is None else coordination.groups.states()
    states = Counter[tuple[str, str]]()
    offsets = 0
    rebalances = Counter[str]()
    for shard in shards:
        states.update(("classic", group.state.value) for group in shard.groups.values())
        states.update(("consumer", group.state) for group in shard.consumer_groups.values())
        states.update(("share", group.state) for group in shard.share_groups.values())
        states.update(("streams", group.state) for group in shard.streams_groups.values())
        offsets += sum(len(partitions) for topics in shard.offsets.values() for partitions in topics.values())
        rebalances.update(shard.rebalances)
    for kind, names in _STATES.items():
        count = sum(number for (of_kind, _), number in states.items() if of_kind == kind)
        yield single(f"{_COORDINATOR}protocol_{kind}_group_count", GAUGE, f"Number of {kind} groups.", count)
        for name in names:
            text = f"Number of {kind} groups in state {name}."
            yield single(f"{_COORDINATOR}state_{name.lower()}_{kind}_group_count", GAUGE, text, states[kind, name])
    yield single(f"{_COORDINATOR}offset_count", GAUGE, "Number of committed offsets.", offsets)
    yield from _rebalance_families(rebalances, requests)
    if coordination is not None:
        loaded = len(shards)
        loading = coordination.groups.loading_partitions
    else:
        loaded = loading = 0
    yield single(
        f"{_COORDINATOR}state_active_num_partitions", GAUGE, "Loaded partitions of __consumer_offsets.", loaded
    )
    yield single(f"{_COORDINATOR}state_loading_num_partitions", GAUGE, "Partitions that are being loaded.", loading)
    yield single(f"{_MANAGER}numoffsets", GAUGE, "Number of committed offsets.", offsets)
    yield single(f"{_MANAGER}numgroups", GAUGE, "Number of classic groups.", _total(states, "classic"))
    for name in _STATES["classic"]:
        text = f"Number of classic groups in state {name}."
        yield single(f"{_MANAGER}numgroups{name.lower()}", GAUGE, text, states["classic", name])


def _total(states: Counter[tuple[str, str]], kind: str) -> int:
    return sum(states[kind, name] for name in _STATES[kind])


def _rebalance_families(rebalances: Counter[str], requests: "RequestMetrics") -> Iterator[Family]:
    def count_successes(*apis: str) -> int:
        return sum(requests.by_api[api].errors_by_code[NONE] for api in apis if api in requests.by_api)

    rows = (
        ("group_completed_rebalance_count", "Generations of classic groups that have begun.", rebalances["classic"]),
        ("consumer_group_rebalance_count", "Epochs of consumer groups that have begun.", rebalances["consumer"]),
        ("share_group_rebalance_count", "Epochs of share groups that have begun.", rebalances["share"]),
        ("streams_group_rebalance_count", "Epochs of streams groups that have begun.", rebalances["streams"]),
        ("offset_commit_count", "Offsets that were committed.", count_successes("OffsetCommit", "TxnOffsetCommit")),
        ("offset_deletion_count", "Offsets that were deleted by requests.", count_successes("OffsetDelete")),
    )
    yield from (single(f"{_COORDINATOR}{name}", GAUGE, text, value) for name, text, value in rows)


def lag_families(broker: "Broker", selected: frozenset[str]) -> Generator[None, None, list[Family]]:
    """Compute the lag of the groups that this broker coordinates, in steps."""
    offset = Family("kafka_consumergroup_current_offset", GAUGE, "Committed offset of a group.", _OF_PARTITION)
    lag = Family("kafka_consumergroup_lag", GAUGE, "Records between the committed offset and the end.", _OF_PARTITION)
    of_topic = ("consumergroup", "topic")
    offset_sum = Family("kafka_consumergroup_current_offset_sum", GAUGE, "Sum of committed offsets.", of_topic)
    lag_sum = Family("kafka_consumergroup_lag_sum", GAUGE, "Sum of the lag of a group.", of_topic)
    members = Family("kafka_consumergroup_members", GAUGE, "Number of members of a group.", ("consumergroup",))
    coordination = broker.used_coordination
    left = _OFFSETS_A_STEP
    for shard in [] if coordination is None else coordination.groups.states():
        for group_id, count in _member_counts(shard):
            members.add(count, group_id)
        for group_id, topics in list(shard.offsets.items()):
            for topic, partitions in list(topics.items()):
                sums = [0, 0]
                for index, value in list(partitions.items()):
                    high_watermark = _end(broker, topic, index)
                    behind = None if high_watermark is None else max(0, high_watermark - value.offset)
                    sums[0] += value.offset
                    sums[1] += behind or 0
                    left -= 1
                    if topic not in selected or len(offset.samples) >= MOST_LAGS:
                        continue
                    labels = group_id, topic, str(index)
                    offset.samples.append((labels, value.offset))
                    if behind is not None:
                        lag.samples.append((labels, behind))
                offset_sum.add(sums[0], group_id, topic)
                lag_sum.add(sums[1], group_id, topic)
                if left <= 0:
                    left = _OFFSETS_A_STEP
                    yield None
    return [offset, lag, offset_sum, lag_sum, members]


def _member_counts(shard: Groups) -> list[tuple[str, int]]:
    kinds: tuple[dict[str, Any], ...] = (shard.groups, shard.consumer_groups, shard.streams_groups)
    return [(group_id, len(group.members)) for kind in kinds for group_id, group in kind.items()]


def _end(broker: "Broker", topic: str, index: int) -> int | None:
    """Return the high watermark of a partition that has a replica here."""
    partition = broker.replicas.find(topic, index)
    return None if partition is None else partition.log.high_watermark


def transaction_families(coordination: "Coordination | None") -> Iterator[Family]:
    """Iterate over the families of the transaction coordinator."""
    shards = [] if coordination is None else coordination.transactions.states()
    ids = Family("ottla_transactional_ids", GAUGE, "Number of transactional ids.")
    ids.add(sum(len(shard.transactions) for shard in shards))
    ongoing = Family("ottla_transactions_ongoing", GAUGE, "Number of open transactions.")
    ongoing.add(sum(len(shard.ongoing) for shard in shards))
    yield from (ids, ongoing)
    partitions = Family(
        "ottla_coordinator_partitions", GAUGE, "Partitions of internal topics that are coordinated.", ("topic", "state")
    )
    if coordination is not None:
        runtimes = (
            (OFFSETS_TOPIC, coordination.groups),
            (TRANSACTION_STATE_TOPIC, coordination.transactions),
            (SHARE_STATE_TOPIC, coordination.shares),
        )
        for name, runtime in runtimes:
            partitions.add(len(runtime.active_partitions()), name, "active")
            partitions.add(runtime.loading_partitions, name, "loading")
    yield partitions
    loaded = 0 if coordination is None else len(coordination.shares.active_partitions())
    loading = 0 if coordination is None else coordination.shares.loading_partitions
    prefix, text = "kafka_server_share_coordinator_metrics_state_", "partitions of __share_group_state."
    yield single(f"{prefix}active_num_partitions", GAUGE, f"Loaded {text}", loaded)
    yield single(f"{prefix}loading_num_partitions", GAUGE, f"Loading {text}", loading)


def share_families(broker: "Broker", selected: frozenset[str]) -> Iterator[Family]:
    """Iterate over the families of share groups."""
    sharing, coordination = broker.used_share_partitions, broker.used_coordination
    sessions = "kafka_server_sharesessioncache_"
    held = 0 if sharing is None else len(sharing.sessions)
    partitions = 0 if sharing is None else sharing.sessions.partitions
    yield single(f"{sessions}sharesessionscount", GAUGE, "Number of share sessions.", held)
    yield single(f"{sessions}sharepartitionscount", GAUGE, "Number of partitions in share sessions.", partitions)
    acknowledged = Family(
        "kafka_server_sharegroupmetrics_recordacknowledgements_total",
        COUNTER,
        "Records that were acknowledged.",
        ("ackType",),
    )
    for code, name in ((ACCEPT, "Accept"), (REJECT, "Reject"), (RELEASE, "Release"), (RENEW, "Renew")):
        acknowledged.add(0 if sharing is None else sharing.acknowledged[code], name)
    yield acknowledged
    yield from _in_flight_families(sharing, selected)
    start = Family("kafka_sharegroup_start_offset", GAUGE, "Start offset of a share partition.", _OF_SHARE)
    lag = Family("kafka_sharegroup_lag", GAUGE, "Records of a share partition that are not completed.", _OF_SHARE)
    for shard in [] if coordination is None else coordination.shares.states():
        for (group_id, topic_id, index), state in shard.states.items():
            topic = broker.image.topics_by_id.get(topic_id)
            high_watermark = None if topic is None else _end(broker, topic.name, index)
            if topic is None or topic.name not in selected or state.start_offset == UNKNOWN:
                continue
            labels = group_id, topic.name, str(index)
            start.samples.append((labels, state.start_offset))
            if high_watermark is not None:
                done = max(0, state.delivery_complete_count)
                lag.samples.append((labels, max(0, high_watermark - state.start_offset - done)))
    yield from (start, lag)


def _in_flight_families(sharing: "SharePartitions | None", selected: frozenset[str]) -> Iterator[Family]:
    labels = ("group", "topic", "partition")
    messages = Family("kafka_server_sharepartitionmetrics_inflightmessagecount", GAUGE, "Records in flight.", labels)
    batches = Family("kafka_server_sharepartitionmetrics_inflightbatchcount", GAUGE, "Batches in flight.", labels)
    for shared in [] if sharing is None else sharing.all():
        if shared.state is None or shared.partition.topic not in selected:
            continue
        of_partition = shared.group_id, shared.partition.topic, str(shared.partition.index)
        window = shared.state.window
        messages.samples.append((of_partition, window.end_offset - window.start_offset - window.done))
        batches.samples.append((of_partition, len(window.spans)))
    yield from (messages, batches)
