"""The topology of a streams group, as its first member declares it: subtopologies with their topics (KIP-1071).

Sizes of internal topics are those declared, 0 if the coordinator derives them (see internal_topics.py).
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ottla.protocol.messages.streams_group_topology_record import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)


class InternalTopic(NamedTuple):
    """Repartition or changelog topic; `partitions` is 0 if it is derived, `replication_factor` 0 for the default."""

    name: str
    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, row: Any) -> "InternalTopic":
        """Return the topic of a row (`TopicInfo`) of a request or record."""
        configs = tuple((config.key, config.value) for config in row.topic_configs)
        return cls(row.name, row.partitions, row.replication_factor, configs)

    def record(self) -> TopicInfo:
        """Return the row of a record."""
        return TopicInfo(
            name=self.name,
            partitions=self.partitions,
            replication_factor=self.replication_factor,
            topic_configs=[TopicConfig(key=key, value=text) for key, text in self.configs],
        )


class Copartition(NamedTuple):
    """Topics that need the same number of partitions, as indexes into the lists of their subtopology."""

    sources: tuple[int, ...]
    source_regexes: tuple[int, ...]
    repartition_sources: tuple[int, ...]


class GroupSubtopology(NamedTuple):
    """Subtopology: what it reads and writes.

    sources              topics of the application's users
    sinks                repartition topics that it writes
    repartition_sources  repartition topics that it reads
    changelogs           topics with the changes of its state stores
    """

    subtopology_id: str
    sources: tuple[str, ...]
    source_regexes: tuple[str, ...]
    sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]
    copartitions: tuple[Copartition, ...]

    @property
    def inputs(self) -> Iterator[str]:
        """Topics that it reads."""
        yield from self.sources
        yield from (topic.name for topic in self.repartition_sources)

    @property
    def is_stateful(self) -> bool:
        """True if it has a changelog, and so state to keep copies of."""
        return bool(self.changelogs)


class GroupTopology(NamedTuple):
    """Topology of a group: its epoch, and its subtopologies ordered by id as text."""

    epoch: int
    subtopologies: tuple[GroupSubtopology, ...]

    @classmethod
    def of(cls, row: Any) -> "GroupTopology":
        """Return the topology of a request or record."""
        return cls(row.epoch, tuple(sorted(map(_subtopology, row.subtopologies), key=lambda row: row.subtopology_id)))

    @property
    def inputs(self) -> frozenset[str]:
        """Topics that any subtopology reads."""
        return frozenset(name for subtopology in self.subtopologies for name in subtopology.inputs)

    @property
    def read_or_logged(self) -> frozenset[str]:
        """Topics that any subtopology reads, and changelogs: the group depends on their partitions."""
        logs = (topic.name for subtopology in self.subtopologies for topic in subtopology.changelogs)
        return self.inputs.union(logs)

    def record(self) -> StreamsGroupTopologyValue:
        """Return the value of the group's topology record."""
        return StreamsGroupTopologyValue(epoch=self.epoch, subtopologies=list(map(_record, self.subtopologies)))


def required_topics(subtopologies: Iterable[Any]) -> list[str]:
    """Return the names of all topics in the rows of a request, each once, in the order of the request."""
    names: dict[str, None] = {}
    for row in subtopologies:
        names.update(dict.fromkeys(row.source_topics))
        names.update(dict.fromkeys(row.repartition_sink_topics))
        names.update(dict.fromkeys(topic.name for topic in row.repartition_source_topics))
        names.update(dict.fromkeys(topic.name for topic in row.state_changelog_topics))
    return list(names)


def _subtopology(row: Any) -> GroupSubtopology:
    return GroupSubtopology(
        row.subtopology_id,
        tuple(row.source_topics),
        tuple(row.source_topic_regex),
        tuple(row.repartition_sink_topics),
        tuple(map(InternalTopic.of, row.repartition_source_topics)),
        tuple(map(InternalTopic.of, row.state_changelog_topics)),
        tuple(
            Copartition(
                tuple(group.source_topics), tuple(group.source_topic_regex), tuple(group.repartition_source_topics)
            )
            for group in row.copartition_groups
        ),
    )


def _record(subtopology: GroupSubtopology) -> Subtopology:
    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=list(subtopology.sources),
        source_topic_regex=list(subtopology.source_regexes),
        state_changelog_topics=[topic.record() for topic in subtopology.changelogs],
        repartition_sink_topics=list(subtopology.sinks),
        repartition_source_topics=[topic.record() for topic in subtopology.repartition_sources],
        copartition_groups=[
            CopartitionGroup(
                source_topics=list(group.sources),
                source_topic_regex=list(group.source_regexes),
                repartition_source_topics=list(group.repartition_sources),
            )
            for group in subtopology.copartitions
        ],
    )
