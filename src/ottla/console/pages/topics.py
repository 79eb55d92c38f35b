"""Topics: list with search, and one topic with its partitions, sizes and configs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from starlette.responses import JSONResponse, Response

from ottla.client.admin.configs import ConfigEntry, ConfigResource, ConfigSource, ResourceType
from ottla.client.admin.topics import PartitionDescription, TopicDescription
from ottla.client.errors import KafkaError
from ottla.client.topics import EARLIEST, LATEST, TopicPartition
from ottla.console.clusters import TIMEOUT_S, TopicSummary
from ottla.console.ordering import Ordering, ordering
from ottla.console.topic_groups import TopicGroups, topic_groups
from ottla.console.visit import Visit, page
from ottla.protocol.uuids import uuid_text

_PAGE: Final = 50
_MOST_PARTITIONS: Final = 500


class TopicRow(NamedTuple):
    """Topic in the list; records, size and messages per second are None where they are not known (yet)."""

    name: str
    internal: bool
    partitions: int
    replicas: int
    unhealthy: int
    records: int | None
    size: int | None
    rate: float | None


class PartitionRow(NamedTuple):
    """Partition of a topic with its offsets and the size of its largest replica."""

    description: PartitionDescription
    start: int | None
    end: int | None
    size: int | None

    @property
    def records(self) -> int | None:
        """Number of offsets between start and end."""
        return None if self.start is None or self.end is None else self.end - self.start


class ConfigRow(NamedTuple):
    """Config of a topic; `default` is the value without the topic's own one."""

    entry: ConfigEntry
    default: str | None
    is_own: bool


_COLUMNS: Final[Mapping[str, Callable[[TopicRow], Any]]] = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replicas,
    "records": lambda row: row.records,
    "size": lambda row: row.size,
    "rate": lambda row: row.rate,
    "health": lambda row: row.unhealthy,
}
_MEASURED: Final = ("records", "size")
"""Columns whose values the brokers of all topics are asked for."""
_MOST_SORTED: Final = 5_000
"""Partitions of a list that is sorted by one of these."""


