"""Changes of the ISR by the leaders of partitions on this broker, written to the metadata store.

A change is written only if nothing that it is based on has changed: the state of the partition, its topic, this broker's sign
of life, and for each member that is added its registration, which must be that of its last fetch (KIP-903), and its sign of
life. The changes of several partitions are written together. After a refused comparison each is planned again on the newer
image; after an unknown outcome it stays proposed, and is written again until the image shows a newer state.
"""

import logging
from typing import Final, NamedTuple

from ottla.environment import Cancellable
from ottla.metadata import changes
from ottla.metadata.image import PartitionImage, TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.store import Change, ChangeOutcome, keys
from ottla.replication.leader.leadership import Leadership
from ottla.replication.partition import Partition
from ottla.tasks.scheduler import Scheduler

_logger = logging.getLogger("ottla.replication")
_PARTITIONS_A_CHANGE: Final = 30
"""Each is compared with its topic, and etcd takes 128 comparisons."""
_PARTITIONS_A_STEP: Final = 500
"""Number of partitions that are examined in one step of a few milliseconds."""
_FIRST_RETRY_MS: Final = 100
_LONGEST_RETRY_MS: Final = 2_000


class _Planned(NamedTuple):
    partition: Partition
    leadership: Leadership
    topic: TopicImage
    before: PartitionImage
    state: PartitionImage


class IsrChanges:
    """Writes the changes of the ISR that partitions request."""

    def __init__(self, node_id: int, metadata: Metadata, tasks: Scheduler) -> None:
        self.expansions = self.shrinks = self.failures = 0
        self._node_id = node_id
        self._metadata = metadata
        self._tasks = tasks
        self._due: dict[Partition, None] = {}
        self._is_writing = False
        self._timer: Cancellable | None = None
        self._retry_ms = _FIRST_RETRY_MS
        self._is_closed = False

    def request(self, partition: Partition) -> None:
        """Look at a partition whose ISR should change, after the current event."""
        self._due[partition] = None
        self._write_in(0)

    def close(self) -> None:
        """Write no further change."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _write_in(self, delay_ms: int) -> None:
        if self._timer is None and not self._is_writing and not self._is_closed:
            self._timer = self._tasks.call_later(delay_ms, self._write)

    def _write(self) -> None:
        self._timer = None
        if self._is_closed or self._is_writing:
            return
        if self._node_id not in self._metadata.image.live:
            self._write_in(_LONGEST_RETRY_MS)  # fenced: every change would be refused
            return
        planned: list[_Planned] = []
        examined = 0
        while self._due and len(planned) < _PARTITIONS_A_CHANGE and examined < _PARTITIONS_A_STEP:
            examined += 1
            partition = next(iter(self._due))
            del self._due[partition]
            change = self._plan(partition)
            if change is not None:
                planned.append(change)
        if planned:
            self._submit(planned)
        elif self._due:
            self._write_in(0)

    def _plan(self, partition: Partition) -> _Planned | None:
        leadership = partition.leadership
        topic = self._metadata.image.topics_by_id.get(partition.topic_id)
        if leadership is None or topic is None or partition.index >= len(topic.partitions):
            return None
        before = leadership.state
        if topic.partitions[partition.index] != before:  # the listeners of the newer image come here again
            return None
        log = partition.log
        state = leadership.proposal(log.end_offset, log.high_watermark, shrinks=True)
        return None if state is None else _Planned(partition, leadership, topic, before, state)

    def _submit(self, planned: list[_Planned]) -> None:
        metadata = self._metadata
        expect: dict[str, int] = {}
        live = keys.live_key(self._node_id)
        created = {live: metadata.image.created_of(live)}
        for change in planned:
            for node in change.state.isr:
                if node not in change.before.isr:
                    follower = change.leadership.followers[node]
                    broker = keys.broker_key(node)
                    expect[broker] = (
                        follower.broker_epoch if follower.broker_epoch >= 0 else metadata.image.revision_of(broker)
                    )
                    created[keys.live_key(node)] = metadata.image.created_of(keys.live_key(node))
        states = [(change.topic, change.partition.index, change.state) for change in planned]
        whole = changes.partition_states(metadata.image, states, created)
        self._is_writing = True
        for change in planned:
            _logger.debug(
                "%s-%d: ISR %s -> %s",
                change.partition.topic,
                change.partition.index,
                change.before.isr,
                change.state.isr,
            )
        whole = whole._replace(expect={**whole.expect, **expect})
        self._tasks.background(self._send(planned, whole), "a change of ISRs")

    async def _send(self, planned: list[_Planned], whole: Change) -> None:
        outcome = await self._metadata.submit(whole)
        self._is_writing = False
        delay_ms = 0
        self.failures += 0 if outcome.revision else len(planned)
        if outcome.revision:
            self._retry_ms = _FIRST_RETRY_MS
            self._report(planned)
        elif outcome.error is not None:
            _logger.warning("cannot change the ISR of %d partitions: %s", len(planned), outcome.error)
            delay_ms = self._retry_ms
            self._retry_ms = min(2 * self._retry_ms, _LONGEST_RETRY_MS)
        for change in planned:
            _decide(change, outcome)
            if change.partition.leadership is change.leadership:
                self._due[change.partition] = None
        if self._due:
            self._write_in(delay_ms)

    def _report(self, planned: list[_Planned]) -> None:
        for partition, _, _, before, state in planned:
            grown = [node for node in state.isr if node not in before.isr]
            removed = [node for node in before.isr if node not in state.isr]
            self.shrinks += bool(removed)
            self.expansions += bool(grown)
            if removed:
                _logger.info("%s-%d: %s left the ISR", partition.topic, partition.index, removed)
            if grown:
                _logger.info("%s-%d: %s joined the ISR", partition.topic, partition.index, grown)


def _decide(planned: _Planned, outcome: ChangeOutcome) -> None:
    """Tell a leadership what became of its proposal; a newer state in the image has decided it already."""
    leadership = planned.leadership
    if leadership.state.epoch != planned.before.epoch or outcome.revision:
        return
    if outcome.is_unknown:
        leadership.record_doubt()
    else:
        leadership.record_refusal()
