"""Core of a consumer, on which `ottla.Consumer` and `ottla.aio.Consumer` are built.

Strategy. Three activities run in the background on the core's thread: the membership (classic_member.py, consumer_member.py),
the lookup of positions (search.py), and the fetches (fetcher.py). The application's thread takes records from fetched chunks
(`take`, in reading.py) and involves the core only once a chunk. Without a chunk, or when `attention` is set, it calls `wait`.
Rebalance listeners run on the application's thread: `wait` returns them as a Handover.

    take() --> a record of the open chunk ------------------------------------------------> application
                 | none left, or `attention`
                 v
               wait() --> a chunk arrived | a listener to run (Handover) | timeout | an error

The position of a partition is the offset of the record that `take` returns next. A commit of the positions marks all records
returned before as processed.

One file of more than 600 lines: the calls below work on the same assignment, positions and background tasks.
"""

import operator
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, SupportsIndex

from ottla.client.consumer.classic_member import ClassicMembership
from ottla.client.consumer.commits import Commits, OnCommit, is_membership_lost
from ottla.client.consumer.consumer_member import ConsumerMembership
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.positions import UNKNOWN, ConsumerPositions, PartitionState
from ottla.client.consumer.reading import ChunkReader
from ottla.client.consumer.rebalance import AssignmentChange, Handover, Listeners, Membership
from ottla.client.consumer.search import PositionSearch
from ottla.client.consumer.validation import EpochEnd
from ottla.client.core import Core, logger
from ottla.client.errors import (
    IllegalState,
    KafkaError,
    LogTruncation,
    NoOffset,
    NotAuthorized,
    OffsetOutOfRange,
    RequestTimedOut,
)
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.metrics import MetricValues, Sensor
from ottla.client.offsets import list_offsets
from ottla.client.topics import EARLIEST, FoundOffset, TopicPartition
from ottla.protocol.errors import OFFSET_OUT_OF_RANGE
from ottla.protocol.schema import ZERO_UUID
from ottla.tasks.alarm import Alarm
from ottla.tasks.deferred import Deferred
from ottla.tasks.scheduler import Task
from ottla.tasks.signal import Signal

_SECONDS_AN_HOUR: Final = 3600
_NO_GROUP: Final = "this needs the config group.id"