async def topics(visit: Visit) -> Response:
    """List topics: one page of those whose names contain the search text."""
    query, internal = visit.text("q"), visit.text("internal") == "1"
    matching = [
        topic
        for topic in await visit.cluster.topics()
        if query.lower() in topic.name.lower() and (internal or not topic.internal)
    ]
    only_unhealthy = visit.text("unhealthy") == "1"
    if only_unhealthy:
        matching = [topic for topic in matching if topic.under_replicated or topic.leaderless]
    order, note = ordering(visit, _COLUMNS), ""
    if order.column in _MEASURED and sum(topic.partitions for topic in matching) > _MOST_SORTED:
        order, note = Ordering("name", False), f"More than {_MOST_SORTED} partitions are not sorted by {order.column}."
    last = max(1, -(-len(matching) // _PAGE))
    number = min(visit.integer("page", 1, 1), last)
    on_page = slice((number - 1) * _PAGE, number * _PAGE)
    if order.column in _MEASURED:
        shown = order.sort(await _measure(visit, matching, _MOST_SORTED), _COLUMNS)[on_page]
    else:
        rates = visit.cluster.sampler.ends
        unmeasured = [_row(topic, None, None, rates.rate(topic.name)) for topic in matching]
        names = {row.name for row in order.sort(unmeasured, _COLUMNS)[on_page]}
        some = [topic for topic in matching if topic.name in names]
        shown = order.sort(await _measure(visit, some, _MOST_PARTITIONS), _COLUMNS)
    return visit.render(
        "topics.html",
        title="Topics",
        rows=shown,
        count=len(matching),
        page=number,
        last=last,
        query=query,
        internal=internal,
        unhealthy=only_unhealthy,
        order=order,
        note=note,
    )


def _row(topic: TopicSummary, records: int | None, size: int | None, rate: float | None) -> TopicRow:
    unhealthy = topic.under_replicated + topic.leaderless
    return TopicRow(topic.name, topic.internal, topic.partitions, topic.replicas, unhealthy, records, size, rate)


async def _measure(visit: Visit, topics: list[TopicSummary], most: int) -> list[TopicRow]:
    """Return topics with records and sizes; those of `most` partitions at most."""
    partitions = [TopicPartition(topic.name, index) for topic in topics for index in range(topic.partitions)]
    starts, ends = await offsets_of(visit, partitions[:most])
    sizes = await sizes_of(visit, partitions)
    rows = []
    for topic in topics:
        its = [TopicPartition(topic.name, index) for index in range(topic.partitions)]
        is_known = all(partition in starts and partition in ends for partition in its)
        records = sum(ends[partition] - starts[partition] for partition in its) if is_known else None
        size = sum(sizes.get(partition, 0) for partition in its) if sizes is not None else None
        rows.append(_row(topic, records, size, visit.cluster.sampler.ends.rate(topic.name)))
    return rows


async def topic(visit: Visit) -> Response:
    """Show the partitions of a topic."""
    description = await describe_topic(visit)
    shown = description.partitions[:_MOST_PARTITIONS]
    partitions = [TopicPartition(description.name, row.partition) for row in shown]
    starts, ends = await offsets_of(visit, partitions)
    sizes = await sizes_of(visit, partitions) or {}
    rows = [
        PartitionRow(row, starts.get(partition), ends.get(partition), sizes.get(partition))
        for row, partition in zip(shown, partitions, strict=True)
    ]
    groups, group_error = await _groups(visit, description.name, ends)
    own, config_error = await _own_configs(visit, description.name)
    return visit.render(
        "topic.html",
        title=description.name,
        topic=description,
        topic_id=uuid_text(description.topic_id),
        rows=rows,
        more=len(description.partitions) - len(shown),
        own=own,
        config_error=config_error,
        groups=groups,
        group_error=group_error,
        records=sum(row.records or 0 for row in rows),
        size=sum(row.size or 0 for row in rows) if sizes else None,
        replicas=max((len(row.replicas) for row in description.partitions), default=0),
    )


async def _groups(visit: Visit, topic: str, ends: dict[TopicPartition, int]) -> tuple[TopicGroups, str]:
    """Return the groups of a topic, or none and the reason."""
    try:
        return await topic_groups(visit.admin, topic, ends, TIMEOUT_S / 2), ""
    except KafkaError as error:
        return TopicGroups([], 0), str(error)


async def _own_configs(visit: Visit, topic: str) -> tuple[list[ConfigRow], str]:
    """Return the configs that a topic has of its own, or none and the reason (brokers before Kafka 0.11 do not tell)."""
    try:
        return [row for row in await config_rows(visit, topic) if row.is_own], ""
    except KafkaError as error:
        return [], str(error)


async def growth(visit: Visit) -> Response:
    """Return the messages per second and the size of a topic over time, for the charts."""
    name, sampler, after = visit.path("topic"), visit.cluster.sampler, visit.integer("after", -1, -1)
    if any(topic.name == name for topic in (await visit.cluster.metadata()).topics):
        sampler.topic_rates.watch(name)
        sampler.topic_sizes.watch(name)
    series = {"messages_in": sampler.topic_rates.points(name, after), "size": sampler.topic_sizes.points(name, after)}
    return JSONResponse({"series": series})


async def configs(visit: Visit) -> Response:
    """Show all configs of a topic: its own ones first."""
    name = visit.path("topic")
    rows = await config_rows(visit, name)
    return visit.render(
        "topic_configs.html",
        title=f"Configs of {name}",
        name=name,
        own=[row for row in rows if row.is_own],
        others=[row for row in rows if not row.is_own],
    )


async def describe_topic(visit: Visit) -> TopicDescription:
    """Describe the topic of the URL. Raises KafkaError."""
    name = visit.path("topic")
    return (await visit.admin.describe_topics([name], timeout=TIMEOUT_S))[name]


async def config_rows(visit: Visit, name: str) -> list[ConfigRow]:
    """Return the configs of a topic, sorted by name. Raises KafkaError."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    described = await visit.admin.describe_configs(
        [resource], include_synonyms=True, include_documentation=True, timeout=TIMEOUT_S
    )
    return [
        ConfigRow(entry, _default(entry), entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG)
        for _, entry in sorted(described[resource].items())
    ]


def _default(entry: ConfigEntry) -> str | None:
    """Return the value that applies without the topic's own one."""
    for synonym in entry.synonyms:
        if synonym.source != ConfigSource.DYNAMIC_TOPIC_CONFIG:
            return synonym.value
    return None


async def offsets_of(
    visit: Visit, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the start and end offsets of the partitions that have a leader and may be read."""
    asked = list(partitions)
    bounds = []
    for moment in (EARLIEST, LATEST):
        offsets = await visit.admin.list_offsets(dict.fromkeys(asked, moment), timeout=TIMEOUT_S / 2)
        bounds.append({partition: entry.offset for partition, entry in offsets.successes.items()})
    return bounds[0], bounds[1]


async def sizes_of(visit: Visit, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int] | None:
    """Return the size of the largest replica of each partition, None if the cluster does not report sizes."""
    sizes: dict[TopicPartition, int] = {}
    try:
        metadata = await visit.cluster.metadata()
        nodes = [broker.node_id for broker in metadata.brokers]
        described = await visit.admin.describe_log_dirs(nodes, partitions=partitions, timeout=TIMEOUT_S / 2)
    except KafkaError:
        return None
    for directories in described.successes.values():
        for directory in directories.values():
            for partition, replica in directory.replicas.items():
                sizes[partition] = max(sizes.get(partition, 0), replica.size)
    return sizes if described.successes else None


ROUTES = [
    page("/topics", topics),
    page("/topics/{topic}", topic),
    page("/topics/{topic}/growth", growth),
    page("/topics/{topic}/configs", configs),
]
