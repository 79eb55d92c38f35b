"""Numbers of partitions in a streams topology, worked out from the topics that exist (KIP-1071).

    1 source topics must exist
    2 repartition topics without a declared size get that of the largest input of the subtopology that writes them, again and
      again until all are known
    3 topics of a copartition group get the same size
    4 changelogs have the size of their subtopology's largest input: that is its number of tasks
    5 existing internal topics must have these sizes; missing ones must be created

A problem with the topics is not an error: the group is not ready, and its members get a status. An impossible topology is
an error of the member that declares it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.coordinators.groups.streams.subtopologies import (
    Copartition,
    GroupSubtopology,
    GroupTopology,
    InternalTopic,
)
from ottla.metadata.refusal import Refused
from ottla.protocol.errors import STREAMS_INVALID_TOPOLOGY

MISSING_SOURCE_TOPICS: Final = 1
INCORRECTLY_PARTITIONED_TOPICS: Final = 2
MISSING_INTERNAL_TOPICS: Final = 3
_NAMED: Final = 3
"""Number of topics that a text names; further ones are counted."""


class Problem(NamedTuple):
    """Reason why a group is not ready: a status code of StreamsGroupHeartbeat, and its text."""

    status: int
    detail: str


class SizedTopology(NamedTuple):
    """A topology with the numbers that result from the topics of the cluster.

    tasks    subtopology id -> number of tasks; empty unless all topics are right
    sizes    internal topic -> number of partitions, as far as they are known
    stateful subtopologies with state
    missing  internal topics to create
    problem  None if all topics are right
    """

    tasks: Mapping[str, int]
    sizes: Mapping[str, int]
    stateful: frozenset[str]
    missing: Sequence[InternalTopic]
    problem: Problem | None


class _Mismatch(Exception):
    """Topics with numbers of partitions that do not fit together; the argument is the status text."""


def size(topology: GroupTopology, partitions: Mapping[str, int]) -> SizedTopology:
    """Return the sizes of a topology's topics and subtopologies.

    partitions  number of partitions of the topics that exist

    Raises Refused (STREAMS_INVALID_TOPOLOGY) for a topology whose sizes cannot be computed whatever topics exist.
    """
    stateful = frozenset(row.subtopology_id for row in topology.subtopologies if row.is_stateful)
    absent = {name for row in topology.subtopologies for name in row.sources if name not in partitions}
    if absent:
        problem = Problem(MISSING_SOURCE_TOPICS, f"Source topics {_list_names(absent)} are missing.")
        return SizedTopology({}, {}, stateful, (), problem)
    sizes = _repartition_sizes(topology, partitions)
    try:
        _equalize(topology, partitions, sizes)
        tasks = {}
        for subtopology in topology.subtopologies:
            count = _largest_input(subtopology, partitions, sizes)
            if count is None:
                text = f"No source topics found for subtopology {subtopology.subtopology_id}"
                raise Refused(STREAMS_INVALID_TOPOLOGY, text)
            tasks[subtopology.subtopology_id] = count
            sizes.update((changelog.name, count) for changelog in subtopology.changelogs)
        missing = _missing(topology, partitions, sizes)
    except _Mismatch as cause:
        return SizedTopology({}, sizes, stateful, (), Problem(INCORRECTLY_PARTITIONED_TOPICS, str(cause)))
    if missing:
        text = f"Internal topics are missing: {_list_names(topic.name for topic in missing)}"
        return SizedTopology({}, sizes, stateful, missing, Problem(MISSING_INTERNAL_TOPICS, text))
    return SizedTopology(tasks, sizes, stateful, (), None)


def _list_names(topics: Iterable[str]) -> str:
    ordered = sorted(topics)
    more = len(ordered) - _NAMED
    return ", ".join(ordered[:_NAMED]) + (f" and {more} additional topics" if more > 0 else "")


def _repartition_sizes(topology: GroupTopology, partitions: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of repartition topics: declared, or derived from what writes them. Raises Refused."""
    read = [topic for subtopology in topology.subtopologies for topic in subtopology.repartition_sources]
    sizes = {topic.name: topic.partitions for topic in read if topic.partitions}
    while True:
        waits = progress = False
        for subtopology in topology.subtopologies:
            for sink in subtopology.sinks:
                if sink in sizes:
                    continue
                count = _largest_input(subtopology, partitions, sizes)
                if count is None:
                    waits = True
                else:
                    sizes[sink] = count
                    progress = True
        if not waits:
            break
        if not progress:
            raise Refused(
                STREAMS_INVALID_TOPOLOGY,
                "Failed to compute number of partitions for all repartition topics. "
                "There may be loops in the topology that cannot be resolved.",
            )
    if any(topic.name not in sizes for topic in read):
        raise Refused(
            STREAMS_INVALID_TOPOLOGY,
            "Failed to compute number of partitions for all repartition topics, "
            "because a repartition source topic is never used as a sink topic.",
        )
    return sizes