class ConsumerCore(ChunkReader):
    """Core of one consumer. Methods defined here run on the core's thread, those of `ChunkReader` on the application's."""

    def __init__(self, core: Core, on_commit: OnCommit | None = None) -> None:
        config = core.config
        self.core = core
        core.metadata.operation = "Read"
        positions = ConsumerPositions()
        super().__init__(
            positions, Fetcher(core, positions, self._on_out_of_range, self._on_truncated, self._on_recreated)
        )
        self.listeners = Listeners()
        self._group_id: str = config["group.id"]
        self._commits = Commits(core, self._group_id, on_commit)
        self._membership: Membership | None = None
        self._handovers: deque[Handover] = deque()
        self._truncations: deque[tuple[PartitionState, int, EpochEnd]] = deque()
        self._woken = self._fetcher.arrived
        """Signal that ends a wait: a chunk, an error, a listener to run, or the end of a change of partitions."""
        self._timeout = Alarm(self._woken.happen, core.clock, core.scheduler)
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
        self._rejoins = False
        """True if the next poll restarts the membership."""
        self._reminder = Alarm(self._wake_application, core.clock, core.scheduler)
        self._waiting = False
        """True while the application is in `wait`."""
        self._entered = Signal(core.scheduler)
        self._pending_changes = 0
        """Number of partition changes that wait for the application to be in `wait`, or are applied there."""
        self._rebalances = Sensor()
        """Latencies of rebalances in ms."""
        self._idle = Sensor()
        """Share of `wait` in the time since the last one, which is the application's."""
        self._waited_ms = -1
        """Time at which the last `wait` ended."""
        core.observe(self.last_metrics, self._member_id)

    # -- subscriptions and assignments --

    def subscribe(self, topics: Iterable[str], pattern: str | None, listeners: Listeners) -> None:
        """Read topics as a member of the group, in place of the previous subscription or assignment."""
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
        """Read these partitions, without group membership."""
        self._check_open()
        if self._membership is not None:
            raise IllegalState("subscribe was called before: unsubscribe first")
        self._assigned_by_hand = True
        self._take_over([TopicPartition.of(partition) for partition in partitions])

    async def unsubscribe(self) -> None:
        """Drop the subscription and assignment, and leave the group."""
        self._check_open()
        await self._leave()

    @property
    def subscription(self) -> list[str]:
        """Return the topics subscribed by name."""
        return list(self._topics)

    @property
    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return sorted(self._positions.states)

    @property
    def group_metadata(self) -> GroupMetadata:
        """Return the ids and generation of this member, for a producer's transaction."""
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

    # -- calls of the membership --

    async def apply_change(
        self, change: AssignmentChange, partitions: list[TopicPartition], owned: list[TopicPartition]
    ) -> None:
        """Apply a change of partitions while the application is inside `wait`, so that none changes during processing."""
        self._pending_changes += 1
        try:
            await self._until_waiting()
            if change is AssignmentChange.REVOKED:
                await self._commit_before_revocation()
                await self._until_waiting()  # the application's `poll` may have timed out meanwhile
            if change is AssignmentChange.ASSIGNED:
                self._take_over(owned)
            listener = self.listeners.of(change)
            if listener is not None and not self._closed:
                done: Deferred[None] = Deferred(self.core.scheduler)
                self._handovers.append(Handover(change, partitions, listener, done))
                self._wake_application()
                await done
            if change is not AssignmentChange.ASSIGNED:
                self._take_over(owned)
        finally:
            self._pending_changes -= 1
            self._woken.happen()

    def on_rebalanced(self, latency_ms: int) -> None:
        """See `MemberConsumer.on_rebalanced`."""
        self._rebalances.record(latency_ms, self.core.clock.now_ms())

    def on_failed(self) -> None:
        """See `MemberConsumer.on_failed`."""
        self._wake_application()

    async def _until_waiting(self) -> None:
        """Wait until the application is in `wait`; it stays there until the caller awaits again."""
        while not self._waiting and not self._closed:
            entered = self._entered.wait()
            self._wake_application()
            await entered

    async def _commit_before_revocation(self) -> None:
        """Commit the positions of partitions before they are revoked."""
        if self._committing is not None:
            self._committing.cancel()  # a commit of older positions
            self._committing = None
        if self._group_id and self.core.config["enable.auto.commit"]:
            offsets = self.positions_to_commit()
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
        """Wait for records (True), a listener to run (Handover), or the timeout (False). Raises KafkaError."""
        self._check_open()
        if self._membership is None and not self._positions.states:
            raise IllegalState("poll comes after subscribe or assign")
        begun_ms = self.core.clock.now_ms()
        self.attention = False
        self._waiting = True
        self._entered.happen()
        self.polls += 1
        if self._rejoins and self._membership is not None:
            self._rejoins = False
            self._membership.subscribe(self._topics, self._pattern)
        try:
            self._commit_now_and_then()
            return await self._wait(self.core.clock.now_ms() + timeout_ms)
        finally:
            self._waiting = False
            self._measure_wait(begun_ms)
            if self._pending_changes:
                self.attention = True  # no records are returned during the change

    def _measure_wait(self, begun_ms: int) -> None:
        now_ms = self.core.clock.now_ms()
        elapsed_ms = now_ms - self._waited_ms
        if self._waited_ms >= 0 and elapsed_ms > 0:
            self._idle.record((now_ms - begun_ms) / elapsed_ms, now_ms)
        self._waited_ms = now_ms

    async def _wait(self, deadline: int) -> Handover | bool:
        while True:
            woken = self._woken.wait()
            if self._handovers:
                return self._handovers.popleft()
            left = deadline - self.core.clock.now_ms()
            if self._pending_changes:
                # Yield at least once, even after the timeout: calls with timeout 0 would otherwise block a rebalance for good.
                await self.core.scheduler.within(woken, max(left, 0))
                if left <= 0 and self._pending_changes and not self._handovers:
                    return False
                continue
            self._settle_truncations()
            self._raise_pending_error()
            if self._fetcher.chunks or self._next < len(self._records):
                return True
            if left <= 0:
                return False
            self._search.begin()
            self._fetcher.pump()
            self.core.metadata.watch(self._topics, self._wake_application)
            self._timeout.set(deadline)  # usually a timer of an earlier call is running, which is sooner
            await woken

    def _raise_pending_error(self) -> None:
        failure: BaseException | None = self._fetcher.failure
        self._fetcher.failure = None
        if failure is None and self._membership is not None:
            failure = self._membership.error
            # Permissions may be granted before the next poll, which joins again, as Java's consumer does.
            self._rejoins = isinstance(failure, NotAuthorized)
        if failure is None and self._pattern is None:
            failure = self.core.metadata.denial(self._topics)
        if isinstance(failure, NoOffset) and not self._positions.lacking():
            failure = None  # no position is missing any more
        if failure is not None:
            raise failure

    def _wake_application(self) -> None:
        self.attention = True
        self._woken.happen()

    # -- positions --

    def _not_found(self, error: KafkaError) -> None:
        self._fetcher.failure = error
        self._wake_application()

    def _on_out_of_range(self, state: PartitionState, error: OffsetOutOfRange) -> None:
        """Handle an offset out of range: reset the position, or raise the error (auto.offset.reset=none)."""
        try:
            self._search.reset_by_policy(state, error)
        except KafkaError as refused:
            self._fetcher.failure = refused
            state.fetch_position = UNKNOWN
        else:
            logger.info("%s: going on by auto.offset.reset", error)
            self._search.begin()

    def _on_recreated(self, state: PartitionState) -> None:
        """Handle the recreation of a topic: reset the position, as all records of the new topic are unread."""
        what = f"topic {state.partition.topic} was deleted and created again"
        if self.core.config["auto.offset.reset"] == "none":
            state.fetch_position = UNKNOWN
            self._fetcher.failure = OffsetOutOfRange(f"{state.partition}: {what}: seek to go on", OFFSET_OUT_OF_RANGE)
            self._wake_application()
            return
        logger.warning("%s: %s: going on at its beginning", state.partition, what)
        # The chunks of the old position are stale now. They stay in the queue: the application's thread may be taking one.
        state.look_up(EARLIEST)
        self._search.begin()

    def _on_truncated(self, state: PartitionState, end: EpochEnd) -> None:
        """Record a log truncation. The next `wait` raises an error or changes the position."""
        self._truncations.append((state, state.version, end))
        self._wake_application()

    def _settle_truncations(self) -> None:
        while self._truncations:
            state, version, end = self._truncations.popleft()
            if state.version == version and self._positions.states.get(state.partition) is state:
                self._note_positions()
                self._truncate(state, end)

    def _truncate(self, state: PartitionState, end: EpochEnd) -> None:
        """Set the position to the end of the records that the leader still has (KIP-320)."""
        known = end.epoch >= 0
        if known and end.offset >= state.position:
            # Only prefetched records were truncated.
            self._prepare_move(state.partition).seek(state.position, state.epoch_before(state.position))
        elif self.core.config["auto.offset.reset"] == "none":
            error = LogTruncation(
                f"{state.partition}: records before the position {state.position} are not in the log any more"
                + (f": it diverges at offset {end.offset}" if known else ""),
                OFFSET_OUT_OF_RANGE,
            )
            error.position, error.diverging = state.position, end.offset if known else -1
            self._fetcher.failure = error
        elif known:
            logger.warning("%s: the log was truncated to offset %d: going on there", state.partition, end.offset)
            self._prepare_move(state.partition).seek(end.offset, end.epoch)
        else:
            logger.warning("%s: the log was truncated: going on by auto.offset.reset", state.partition)
            self._search.reset_by_policy(self._prepare_move(state.partition), None)
        self._fetcher.drop_stale()

    def seek(self, partition: TopicPartition, offset: SupportsIndex | OffsetAndMetadata) -> None:
        """Set the position to an offset; one with a leader epoch is validated first (KIP-320)."""
        where = OffsetAndMetadata.of(offset)
        self._prepare_move(partition).seek(where.offset, where.leader_epoch)
        self._fetcher.drop_stale()
        self._fetcher.pump()

    def seek_to(self, partitions: Iterable[TopicPartition], moment: int) -> None:
        """Set positions to EARLIEST or LATEST."""
        for partition in list(partitions) or self.assignment:
            self._prepare_move(partition).look_up(moment)
        self._fetcher.drop_stale()
        self._search.begin()

    async def seek_to_committed(self, partitions: Iterable[TopicPartition], timeout_ms: int | None) -> None:
        """Set positions to the committed offsets; by auto.offset.reset where the group has none."""
        chosen = [TopicPartition.of(partition) for partition in partitions] or self.assignment
        committed = await self.committed(chosen, timeout_ms)
        for partition in chosen:
            if partition not in self._positions.states:
                continue  # revoked meanwhile
            if partition in committed:
                self.seek(partition, committed[partition])
            else:
                self._search.reset_by_policy(self._prepare_move(partition), None)
        self._fetcher.drop_stale()
        self._search.begin()

    def enforce_rebalance(self) -> None:
        """Join the group again at the next `wait` (KIP-568)."""
        if self._membership is None:
            raise IllegalState("enforce_rebalance comes after subscribe")
        self._rejoins = True

    def _prepare_move(self, partition: TopicPartition) -> PartitionState:
        state = self._state(partition)
        if self._chunk is not None and self._chunk.state is state:
            self._drop_chunk()
        return state

    def _state(self, partition: TopicPartition) -> PartitionState:
        plain = TopicPartition.of(partition)
        state = self._positions.states.get(plain)
        if state is None:
            raise IllegalState(f"{plain} is not assigned to this consumer")
        return state

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed; they stay assigned."""
        self._note_positions()
        for partition in partitions:
            state = self._state(partition)
            state.paused = True
            if state.position != UNKNOWN:
                self._prepare_move(partition).seek(state.position, state.epoch_before(state.position))
        self._fetcher.drop_stale()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume paused partitions."""
        for partition in partitions:
            self._state(partition).paused = False
        self._fetcher.pump()

    @property
    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        return sorted(part for part, state in self._positions.states.items() if state.paused)

    async def position(self, partition: TopicPartition, timeout_ms: int) -> int:
        """Return the offset of the next record. Raises RequestTimedOut if it is not known in time."""
        state = self._state(partition)

        async def attempt() -> int:
            self._note_positions()
            while state.position == UNKNOWN:
                self._search.begin()
                self._raise_pending_error()
                await self.core.scheduler.sleep(5)
            return state.position

        return await self.core.metadata.retrying(f"position in {state.partition}", attempt, timeout_ms)

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records up to the end visible to readers; None before a fetch has returned the end."""
        self._note_positions()
        return self._lag_of(self._state(partition))

    def _lag_of(self, state: PartitionState) -> int | None:
        end = state.last_stable_offset if self.core.config.read_committed else state.high_watermark
        if end == UNKNOWN or state.position == UNKNOWN:
            return None
        return max(end - state.position, 0)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the offset behind the committed records, of the last fetch; None before one."""
        end = self._state(partition).high_watermark
        return None if end == UNKNOWN else end

    # -- commits --

    def positions_to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions of all partitions that have one."""
        self._note_positions()
        return {
            part: OffsetAndMetadata(state.position, "", state.epoch_before(state.position))
            for part, state in self._positions.known().items()
        }

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | SupportsIndex] | None, timeout_ms: int | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit offsets, by default the positions; return the committed offsets. Raises FencedError and other KafkaErrors."""
        if not self._group_id:
            raise IllegalState(f"commit: {_NO_GROUP}")
        positions = self.positions_to_commit() if offsets is None else whole_offsets(offsets)
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
        requested = [TopicPartition.of(partition) for partition in partitions]
        return await self._commits.fetch(requested, lambda: GroupMetadata(self._group_id), timeout_ms)

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bytes]:
        """Return the known topic ids of the positions."""
        states = self._positions.states
        ids = {part: states[part].topic_id for part in partitions if part in states}
        return {part: topic_id for part, topic_id in ids.items() if topic_id is not None and topic_id != ZERO_UUID}

    def _commit_now_and_then(self) -> None:
        """Commit the positions in the background if auto.commit.interval.ms has passed (enable.auto.commit)."""
        config = self.core.config
        if not (self._group_id and config["enable.auto.commit"]):
            return
        now = self.core.clock.now_ms()
        interval: int = config["auto.commit.interval.ms"]
        left = self._committed_ms + interval - now
        # The application may process one chunk for a long time: set `attention` when the interval is over.
        self._reminder.set(now + (left if left > 0 else max(interval, 1)))
        if left > 0 or (self._committing is not None and not self._committing.done):
            return
        self._committed_ms = now
        offsets = self.positions_to_commit()
        commit = self._commit_once(offsets, self._topic_ids(offsets))
        self._committing = self.core.scheduler.background(commit, "automatic commit")

    async def _commit_once(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], topic_ids: dict[TopicPartition, bytes]
    ) -> None:
        """Commit offsets without retries: a late retry could overwrite newer commits, of this consumer or of the next owner of
        a partition. The next interval commits newer positions anyway."""
        limit: int = self.core.config["request.timeout.ms"]
        committing = self._commits.commit_positions_once(offsets, self.group_metadata, topic_ids=topic_ids)
        attempt = self.core.scheduler.start(committing, "automatic commit")
        try:
            if not await self.core.scheduler.within(attempt, limit):
                raise RequestTimedOut(f"commit offsets of group {self._group_id}: no answer within {limit} ms")
            attempt.result()
        except KafkaError as error:
            if error.retriable or is_membership_lost(error):
                logger.info("automatic commit: %s", error)
            else:
                logger.warning("automatic commit: %s", error)
        finally:
            attempt.cancel()

    # -- close --

    async def offsets_at(self, moments: Mapping[TopicPartition, SupportsIndex]) -> dict[TopicPartition, FoundOffset]:
        """Return offsets by timestamp."""
        plain = {TopicPartition.of(part): operator.index(moment) for part, moment in moments.items()}
        return await list_offsets(self.core, plain)

    async def close(self, timeout_ms: int) -> None:
        """Commit the positions (enable.auto.commit), leave the group, close the connections."""
        if self._closed:
            return
        try:
            pushing = self.core.push_last(timeout_ms)
            leaving = self.core.scheduler.start(self._leave(), "leave")
            if not await self.core.scheduler.within(leaving, timeout_ms):
                leaving.cancel()
            await pushing
        finally:
            self._closed = True
            self._fetcher.close()
            self._reminder.cancel()
            self._timeout.cancel()
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

    def metrics(self) -> MetricValues:
        """Return the metrics of the consumer. The application's thread does not read meanwhile."""
        self._note_positions()
        return self.last_metrics()

    def _member_id(self) -> str:
        return self._membership.metadata.member_id if self._membership is not None else ""

    def last_metrics(self) -> MetricValues:
        """Return the metrics of the consumer; the lag is that of the positions that were noted last. The application's thread
        may read meanwhile."""
        client_id, now_ms = str(self.core.config["client.id"]), self.core.clock.now_ms()
        values = self._fetcher.sensors.values(client_id, now_ms)
        tags = (("client-id", client_id),)
        lags = {partition: self._lag_of(state) for partition, state in self._positions.states.items()}
        known = {partition: lag for partition, lag in lags.items() if lag is not None}
        fetching = "consumer-fetch-manager-metrics"
        values.put(fetching, tags, [("records-lag-max", max(known.values(), default=float("nan")))])
        for (topic, index), lag in known.items():
            of_partition = (*tags, ("partition", str(index)), ("topic", topic))
            values.put(fetching, of_partition, [("records-lag", lag)])
        latency = self._commits.latency
        values.put(
            "consumer-coordinator-metrics",
            tags,
            [
                ("assigned-partitions", len(self._positions.states)),
                *latency.events("commit", now_ms),
                *latency.spread("commit-latency", now_ms),
                *self._rebalances.spread("rebalance-latency", now_ms),
                ("rebalance-latency-total", self._rebalances.total),
                ("rebalance-total", float(self._rebalances.count)),
                ("rebalance-rate-per-hour", self._rebalances.event_rate(now_ms) * _SECONDS_AN_HOUR),
            ],
        )
        idle = ("poll-idle-ratio-avg", self._idle.average(now_ms))
        values.put("consumer-metrics", tags, [*self.core.connection_metrics(), idle])
        return values


def whole_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | SupportsIndex],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert plain offsets to OffsetAndMetadata."""
    return {TopicPartition.of(partition): OffsetAndMetadata.of(offset) for partition, offset in offsets.items()}
