"""Fetcher: keeps one fetch open at every node that leads partitions of the consumer, within bounded memory.

Strategy. One fetch is open at each node. When its response arrives, partitions with room are requested again at once, so
that chunks are buffered before the application polls. A partition has room while it has less than max.partition.fetch.bytes
buffered. Only an application that waits for few records is served first: the fetch that follows is sent by its next poll, at
the latest after NEXT_FETCH_MS. A fetch contains only the changes since the previous one (fetch sessions, KIP-227):

    session 0, epoch 0 --> all partitions; the response returns the session id
    session S, epoch n --> partitions with a changed position, new partitions, and forgotten ones

A session holds partitions by topic id: a partition of a recreated topic is forgotten under the old id and added under the new
one, even if its position is the same. A row for a partition that was not requested shows that client and broker disagree
about the session: the next fetch begins a new one.

After a change of the leader epoch a partition is not fetched until its position is validated with the new leader
(validation.py). Each fetch contains the epoch of the last fetched record, so that the leader can detect truncation as well.

Errors of a partition are handled by code: stale leaders are looked up again, an offset out of range is reset, all others are
raised in the application (`failure`).
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ottla.client.consumer.chunks import Chunk, chunk_of
from ottla.client.consumer.positions import UNKNOWN, ConsumerPositions, PartitionState
from ottla.client.consumer.validation import EpochEnd, Question, epoch_ends
from ottla.client.core import Core
from ottla.client.errors import (
    CorruptBatch,
    KafkaError,
    NotAuthorized,
    OffsetOutOfRange,
    Permission,
    RequestTimedOut,
    error_for,
)
from ottla.client.metrics import ConsumerSensors
from ottla.client.topics import TopicInfo, TopicPartition
from ottla.protocol import errors as table
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from ottla.protocol.schema import ZERO_UUID
from ottla.records.batch import scan
from ottla.tasks.alarm import Alarm
from ottla.tasks.signal import Signal

_PURPOSE: Final = "fetch"
_NEWEST_WITHOUT_IDS: Final = 12
_OLDEST_WITH_IDS: Final = 13
_OLDEST_WITH_LAST_EPOCH: Final = 12
_FULL: Final = 0
_LONGEST_BACKOFF: Final = 20
"""Number of failures after which a backoff is retry.backoff.max.ms."""
_ANSWER_WITHIN_MS: Final = 3000
"""Time for a node to respond before its leaders are looked up again; the request itself has request.timeout.ms."""
NEXT_FETCH_MS: Final = 1
FEW_BYTES: Final = 16_384
"""Size of the buffered chunks of a fetch below which they are few records."""
_SESSION_CODES: Final = frozenset(
    {
        table.FETCH_SESSION_ID_NOT_FOUND,
        table.INVALID_FETCH_SESSION_EPOCH,
        table.FETCH_SESSION_TOPIC_ID_ERROR,
        table.INCONSISTENT_TOPIC_ID,
    }
)

Asked = tuple[bytes, int, int, int]
"""State of a partition in a fetch session: (topic id, offset, leader epoch, epoch of the last fetched record)."""
Truncated = Callable[[PartitionState, EpochEnd], None]


class _NodeFetch:
    """State of the fetches to one node.

    asked         partitions of the last fetch
    answer_by_ms  time at which their leaders are looked up, if the node has not responded by then; 0 without a fetch in flight
    """

    __slots__ = ("answer_by_ms", "asked", "busy", "epoch", "not_before", "session", "validating")

    def __init__(self) -> None:
        self.answer_by_ms = 0
        self.busy = False
        self.validating = 0
        self.session = 0
        self.epoch = _FULL
        self.asked: dict[TopicPartition, Asked] = {}
        self.not_before = 0

    def forget(self) -> None:
        """Begin a new session."""
        self.session, self.epoch = 0, _FULL
        self.asked.clear()


class Fetcher:
    """Fetcher of one consumer.

    chunks           fetched chunks, oldest first; the application's thread takes from the left
    arrived          signals a new chunk or an error in `failure`; the consumer signals by it what else ends a wait
    failure          error to raise in the application
    on_out_of_range  callback for an offset out of range: (partition, error)
    on_truncated     callback for a truncated log: (partition, end of the records that remain)
    on_recreated     callback for a partition whose topic was deleted and recreated
    """

    def __init__(
        self,
        core: Core,
        positions: ConsumerPositions,
        on_out_of_range: Callable[[PartitionState, OffsetOutOfRange], None],
        on_truncated: Truncated,
        on_recreated: Callable[[PartitionState], None],
    ) -> None:
        self.chunks: deque[Chunk] = deque()
        self.arrived = Signal(core.scheduler)
        self.failure: KafkaError | None = None
        self.active = True
        self.sensors = ConsumerSensors()
        self._core = core
        self._config = core.config.by_name
        self._read_committed = core.config.read_committed
        self._positions = positions
        self._on_out_of_range = on_out_of_range
        self._on_truncated = on_truncated
        self._on_recreated = on_recreated
        self._nodes: dict[int, _NodeFetch] = {}
        self._looking_up: set[str] = set()
        self._next_fetch = Alarm(self.pump, core.clock, core.scheduler)
        self._overdue = Alarm(self._look_for_leaders, core.clock, core.scheduler)

    def close(self) -> None:
        """Stop fetching."""
        self.active = False
        self._next_fetch.cancel()
        self._overdue.cancel()

    def pump(self) -> None:
        """Send fetches for all partitions that have room and no fetch in flight."""
        if not self.active:
            return
        now = self._core.clock.now_ms()
        by_node: dict[int, dict[PartitionState, TopicInfo]] = {}
        doubtful: dict[int, dict[PartitionState, Question]] = {}
        unavailable = {
            node for node, known in self._nodes.items() if known.busy or known.validating or known.not_before > now
        }
        infos: dict[str, TopicInfo] = {}
        largest = self._config["max.partition.fetch.bytes"]
        # This loop runs several times for each response, over all partitions: it calls functions only for those that changed.
        for state in list(self._positions.states.values()):
            if (
                state.fetch_position == UNKNOWN
                or state.paused
                or state.validating
                or state.not_before > now
                or state.buffered >= largest
            ):
                continue
            topic, number = state.partition
            info = infos.get(topic) or self._core.metadata.known(topic)
            if info is None:
                self._look_up(topic)
                continue
            infos[topic] = info
            if state.fetch_metadata is info:
                continue  # a fetch is in flight, and nothing is known that asks for another one
            if info.id != state.topic_id and self._is_recreated(state, info):
                continue
            question = None
            if info.epochs.get(number, -1) != state.valid_epoch:
                question = self._question(state, info)
                if question is not None:
                    state.preferred = None
            node = info.leaders.get(number, -1)
            if node < 0 or state.preferred is not None:
                node = self._node_of(state, info, now)
                if node < 0:
                    infos.pop(topic, None)  # it is stale
                    continue
            if question is not None:
                doubtful.setdefault(node, {})[state] = question
            elif node not in unavailable:
                by_node.setdefault(node, {})[state] = info
        self._send(by_node, doubtful)

    def _send(
        self, by_node: dict[int, dict[PartitionState, TopicInfo]], doubtful: dict[int, dict[PartitionState, Question]]
    ) -> None:
        """Begin to validate the doubtful positions, and to fetch from nodes without a fetch in flight."""
        for node, questions in doubtful.items():
            for state in questions:
                state.validating = True
            known = self._nodes.setdefault(node, _NodeFetch())
            known.validating += 1
            self._core.scheduler.background(self._validate(node, known, questions), "validation of positions")
        for node, states in by_node.items():
            known = self._nodes.setdefault(node, _NodeFetch())
            # An open fetch may wait for records, and would delay partitions that are validated meanwhile.
            if not known.busy and not known.validating:
                known.busy = True
                self._core.scheduler.background(self._fetch(node, known, states), "fetch")

    def _is_recreated(self, state: PartitionState, info: TopicInfo) -> bool:
        """Return True if the position belongs to a deleted topic; the consumer is notified then."""
        before, state.topic_id = state.topic_id, info.id
        self._positions.topic_ids[state.partition] = info.id
        if before is None or ZERO_UUID in (before, info.id):
            return False
        self._on_recreated(state)
        return True

    def _question(self, state: PartitionState, info: TopicInfo) -> Question | None:
        """Return the epoch request that validates the position with the leader; None if it needs no validation."""
        leader_epoch = info.epochs.get(state.partition.partition, -1)
        if leader_epoch < 0 or leader_epoch == state.valid_epoch:
            return None
        read_epoch = state.epoch_before(state.fetch_position)
        if read_epoch < 0:
            state.valid_epoch = leader_epoch
            return None
        return Question(read_epoch, leader_epoch)

    async def _validate(self, node: int, known: _NodeFetch, questions: dict[PartitionState, Question]) -> None:
        sent = {state: (state.version, state.fetch_position) for state in questions}
        failed: KafkaError | None = None
        ends: dict[TopicPartition, EpochEnd | KafkaError] = {}
        asked = {state.partition: question for state, question in questions.items()}
        asking = self._core.scheduler.start(epoch_ends(self._core, node, asked), "validation")
        try:
            if await self._core.scheduler.within(asking, _ANSWER_WITHIN_MS):
                ends = asking.result()
            else:  # another node may lead by now
                failed = RequestTimedOut(f"node {node} did not say whether it has what was read")
        except KafkaError as error:
            failed = error
        finally:
            asking.cancel()
            known.validating -= 1
        for state, question in questions.items():
            state.validating = False
            if sent[state] != (state.version, state.fetch_position):
                continue
            end = failed or ends.get(state.partition)
            if isinstance(end, KafkaError):
                self._handle_error(state, end)
            elif end is None:
                state.valid_epoch = question.leader_epoch  # the broker is too old for validation
            else:
                self._judge_end(state, end)
                if state.fetch_position != UNKNOWN:
                    state.valid_epoch = question.leader_epoch
        self.arrived.happen()
        self.pump()

    def _judge_end(self, state: PartitionState, end: EpochEnd) -> None:
        if end.epoch < 0 or end.offset < state.fetch_position:
            state.fetch_position = UNKNOWN
            self._on_truncated(state, end)

    def _on_diverged(self, state: PartitionState, epoch: int, offset: int) -> None:
        """Handle a log that diverges from the fetched records: the common part ends at the end of the leader's `epoch`, or
        where the fetched records have a newer one."""
        newer = state.begin_after(epoch)
        state.fetch_position = UNKNOWN
        self._on_truncated(state, EpochEnd(-1, -1) if newer == UNKNOWN else EpochEnd(epoch, min(offset, newer)))

    def _handle_error(self, state: PartitionState, error: KafkaError) -> None:
        """Handle the error of one partition: retry later, or raise it in the application. A partition that was denied is both,
        as the permission may be granted meanwhile."""
        if error.retriable:
            state.preferred = None
            self._core.metadata.forget(state.partition.topic)
            self._later(state)
        elif isinstance(error, NotAuthorized):
            self.failure = error
            self._later(state, _LONGEST_BACKOFF)
        else:
            self.failure = error
            state.paused = True

    def _node_of(self, state: PartitionState, info: TopicInfo, now: int) -> int:
        if state.preferred is not None:
            node, until = state.preferred
            if until > now and node in self._core.network.brokers:
                return node
            state.preferred = None
        node = info.leaders.get(state.partition.partition, -1)
        if node < 0:
            self._core.metadata.forget(state.partition.topic)
            self._later(state)
        return node

    def _later(self, state: PartitionState, failures: int = 1) -> None:
        """Delay the next fetch of the partition by a backoff."""
        wait = self._core.metadata.backoff_ms(failures)
        state.not_before = self._core.clock.now_ms() + wait
        self._core.scheduler.call_later(wait, self.pump)

    def _look_up(self, topic: str) -> None:
        if topic in self._looking_up:
            return
        self._looking_up.add(topic)

        async def look_up() -> None:
            try:
                if not await self._has_metadata(topic):
                    await self._core.scheduler.sleep(self._core.metadata.backoff_ms(3))
            finally:
                self._looking_up.discard(topic)
            self.pump()

        self._core.scheduler.background(look_up(), f"topic {topic}")

    async def _has_metadata(self, topic: str) -> bool:
        """Request the metadata of a topic; return False if that failed."""
        try:
            await self._core.metadata.topic(
                topic,
                create=self._config["allow.auto.create.topics"],
                operation="Read",
                timeout_ms=self._config["request.timeout.ms"],
            )
        except KafkaError:
            return False
        return True

    # -- fetches --

    async def _fetch(self, node: int, known: _NodeFetch, states: dict[PartitionState, TopicInfo]) -> None:
        sent = {state: (state.version, state.fetch_position) for state in states}
        for state, info in states.items():
            state.fetch_metadata = info
        try:
            link = await self._core.network.ready(node, _PURPOSE)
            ids = {info.name: info.id for info in states.values()}
            newest = 32767 if ZERO_UUID not in ids.values() else _NEWEST_WITHOUT_IDS
            version = link.version(FetchRequest, newest)
            request = self._request(known, states, version)
            timeout_ms = self._config["request.timeout.ms"] + self._config["fetch.max.wait.ms"]
            sent_ms = self._core.clock.now_ms()
            self.sensors.fetches.record(1, sent_ms)
            self._await_answer(known, sent_ms)
            frame, answer = await link.request_positions(request, version, timeout_ms=timeout_ms)
            self._measure(answer, node, sent_ms)
            if answer.error_code != table.NONE:
                known.forget()
                if answer.error_code not in _SESSION_CODES:
                    raise error_for(answer.error_code, f"fetch from node {node}")
            else:
                if version >= 7:
                    self._next_epoch(known, answer)
                if not self._take(frame, answer, known, ids, sent):
                    self._begin_again(known)
        except KafkaError as error:
            if not error.retriable:
                self.failure = error
            for state, info in states.items():
                state.preferred = None
                self._core.metadata.forget(info.name)
            self._begin_again(known)
        finally:
            known.busy = False
            known.answer_by_ms = 0
            for state, info in states.items():
                if state.fetch_metadata is info:
                    state.fetch_metadata = None
        serves_first = self.arrived.is_awaited and sum(state.buffered for state in states) < FEW_BYTES
        self.arrived.happen()
        if serves_first:
            # Its thread takes the records while this one waits for the next event; sending here would keep it waiting.
            self._next_fetch.set(self._core.clock.now_ms() + NEXT_FETCH_MS)
        else:
            self.pump()

    def _measure(self, answer: Any, node: int, sent_ms: int) -> None:
        now_ms, sensors = self._core.clock.now_ms(), self.sensors
        sensors.latency.record(now_ms - sent_ms, now_ms)
        sensors.nodes.record(node, now_ms - sent_ms, now_ms)
        sensors.throttle.record(answer.throttle_time_ms, now_ms)
        regions = (row.records for topic in answer.responses for row in topic.partitions if row.records)
        size = sum(end - start for start, end in regions)
        if size:
            sensors.sizes.record(size, now_ms)

    def _begin_again(self, known: _NodeFetch) -> None:
        """Begin a new session after a backoff, so that a node that fails at once is not queried in a tight loop."""
        known.forget()
        wait = self._core.metadata.backoff_ms(1)
        known.not_before = self._core.clock.now_ms() + wait
        self._core.scheduler.call_later(wait, self.pump)

    def _await_answer(self, known: _NodeFetch, now_ms: int) -> None:
        known.answer_by_ms = now_ms + self._config["fetch.max.wait.ms"] + _ANSWER_WITHIN_MS
        self._overdue.set(known.answer_by_ms)

    def _look_for_leaders(self) -> None:
        """Refresh the metadata of overdue fetches, as a node that does not respond may have lost leadership. A late response is
        still used."""
        now_ms = self._core.clock.now_ms()
        for known in self._nodes.values():
            if not known.answer_by_ms:
                continue
            if known.answer_by_ms > now_ms:
                self._overdue.set(known.answer_by_ms)
                continue
            for topic in {partition.topic: None for partition in known.asked}:
                self._core.metadata.forget(topic)
            self._await_answer(known, now_ms)
        self.pump()

    def _request(self, known: _NodeFetch, states: dict[PartitionState, TopicInfo], version: int) -> FetchRequest:
        config = self._config
        requested: dict[TopicPartition, Asked] = {}
        topics: dict[str, FetchTopic] = {}
        is_full, before = known.epoch == _FULL, known.asked
        kept = 0
        for state, info in states.items():
            partition = state.partition
            epoch = info.epochs.get(partition.partition, -1)
            last = state.epoch_before(state.fetch_position)
            asked = requested[partition] = (info.id, state.fetch_position, epoch, last)
            former = before.get(partition)
            if former is not None and former[0] == info.id:
                kept += 1
            if former == asked and not is_full:
                continue
            topic = topics.setdefault(info.name, FetchTopic(topic=info.name, topic_id=info.id))
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=epoch,
                    fetch_offset=state.fetch_position,
                    last_fetched_epoch=last if version >= _OLDEST_WITH_LAST_EPOCH else -1,
                    partition_max_bytes=config["max.partition.fetch.bytes"],
                )
            )
        request = FetchRequest(
            max_wait_ms=config["fetch.max.wait.ms"],
            min_bytes=config["fetch.min.bytes"],
            max_bytes=config["fetch.max.bytes"],
            isolation_level=int(self._read_committed),
            session_id=known.session,
            session_epoch=known.epoch,
            topics=list(topics.values()),
            rack_id=config["client.rack"],
        )
        if version >= 7 and not is_full and kept < len(before):
            request.forgotten_topics_data = _forgotten(before, requested, by_id=version >= _OLDEST_WITH_IDS)
        known.asked = requested
        return request

    def _next_epoch(self, known: _NodeFetch, answer: Any) -> None:
        if answer.session_id == 0:
            known.session, known.epoch = 0, _FULL  # the broker keeps no session for us
        else:
            known.session = answer.session_id
            known.epoch = 1 if known.epoch >= 2**31 - 1 else known.epoch + 1

    # -- responses --

    def _take(
        self,
        frame: bytes,
        answer: Any,
        known: _NodeFetch,
        ids: dict[str, bytes],
        sent: dict[PartitionState, tuple[int, int]],
    ) -> bool:
        """Handle the rows of a response, whose records are (start, end) in `frame`. Return False if one is for a partition that
        was not requested.
        """
        complete = True
        names = {topic_id: name for name, topic_id in ids.items() if topic_id != ZERO_UUID}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                partition = TopicPartition(name, row.partition_index)
                if partition not in known.asked:
                    complete = False
                    continue
                state = self._positions.states.get(partition)
                # Otherwise the partition was revoked, or its position was changed after the request.
                if state is not None and sent.get(state) == (state.version, state.fetch_position):
                    self._take_row(state, frame, row)
        return complete

    def _take_row(self, state: PartitionState, frame: bytes, row: Any) -> None:
        position = state.fetch_position
        if row.error_code != table.NONE:
            self._take_error(state, row)
            return
        diverging = row.diverging_epoch
        if diverging.end_offset >= 0:
            self._on_diverged(state, diverging.epoch, diverging.end_offset)
            return
        state.high_watermark = row.high_watermark
        state.last_stable_offset = row.last_stable_offset
        state.log_start = row.log_start_offset
        if row.preferred_read_replica >= 0:
            state.preferred = (
                row.preferred_read_replica,
                self._core.clock.now_ms() + self._config["metadata.max.age.ms"],
            )
        try:
            chunk = chunk_of(state, frame, row, position, self._core.config)
        except CorruptBatch as damage:
            self.failure = damage
            state.fetch_position = UNKNOWN  # no further fetch until a seek
            return
        if chunk is not None:
            records = 0
            for header in scan(*chunk.fetched).batches:
                state.note_epoch(header.base_offset, header.leader_epoch)
                records += header.count
            state.fetch_position = chunk.next_offset
            state.buffered += chunk.size
            now_ms = self._core.clock.now_ms()
            self.sensors.bytes.record(chunk.size, now_ms)
            self.sensors.records.record(records, now_ms)
            self.chunks.append(chunk)

    def _take_error(self, state: PartitionState, row: Any) -> None:
        about = f"fetch of {state.partition} from offset {state.fetch_position}"
        if row.error_code != table.OFFSET_OUT_OF_RANGE:
            permission = Permission("Read", "topic", (state.partition.topic,))
            self._handle_error(state, error_for(row.error_code, about, None, permission))
        elif state.preferred is not None:
            state.preferred = None
        else:
            error = OffsetOutOfRange(f"{about}: the log has no such offset", row.error_code)
            error.log_start = row.log_start_offset
            self._on_out_of_range(state, error)

    def release_chunk(self, chunk: Chunk) -> None:
        """Release the buffer space of a chunk that the application has finished, and fetch more."""
        if not chunk.stale:
            chunk.state.buffered -= chunk.size
        self.pump()

    def drop_stale(self) -> None:
        """Drop stale chunks, and chunks of partitions that are no longer assigned."""
        states = self._positions.states
        kept = [chunk for chunk in self.chunks if not chunk.stale and states.get(chunk.state.partition) is chunk.state]
        self.chunks.clear()
        self.chunks.extend(kept)


def _forgotten(
    before: dict[TopicPartition, Asked], requested: dict[TopicPartition, Asked], *, by_id: bool
) -> list[ForgottenTopic]:
    """Return the partitions to remove from a session, under the ids by which they were added: those no longer fetched, and
    those whose topic id changed. By name (before version 13) the latter are replaced; removing them would lose them."""
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for partition, (topic_id, *_) in before.items():
        following = requested.get(partition)
        if following is None or (by_id and following[0] != topic_id):
            name = partition.topic
            topic = topics.setdefault((name, topic_id), ForgottenTopic(topic=name, topic_id=topic_id))
            topic.partitions.append(partition.partition)
    return list(topics.values())