def _largest_input(
    subtopology: GroupSubtopology, partitions: Mapping[str, int], sizes: Mapping[str, int]
) -> int | None:
    """Return the largest size of a topic that a subtopology reads, None if none is known."""
    known = [partitions[name] for name in subtopology.sources]
    known += [sizes[topic.name] for topic in subtopology.repartition_sources if topic.name in sizes]
    return max(known, default=None)


def _equalize(topology: GroupTopology, partitions: Mapping[str, int], sizes: dict[str, int]) -> None:
    """Give the topics of each copartition group the same size. Raises _Mismatch."""
    declared = {
        topic.name: topic.partitions
        for subtopology in topology.subtopologies
        for topic in subtopology.repartition_sources
        if topic.partitions
    }
    for subtopology in topology.subtopologies:
        for group in subtopology.copartitions:
            _equalize_group(subtopology, group, partitions, sizes, declared)


def _equalize_group(
    subtopology: GroupSubtopology,
    group: Copartition,
    partitions: Mapping[str, int],
    sizes: dict[str, int],
    declared: Mapping[str, int],
) -> None:
    external = {subtopology.sources[index]: partitions[subtopology.sources[index]] for index in group.sources}
    repartitioned = [subtopology.repartition_sources[index].name for index in group.repartition_sources]
    if external:
        count = _common(external)
        for name in repartitioned:
            if name in declared and declared[name] != count:
                raise _Mismatch(
                    f"Number of partitions [{declared[name]}] of repartition topic [{name}] doesn't match number of "
                    f"partitions [{count}] of the source topic."
                )
    elif not repartitioned:
        return
    elif declared:  # those of the whole topology, as in Kafka
        count = _common(declared)
    else:
        count = max(sizes[name] for name in repartitioned)
    sizes.update((name, count) for name in repartitioned if name not in declared)


def _common(counts: Mapping[str, int]) -> int:
    """Return the number that all topics have. Raises _Mismatch."""
    if len(set(counts.values())) > 1:
        texts = ", ".join(f"{name}={count}" for name, count in sorted(counts.items()))
        raise _Mismatch(f"Following topics do not have the same number of partitions: [{{{texts}}}]")
    return next(iter(counts.values()))


def _missing(topology: GroupTopology, partitions: Mapping[str, int], sizes: Mapping[str, int]) -> list[InternalTopic]:
    """Return the internal topics that do not exist, with their sizes. Raises _Mismatch for one of another size."""
    internal: dict[str, InternalTopic] = {}
    for subtopology in topology.subtopologies:
        internal.update((topic.name, topic) for topic in (*subtopology.repartition_sources, *subtopology.changelogs))
    for name in sorted(internal):
        count = partitions.get(name, sizes[name])
        if count != sizes[name]:
            raise _Mismatch(
                f"Existing topic {name} has different number of partitions: expected {sizes[name]}, found {count}"
            )
    return [internal[name]._replace(partitions=sizes[name]) for name in sorted(internal) if name not in partitions]
