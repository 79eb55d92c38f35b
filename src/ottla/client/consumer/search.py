"""The search for positions that a consumer lacks: what the group has committed, else what auto.offset.reset says.

no position --> committed? --yes---------------------------------------------------------> position
                    | no, or no group; EARLIEST in a topic that was recreated after this consumer had read it
                    v
            auto.offset.reset --earliest, latest, by_duration:...--> asked for by time --> position
                              --none--> NoOffset
"""

from collections.abc import Callable

from ottla.client.config import duration_ms
from ottla.client.consumer.commits import Commits, lost_membership
from ottla.client.consumer.positions import UNKNOWN, ConsumerPositions, PartitionState
from ottla.client.core import Core
from ottla.client.errors import KafkaError, NoOffset, OffsetOutOfRange
from ottla.client.groups import GroupMetadata
from ottla.client.offsets import list_offsets
from ottla.client.topics import EARLIEST, LATEST
from ottla.net.scheduler import Task
from ottla.protocol.schema import ZERO_UUID


class PositionSearch:
    """One search at a time, over all partitions of a consumer.

    member  as whom the group is asked what it has committed; never called without a group
    on_end  called when a search is over
    failed  called in place of it with what does not mend itself
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
        """Look for positions that are missing, unless that is under way."""
        if self._task is None and (self._positions.lacking() or self._positions.resetting()):
            self._task = self._core.scheduler.background(self._find(), "positions")
            if self._task.done:
                self._task = None

    async def _find(self) -> None:
        try:
            lacking = self._positions.lacking()
            if lacking and self._group_id:
                await self._find_committed(lacking)
            # Not those that were assigned meanwhile: their committed offsets were not requested yet.
            for state in lacking:
                recreated = await self._is_recreated(state)
                if not self._lacks(state):
                    continue
                if recreated and self._core.config["auto.offset.reset"] != "none":
                    state.look_up(EARLIEST)  # all its records are newer than those that were read
                else:
                    self.reset_by_policy(state, None)
            await self._look_up(self._positions.resetting())
        except KafkaError as error:
            # A member of an older epoch, or one that was removed, learns so from its heartbeats and asks again: a failed
            # look-up is no reason to reset the position.
            if error.retriable or lost_membership(error):
                await self._core.scheduler.sleep(self._core.metadata.backoff_ms(1))
            else:
                self._failed(error)
                return
        finally:
            self._task = None
        self._on_end()
        self.begin()  # positions may be missing that were not a moment ago

    async def _is_recreated(self, state: PartitionState) -> bool:
        """Return whether this consumer has read the partition in a topic that was deleted since."""
        before = self._positions.topic_ids.get(state.partition)
        if before is None or before == ZERO_UUID:
            return False
        return (await self._core.metadata.topic(state.partition.topic)).id not in (before, ZERO_UUID)

    def _lacks(self, state: PartitionState) -> bool:
        """Return whether a partition is still read, and still without a position or an order to look one up."""
        current = self._positions.states.get(state.partition) is state
        return current and state.position == UNKNOWN and state.reset is None

    async def _find_committed(self, states: list[PartitionState]) -> None:
        committed = await self._commits.fetch([state.partition for state in states], self._member)
        for state in states:
            offset = committed.get(state.partition)
            if offset is not None and self._lacks(state):
                state.seek(offset.offset, offset.leader_epoch)

    def reset_by_policy(self, state: PartitionState, cause: OffsetOutOfRange | None) -> None:
        """Have a position looked up as auto.offset.reset says. With "none" raises `cause`, or NoOffset without a cause."""
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
