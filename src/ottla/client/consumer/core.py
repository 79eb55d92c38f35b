"""A consumer: what `ottla.Consumer` and `ottla.aio.Consumer` show.

Strategy. Three things go on by themselves on the core's thread: the membership (classic_member.py, consumer_member.py), the
search for positions (search.py), and the fetches (fetcher.py). The application's thread takes records from fetched chunks
(`take`, in reading.py), which touches the core only once a chunk; without a chunk, or when `attention` is set, it waits in
`wait`. A listener runs in the application's thread: `wait` hands it out.

    take() --> a record of the chunk at hand ---------------------------------------------> application
                 | none left, or `attention`
                 v
               wait() --> a chunk arrived | a listener to run (Handover) | time is over | an error

The position of a partition is the offset of the record that `take` gives next: what was given before counts as processed when
it is committed.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.client.consumer.classic_member import ClassicMembership
from ottla.client.consumer.commits import Commits, lost_membership
from ottla.client.consumer.consumer_member import ConsumerMembership
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.positions import UNKNOWN, ConsumerPositions, PartitionState
from ottla.client.consumer.reading import ChunkReader
from ottla.client.consumer.rebalance import AssignmentChange, Handover, Listeners, Membership
from ottla.client.consumer.search import PositionSearch
from ottla.client.consumer.validation import EpochEnd
from ottla.client.core import Core, logger
from ottla.client.errors import IllegalState, KafkaError, LogTruncation, NoOffset, OffsetOutOfRange, RequestTimedOut
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.offsets import list_offsets
from ottla.client.topics import EARLIEST, FoundOffset, TopicPartition
from ottla.net.scheduler import Alarm, Promise, Signal, Task
from ottla.protocol.errors import OFFSET_OUT_OF_RANGE
from ottla.protocol.schema import ZERO_UUID

_NO_GROUP: Final = "this needs the config group.id"


class ConsumerCore(ChunkReader):
    """One consumer. The methods defined here run on the core's thread, those of `ChunkReader` on the application's."""

    def __init__(self, core: Core) -> None:
        config = core.config
        self.core = core
        positions = ConsumerPositions()
        super().__init__(positions, Fetcher(core, positions, self._lost, self._truncated, self._recreated))
        self.listeners = Listeners()
        self._group_id: str = config["group.id"]
        self._commits = Commits(core, self._group_id)
        self._membership: Membership | None = None
        self._handovers: deque[Handover] = deque()
        self._truncations: deque[tuple[PartitionState, int, EpochEnd]] = deque()
        self._woken = Signal()
        self._topics: list[str] = []
        self._pattern: str | None = None
        self._search = PositionSearch(
            core,
            self._positions,
            self._commits,
            lambda: self.group_metadata,
            on_end=self._fetcher.pump,
            failed=self._not_found,
        )
        self._committed_ms = core.clock.now_ms()
        self._committing: Task[None] | None = None
        self._closed = False
        self._assigned_by_hand = False
        self._reminder = Alarm(core.scheduler, self._wake_application)
        self._waiting = False
        """True while the application is in `wait`."""
        self._entered = Signal()
        self._pending_changes = 0
        """Changes that wait for the application to be in `wait`, or happen there."""

    # -- what is read --

    def subscribe(self, topics: Iterable[str], pattern: str | None, listeners: Listeners) -> None:
        """Read topics as a member of the group, in place of what was read before."""
        self._check_open()
        if not self._group_id:
            raise IllegalState(f"subscribe: {_NO_GROUP}; assign reads without a group")
        if self._assigned_by_hand:
            raise IllegalState("assign was called before: unsubscribe first")
        self.listeners = listeners
        self._topics, self._pattern = list(topics), pattern
        if self._membership is None:
            protocol = ConsumerMembership if self.core.config["group.protocol"] == "consumer" else ClassicMembership
            self._membership = protocol(self.core, self)
        self._membership.subscribe(self._topics, pattern)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without others of the group."""
        self._check_open()
        if self._membership is not None:
            raise IllegalState("subscribe was called before: unsubscribe first")
        self._assigned_by_hand = True
        self._take_over(list(partitions))

    async def unsubscribe(self) -> None:
        """Read nothing, and leave the group."""
        self._check_open()
        await self._leave()

    @property
    def subscription(self) -> list[str]:
        """The topics, as far as they were named."""
        return list(self._topics)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return sorted(self._positions.states)

    @property
    def group_metadata(self) -> GroupMetadata:
        """Ids and generation of this member, for a producer's transaction."""
        if not self._group_id:
            raise IllegalState(f"group metadata: {_NO_GROUP}")
        return self._membership.metadata if self._membership is not None else GroupMetadata(self._group_id)

    def _take_over(self, partitions: list[TopicPartition]) -> None:
        self._note_positions()
        self._positions.assign(partitions)
        self._fetcher.drop_stale()
        if self._chunk is not None and self._positions.states.get(self._chunk.state.partition) is not self._chunk.state:
            self._drop_chunk()
        self._search.begin()
        self._fetcher.pump()

    # -- what a membership says --

    async def changed(
        self, change: AssignmentChange, partitions: list[TopicPartition], owned: list[TopicPartition]
    ) -> None:
        """Partitions come or go, while the application is inside `wait`: nothing changes under its hands."""
        self._pending_changes += 1
        try:
            await self._until_waiting()
            if change is AssignmentChange.REVOKED:
                await self._commit_before_revocation()
                await self._until_waiting()  # the application's `poll` may have ended meanwhile: its time was over
            if change is AssignmentChange.ASSIGNED:
                self._take_over(owned)
            listener = self.listeners.of(change)
            if listener is not None and not self._closed:
                done = Promise[None]()
                self._handovers.append(Handover(change, partitions, listener, done))
                self._wake_application()
                await done
            if change is not AssignmentChange.ASSIGNED:
                self._take_over(owned)
        finally:
            self._pending_changes -= 1
            self._woken.happen()

    async def _until_waiting(self) -> None:
        """Wait until the application is in `wait`; what follows without another wait happens there."""
        while not self._waiting and not self._closed:
            entered = self._entered.wait()
            self._wake_application()
            await entered

    async def _commit_before_revocation(self) -> None:
        """Commit what is processed before it goes elsewhere."""
        if self._committing is not None:
            self._committing.cancel()  # older positions
            self._committing = None
        if self._group_id and self.core.config["enable.auto.commit"]:
            offsets = self.consumed()
            try:
                await self._commits.commit_positions(
                    offsets,
                    lambda: self.group_metadata,
                    self.core.config["request.timeout.ms"],
                    topic_ids=self._topic_ids(offsets),
                )
            except KafkaError as error:
                logger.warning("commit before a rebalance: %s", error)

    # -- waiting --

    async def wait(self, timeout_ms: int) -> Handover | bool:
        """Until there may be records (True), a listener is to be run, or the time is over (False). Raises KafkaError."""
        self._check_open()
        if self._membership is None and not self._positions.states:
            raise IllegalState("poll comes after subscribe or assign")
        self.attention = False
        self._waiting = True
        self._entered.happen()
        self.polls += 1
        try:
            self._commit_now_and_then()
            return await self._wait(self.core.clock.now_ms() + timeout_ms)
        finally:
            self._waiting = False
            if self._pending_changes:
                self.attention = True  # no record of a partition that is about to go is given until the change is over

    async def _wait(self, deadline: int) -> Handover | bool:
        while True:
            woken, arrived = self._woken.wait(), self._fetcher.arrived.wait()
            if self._handovers:
                return self._handovers.popleft()
            left = deadline - self.core.clock.now_ms()
            if self._pending_changes:
                # At least one turn, also when the time is over: calls with timeout 0 would hold up a rebalance for good.
                await self.core.scheduler.within(woken, max(left, 0))
                if left <= 0 and self._pending_changes and not self._handovers:
                    return False
                continue
            self._settle_truncations()
            self._raise_trouble()
            if self._fetcher.chunks or self._next < len(self._records):
                return True
            if left <= 0:
                return False
            self._search.begin()
            self._fetcher.pump()
            self.core.metadata.watch(self._topics)
            await self.core.scheduler.within(woken, left, arrived)

    def _raise_trouble(self) -> None:
        trouble: BaseException | None = self._fetcher.trouble
        self._fetcher.trouble = None
        if trouble is None and self._membership is not None:
            trouble = self._membership.error
        if isinstance(trouble, NoOffset) and not self._positions.lacking():
            trouble = None  # no position is missing any more
        if trouble is not None:
            raise trouble

    def _wake_application(self) -> None:
        self.attention = True
        self._woken.happen()

    # -- positions --

    def _not_found(self, error: KafkaError) -> None:
        self._fetcher.trouble = error
        self._wake_application()

    def _lost(self, state: PartitionState, error: OffsetOutOfRange) -> None:
        """The log has no such offset."""
        try:
            self._search.reset_by_policy(state, error)
        except KafkaError as refused:
            self._fetcher.trouble = refused
            state.fetch_position = UNKNOWN
        else:
            logger.info("%s: going on by auto.offset.reset", error)
            self._search.begin()

    def _recreated(self, state: PartitionState) -> None:
        """The topic of the position was deleted: all records of the one that has its name now are new."""
        what = f"topic {state.partition.topic} was deleted and created again"
        if self.core.config["auto.offset.reset"] == "none":
            state.fetch_position = UNKNOWN
            self._fetcher.trouble = OffsetOutOfRange(f"{state.partition}: {what}: seek to go on", OFFSET_OUT_OF_RANGE)
            self._wake_application()
            return
        logger.warning("%s: %s: going on at its beginning", state.partition, what)
        # The chunks of the position are stale now. They stay where they are: the application's thread may be taking one.
        state.look_up(EARLIEST)
        self._search.begin()

    def _truncated(self, state: PartitionState, end: EpochEnd) -> None:
        """Note that fetched records are not in the log any more. The next `wait` raises the error or changes the position."""
        self._truncations.append((state, state.version, end))
        self._wake_application()

    def _settle_truncations(self) -> None:
        while self._truncations:
            state, version, end = self._truncations.popleft()
            if state.version == version and self._positions.states.get(state.partition) is state:
                self._note_positions()
                self._truncate(state, end)

    def _truncate(self, state: PartitionState, end: EpochEnd) -> None:
        """Go on where the log goes on that the leader has (KIP-320)."""
        known = end.epoch >= 0
        if known and end.offset >= state.position:
            # Only what was fetched ahead is gone.
            self._moved(state.partition).seek(state.position, state.epoch_before(state.position))
        elif self.core.config["auto.offset.reset"] == "none":
            error = LogTruncation(
                f"{state.partition}: records before the position {state.position} are not in the log any more"
                + (f": it diverges at offset {end.offset}" if known else ""),
                OFFSET_OUT_OF_RANGE,
            )
            error.position, error.diverging = state.position, end.offset if known else -1
            self._fetcher.trouble = error
        elif known:
            logger.warning("%s: the log was truncated to offset %d: going on there", state.partition, end.offset)
            self._moved(state.partition).seek(end.offset, end.epoch)
        else:
            logger.warning("%s: the log was truncated: going on by auto.offset.reset", state.partition)
            self._search.reset_by_policy(self._moved(state.partition), None)
        self._fetcher.drop_stale()

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on at an offset; one with a leader epoch is validated first (KIP-320)."""
        where = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        self._moved(partition).seek(where.offset, where.leader_epoch)
        self._fetcher.drop_stale()
        self._fetcher.pump()

    def seek_to(self, partitions: Iterable[TopicPartition], moment: int) -> None:
        """Go on at EARLIEST or LATEST."""
        for partition in list(partitions) or self.assignment:
            self._moved(partition).look_up(moment)
        self._fetcher.drop_stale()
        self._search.begin()

    def _moved(self, partition: TopicPartition) -> PartitionState:
        state = self._state(partition)
        if self._chunk is not None and self._chunk.state is state:
            self._drop_chunk()
        return state

    def _state(self, partition: TopicPartition) -> PartitionState:
        state = self._positions.states.get(TopicPartition(*partition))
        if state is None:
            raise IllegalState(f"{TopicPartition(*partition)} is not assigned to this consumer")
        return state

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give no records of these until they are resumed; members they stay."""
        self._note_positions()
        for partition in partitions:
            state = self._state(partition)
            state.paused = True
            if state.position != UNKNOWN:
                self._moved(partition).seek(state.position, state.epoch_before(state.position))
        self._fetcher.drop_stale()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on with these."""
        for partition in partitions:
            self._state(partition).paused = False
        self._fetcher.pump()

    @property
    def paused(self) -> list[TopicPartition]:
        """Those that are paused."""
        return sorted(part for part, state in self._positions.states.items() if state.paused)

    async def position(self, partition: TopicPartition, timeout_ms: int) -> int:
        """The offset of the next record. Raises RequestTimedOut when it is not found in time."""
        state = self._state(partition)

        async def attempt() -> int:
            self._note_positions()
            while state.position == UNKNOWN:
                self._search.begin()
                self._raise_trouble()
                await self.core.scheduler.sleep(5)
            return state.position

        return await self.core.metadata.retrying(f"position in {state.partition}", attempt, timeout_ms)

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end that readers see; None before a fetch returned it."""
        self._note_positions()
        state = self._state(partition)
        end = state.last_stable_offset if self.core.config.read_committed else state.high_watermark
        if end == UNKNOWN or state.position == UNKNOWN:
            return None
        return max(end - state.position, 0)

    # -- commits --

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions of all partitions that have one."""
        self._note_positions()
        return {
            part: OffsetAndMetadata(state.position, "", state.epoch_before(state.position))
            for part, state in self._positions.known().items()
        }

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None, timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit offsets, or the positions; what was committed. Raises FencedError and the like."""
        if not self._group_id:
            raise IllegalState(f"commit: {_NO_GROUP}")
        positions = self.consumed() if offsets is None else whole_offsets(offsets)
        ids = self._topic_ids(positions)
        await self._commits.commit(positions, lambda: self.group_metadata, timeout_ms, topic_ids=ids)
        self._committed_ms = self.core.clock.now_ms()
        return positions

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the group; partitions without a commit are left out."""
        if not self._group_id:
            raise IllegalState(f"committed: {_NO_GROUP}")
        requested = [TopicPartition(*partition) for partition in partitions]
        return await self._commits.fetch(requested, lambda: GroupMetadata(self._group_id), timeout_ms)

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bytes]:
        """Ids of the topics that positions belong to, as far as they are known."""
        states = self._positions.states
        ids = {part: states[part].topic_id for part in partitions if part in states}
        return {part: topic_id for part, topic_id in ids.items() if topic_id is not None and topic_id != ZERO_UUID}

    def _commit_now_and_then(self) -> None:
        """enable.auto.commit: every auto.commit.interval.ms, in the background."""
        config = self.core.config
        if not (self._group_id and config["enable.auto.commit"]):
            return
        now = self.core.clock.now_ms()
        interval: int = config["auto.commit.interval.ms"]
        left = self._committed_ms + interval - now
        # The application may process one chunk for long: it is reminded to poll when the interval is over.
        self._reminder.set(now + (left if left > 0 else max(interval, 1)))
        if left > 0 or (self._committing is not None and not self._committing.done):
            return
        self._committed_ms = now
        offsets = self.consumed()
        commit = self._commit_once(offsets, self._topic_ids(offsets))
        self._committing = self.core.scheduler.background(commit, "automatic commit")

    async def _commit_once(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], topic_ids: dict[TopicPartition, bytes]
    ) -> None:
        """One attempt: repeated later, it would overwrite what was committed meanwhile, here or by the next owner of a
        partition. The next interval commits the positions of then."""
        limit: int = self.core.config["request.timeout.ms"]
        committing = self._commits.commit_positions_once(offsets, self.group_metadata, topic_ids=topic_ids)
        attempt = self.core.scheduler.spawn(committing, "automatic commit")
        try:
            if not await self.core.scheduler.within(attempt, limit):
                raise RequestTimedOut(f"commit offsets of group {self._group_id}: no answer within {limit} ms")
            attempt.result()
        except KafkaError as error:
            if error.retriable or lost_membership(error):
                logger.info("automatic commit: %s", error)
            else:
                logger.warning("automatic commit: %s", error)
        finally:
            attempt.cancel()

    # -- the end --

    async def offsets_at(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """Offsets by time."""
        return await list_offsets(self.core, {TopicPartition(*part): moment for part, moment in moments.items()})

    async def close(self, timeout_ms: int) -> None:
        """Commit (enable.auto.commit), leave the group, give up the connections."""
        if self._closed:
            return
        try:
            leaving = self.core.scheduler.spawn(self._leave(), "leave")
            if not await self.core.scheduler.within(leaving, timeout_ms):
                leaving.cancel()
        finally:
            self._closed = True
            self._fetcher.active = False
            self._reminder.cancel()
            self.core.close()

    async def _leave(self) -> None:
        if self._positions.states:
            await self._commit_before_revocation()
        if self._membership is not None:
            await self._membership.leave()
            self._membership = None
        self._handovers.clear()
        self._topics, self._pattern = [], None
        self._assigned_by_hand = False
        self._take_over([])
        self._drop_chunk()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalState("the consumer is closed")

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the consumer."""
        return {
            "bytes-consumed-total": self._fetcher.bytes,
            "fetch-total": self._fetcher.fetches,
            "assigned-partitions": len(self._positions.states),
            "connection-creation-total": self.core.network.opened_total,
        }


def whole_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Plain offsets as OffsetAndMetadata."""
    return {
        TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for partition, offset in offsets.items()
    }
