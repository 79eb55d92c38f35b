"""Sampler of a cluster: looks at end offsets, sizes and groups at intervals while pages of the cluster are visited.

The work of a look is bounded: a large cluster is looked at in turns, and after a look that takes long the next one waits
longer, so that looks take at most a tenth of the time. All history is in memory, and ends with the process.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from ottla.client.admin.groups import ListedGroup
from ottla.client.aio import Admin
from ottla.client.errors import KafkaError
from ottla.client.topics import LATEST, TopicPartition
from ottla.console.group_positions import group_positions
from ottla.console.series import Histories, Progress, Series
from ottla.environment import Clock
from ottla.protocol.messages.metadata import MetadataResponse

logger: Final = logging.getLogger("ottla.console.sampler")
INTERVAL_MS: Final = 5_000
_FIRST_MS: Final = 1_000
"""Pause before the first look: the page that starts the sampler comes first."""
_SHARE: Final = 10
"""A look takes at most one part of so many of the time."""
_MOST_PAUSE_MS: Final = 60_000
_IDLE_MS: Final = 300_000
_TIMEOUT_S: Final = 5.0
_MOST_PARTITIONS: Final = 2_000
_MOST_GROUPS: Final = 100
_MOST_WATCHED: Final = 20
_REQUEST_PARTITIONS: Final = 500
"""Partitions of one request: a larger response would hold the event loop for too long."""
_MOST_HISTORIES: Final = 300


class _Source(NamedTuple):
    """Access to a cluster."""

    admin: Callable[[], Admin]
    metadata: Callable[[], Awaitable[MetadataResponse]]


class Sampler:
    """Rates and histories of a cluster. It runs from a visit until five minutes after the last one.

    messages_in, messages_out  offsets per second, of topics that are not internal, and of what groups have committed
    bytes_in                   growth of logs per second
    topic_rates, topic_sizes   by topic: offsets per second, size of its partitions
    lags                       by group
    looks                      number of looks so far
    """

    def __init__(
        self, clock: Clock, admin: Callable[[], Admin], metadata: Callable[[], Awaitable[MetadataResponse]]
    ) -> None:
        self._clock = clock
        self._source = _Source(admin, metadata)
        self.ends, self.sizes, self.committed = Progress(), Progress(), Progress()
        self.messages_in, self.bytes_in, self.messages_out = Series(), Series(), Series()
        self.topic_rates, self.topic_sizes = Histories(_MOST_HISTORIES), Histories(_MOST_HISTORIES)
        self.lags = Histories(_MOST_HISTORIES)
        self.looks = 0
        self._next_topic = ""
        self._next_group = ""
        self._visited_ms = 0
        self._task: asyncio.Task[None] | None = None

    def visit(self) -> None:
        """Note a visit of a page, on the event loop; start to look if it is the first one for a while."""
        self._visited_ms = self._clock.now_ms()
        if not self.is_running:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(_log_failure)

    @property
    def is_running(self) -> bool:
        """True if looks go on."""
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        """End the looks."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        for progress in (self.ends, self.sizes, self.committed):
            progress.clear()
        pause_ms = _FIRST_MS
        while True:
            await asyncio.sleep(pause_ms / 1000)
            started_ms = self._clock.now_ms()
            if started_ms - self._visited_ms > _IDLE_MS:
                return
            await self.look()
            pause_ms = min(max(INTERVAL_MS, (self._clock.now_ms() - started_ms) * (_SHARE - 1)), _MOST_PAUSE_MS)

    async def look(self) -> None:
        """Look once; what the cluster does not answer, or does not allow, is left out."""
        for part in (self._look_at_topics, self._look_at_groups):
            try:
                await part()
            except KafkaError as error:
                logger.debug("%s: %s", part.__name__, error)
        self.looks += 1

    async def _look_at_topics(self) -> None:
        metadata = await self._source.metadata()
        counts = {
            topic.name: len(topic.partitions) for topic in metadata.topics if topic.name and not topic.is_internal
        }
        for progress in (self.ends, self.sizes):
            progress.keep(counts.keys())
        for histories in (self.topic_rates, self.topic_sizes):
            histories.keep(counts.keys())
        chosen = turn(counts, self._next_topic, _MOST_PARTITIONS)
        self._next_topic = chosen[-1] if len(chosen) < len(counts) else ""
        watched = [name for name in self.topic_rates.watched(_MOST_WATCHED) if counts.get(name, _MOST_PARTITIONS) < 100]
        partitions = [
            TopicPartition(name, index) for name in dict.fromkeys([*watched, *chosen]) for index in range(counts[name])
        ]
        nodes = [broker.node_id for broker in metadata.brokers]
        ends: dict[str, dict[int, int]] = defaultdict(dict)
        sizes: dict[str, dict[int, int]] = defaultdict(dict)
        for start in range(0, len(partitions), _REQUEST_PARTITIONS):
            asked = partitions[start : start + _REQUEST_PARTITIONS]
            answer = await self._source.admin().list_offsets(dict.fromkeys(asked, LATEST), timeout=_TIMEOUT_S)
            for partition, entry in answer.successes.items():
                ends[partition.topic][partition.partition] = entry.offset
            for partition, size in (await self._sizes(nodes, asked)).items():
                sizes[partition.topic][partition.partition] = size
        self._note_topics(ends, sizes)

    async def _sizes(self, nodes: list[int], partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the size of the largest replica of each partition, empty if the cluster does not report sizes."""
        try:
            described = await self._source.admin().describe_log_dirs(nodes, partitions=partitions, timeout=_TIMEOUT_S)
        except KafkaError:
            return {}
        sizes: dict[TopicPartition, int] = {}
        for directories in described.successes.values():
            for directory in directories.values():
                for partition, replica in directory.replicas.items():
                    sizes[partition] = max(sizes.get(partition, 0), replica.size)
        return sizes

    def _note_topics(self, ends: dict[str, dict[int, int]], sizes: dict[str, dict[int, int]]) -> None:
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        for name, positions in ends.items():
            rate = self.ends.look(name, now_ms, positions)
            if rate is not None:
                self.topic_rates.add(name, wall_ms, rate)
        for name, its in sizes.items():
            self.sizes.look(name, now_ms, its)
            self.topic_sizes.add(name, wall_ms, sum(its.values()))
        self._note_totals(wall_ms, (self.messages_in, self.ends), (self.bytes_in, self.sizes))

    async def _look_at_groups(self) -> None:
        listed = await self._source.admin().list_groups(timeout=_TIMEOUT_S)
        self.committed.keep(listed.keys())
        self.lags.keep(listed.keys())
        chosen = turn(dict.fromkeys(listed, 1), self._next_group, _MOST_GROUPS)
        self._next_group = chosen[-1] if len(chosen) < len(listed) else ""
        watched = [name for name in self.lags.watched(_MOST_WATCHED) if name in listed]
        groups: list[ListedGroup] = [listed[name] for name in dict.fromkeys([*watched, *chosen])]
        positions = await group_positions(self._source.admin(), groups, _TIMEOUT_S)
        now_ms, wall_ms = self._clock.now_ms(), self._clock.wall_ms()
        for group_id, entry in positions.items():
            self.committed.look(group_id, now_ms, entry.positions)
            if entry.lag is not None:
                self.lags.add(group_id, wall_ms, entry.lag)
        self._note_totals(wall_ms, (self.messages_out, self.committed))

    @staticmethod
    def _note_totals(wall_ms: int, *totals: tuple[Series, Progress]) -> None:
        for series, progress in totals:
            if progress.total is not None:
                series.add(wall_ms, progress.total)


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log an error that ended the looks; the next visit starts them again."""
    failure = None if task.cancelled() else task.exception()
    if failure is not None:
        logger.error("no more looks at the cluster until the next visit", exc_info=failure)


def turn(weights: dict[str, int], after: str, most: int) -> list[str]:
    """Return the names after another one, in order and from the start again, whose weights add up to about `most`.

    Never empty if there are names; never a name twice.
    """
    names = sorted(weights)
    first = next((index for index, name in enumerate(names) if name > after), 0)
    chosen: list[str] = []
    weight = 0
    for name in names[first:] + names[:first]:
        if chosen and weight + weights[name] > most:
            break
        chosen.append(name)
        weight += weights[name]
    return chosen
