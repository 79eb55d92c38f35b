"""Lookup of missing positions: the committed offset of the group, else by auto.offset.reset. Brokers may create the topics of
assigned partitions first (allow.auto.create.topics), as with Java's consumer.

no position --> committed? --yes---------------------------------------------------------> position
                    | no, or no group; EARLIEST in a topic that was recreated after this consumer had read it
                    v
            auto.offset.reset --earliest, latest, by_duration:...--> ListOffsets --------> position
                              --none--> NoOffset
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from ottla.client.config import duration_ms
from ottla.client.consumer.commits import Commits, is_membership_lost
from ottla.client.consumer.positions import UNKNOWN, ConsumerPositions, PartitionState
from ottla.client.core import Core
from ottla.client.errors import KafkaError, NoOffset, OffsetOutOfRange, RequestTimedOut, UnknownTopic
from ottla.client.groups import GroupMetadata
from ottla.client.offsets import list_offsets
from ottla.client.topics import EARLIEST, LATEST
from ottla.protocol.schema import ZERO_UUID
from ottla.tasks.scheduler import Task

_CREATION_MS: Final = 3000
"""Time to wait for the creation of a topic; brokers may not create topics (auto.create.topics.enable)."""


class PositionSearch:
    """Lookup of positions for all partitions of a consumer; one lookup runs at a time.

    member  returns the member in whose name committed offsets are fetched; never called without a group
    on_end  called when a lookup has ended
    failed  called instead with an error that is not retriable
    """

    def __init__(
        self,
        core: Core,
        positions: ConsumerPositions,
        commits: Commits,
        member: Callable[[], GroupMetadata],
        *,
        on_end: Callable[[], None],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self._core = core
        self._group_id: str = core.config["group.id"]
        self._positions = positions
        self._commits = commits
        self._member = member
        self._on_end = on_end
        self._failed = failed
        self._task: Task[None] | None = None

    def begin(self) -> None:
        """Start a lookup of missing positions, unless one is in progress."""
        if self._task is None and (self._positions.lacking() or self._positions.resetting()):
            self._task = self._core.scheduler.background(self._find(), "positions")
            if self._task.done:
                self._task = None

    async def _find(self) -> None:
        failed = False
        try:
            try:
                await self._find_all()
            except KafkaError as error:
                # A member with an old epoch, or one that was removed, notices that by its heartbeats and tries again: a failed
                # lookup is no reason to reset the position.
                if not error.retriable and not is_membership_lost(error):
                    self._failed(error)
                    return
                failed = True
            if failed:
                await self._core.scheduler.sleep(self._core.metadata.backoff_ms(1))
        finally:
            self._task = None
        self._on_end()
        self.begin()  # further positions may be missing now

    async def _find_all(self) -> None:
        await self._create_topics([*self._positions.lacking(), *self._positions.resetting()])
        lacking = self._positions.lacking()
        if lacking and self._group_id:
            await self._find_committed(lacking)
        # Excludes partitions assigned meanwhile: their committed offsets were not requested yet.
        for state in lacking:
            recreated = await self._is_recreated(state)
            if not self._lacks(state):
                continue
            if recreated and self._core.config["auto.offset.reset"] != "none":
                state.look_up(EARLIEST)  # all its records are unread
            else:
                self.reset_by_policy(state, None)
        await self._look_up(self._positions.resetting())

    async def _create_topics(self, states: Iterable[PartitionState]) -> None:
        """Have brokers create the topics that do not exist, if the configs allow it: those of partitions assigned by hand."""
        if not self._core.config["allow.auto.create.topics"]:
            return
        metadata = self._core.metadata
        topics = dict.fromkeys(state.partition.topic for state in states)
        await self._core.scheduler.every(
            [self._create_topic(topic) for topic in topics if metadata.known(topic) is None]
        )

    async def _create_topic(self, topic: str) -> None:
        with contextlib.suppress(UnknownTopic, RequestTimedOut):  # the lookups raise UnknownTopic themselves
            await self._core.metadata.topic(topic, create=True, operation="Read", timeout_ms=_CREATION_MS)

    async def _is_recreated(self, state: PartitionState) -> bool:
        """Return True if this consumer has read the partition in a topic that was deleted and recreated since."""
        before = self._positions.topic_ids.get(state.partition)
        if before is None or before == ZERO_UUID:
            return False
        return (await self._core.metadata.topic(state.partition.topic)).id not in (before, ZERO_UUID)

    def _lacks(self, state: PartitionState) -> bool:
        """Return True if a partition is still assigned, and has neither a position nor a pending lookup by timestamp."""
        current = self._positions.states.get(state.partition) is state
        return current and state.position == UNKNOWN and state.reset is None

    async def _find_committed(self, states: list[PartitionState]) -> None:
        committed = await self._commits.fetch([state.partition for state in states], self._member)
        for state in states:
            offset = committed.get(state.partition)
            if offset is not None and self._lacks(state):
                state.seek(offset.offset, offset.leader_epoch)

    def reset_by_policy(self, state: PartitionState, cause: OffsetOutOfRange | None) -> None:
        """Have a position looked up by auto.offset.reset. With "none" raises `cause`, or NoOffset without a cause."""
        policy: str = self._core.config["auto.offset.reset"]
        if policy == "none":
            if cause is not None:
                raise cause
            raise NoOffset(
                f"group {self._group_id!r} has committed no offset of {state.partition}, and auto.offset.reset is none"
            )
        if policy == "earliest":
            state.look_up(EARLIEST)
        elif policy == "latest":
            state.look_up(LATEST)
        else:
            state.look_up(self._core.clock.wall_ms() - duration_ms(policy.removeprefix("by_duration:")))

    async def _look_up(self, states: list[PartitionState]) -> None:
        resets = {state.partition: state.reset for state in states if state.reset is not None}
        versions = {state.partition: state.version for state in states}
        if not resets:
            return
        offsets = await list_offsets(self._core, resets)
        late = [part for part in resets if offsets[part].offset < 0]
        ends = await list_offsets(self._core, dict.fromkeys(late, LATEST)) if late else {}
        for state in states:
            if state.version == versions[state.partition] and state.partition in offsets:
                where = ends.get(state.partition, offsets[state.partition])
                state.seek(where.offset, where.leader_epoch)
