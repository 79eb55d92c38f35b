"""Reads the record batches of an offset range of a partition, without a consumer (for Spark executors and tools).

Strategy. A range is read by fetches without a session (KIP-227), one ahead of the reader: as soon as a response shows where
the next fetch begins, that one is sent. Batches are not decoded here; the reader's thread checks CRCs, leaves out aborted
batches and converts the rest to records or columns (`Chunk.batches`).

    core's thread   |-- fetch 1 --|-- fetch 2 --|-- fetch 3 --|
    reader's                       |-- 1 to columns --|-- 2 to columns --| ...
"""

from collections.abc import Mapping
from typing import Any, Final

from ottla.client.consumer.chunks import Batches, Chunk, chunk_of
from ottla.client.consumer.positions import PartitionState
from ottla.client.core import Core
from ottla.client.errors import (
    KafkaError,
    OffsetOutOfRange,
    Permission,
    RequestTimedOut,
    RetriableError,
    TopicRecreated,
    error_for,
)
from ottla.client.topics import TopicInfo, TopicPartition
from ottla.net.connection import Link
from ottla.protocol.connection import PositionalResponse
from ottla.protocol.errors import NONE, OFFSET_OUT_OF_RANGE
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.schema import ZERO_UUID
from ottla.tasks.scheduler import Task

_NEWEST_WITHOUT_IDS: Final = 12
_READING: Final = "range"
_WAITING: Final = "wait"


class RangeReading:
    """Reader of the offsets from `position` (inclusive) to `end` (exclusive) of one partition, chunk by chunk.

    topic_id    expected id of the topic, to detect a recreated topic; ZERO_UUID accepts any
    timeout_ms  time without records from the broker after which RequestTimedOut is raised
    """

    def __init__(
        self,
        core: Core,
        partition: TopicPartition,
        start: int,
        end: int,
        *,
        topic_id: bytes = ZERO_UUID,
        timeout_ms: int = 120_000,
    ) -> None:
        self.partition = partition
        self.position = start
        self.end = end
        self._core = core
        self._topic_id = topic_id
        self._timeout_ms = timeout_ms
        self._ahead: Task[Chunk] | None = None

    async def next(self) -> Chunk | None:
        """Return the next chunk; None at the end. The last batches of a chunk may go past `end`.

        A lost connection or a moved leader is retried from the current position. Raises OffsetOutOfRange (with
        `log_start`), UnknownTopic, CorruptBatch, NotAuthorized, BrokersUnreachable.
        """
        if self.position >= self.end:
            return None
        task = self._ahead or self._begin()
        self._ahead = None
        chunk = await task
        self.position = chunk.next_offset
        if self.position < self.end:
            self._ahead = self._begin()
        return chunk

    def close(self) -> None:
        """Cancel the fetch in flight."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None

    def _begin(self) -> Task[Chunk]:
        return self._core.scheduler.start(self._fetch(self.position), f"fetch of {self.partition}")

    async def _fetch(self, position: int) -> Chunk:
        """Fetch at a position, repeatedly until a response contains batches."""
        core, clock = self._core, self._core.clock
        begun = clock.now_ms()
        failures = 0
        while True:
            failed: KafkaError | None = None
            try:
                chunk = await self._attempt(position)
                if chunk is not None:
                    return chunk
            except KafkaError as error:
                if not error.retriable or isinstance(error, OffsetOutOfRange):
                    raise
                failed = error
            waited = clock.now_ms() - begun
            if waited >= self._timeout_ms:
                about = f"fetch of {self.partition} from offset {position}"
                if failed is None:
                    raise RequestTimedOut(f"{about}: no record there after {self._timeout_ms} ms")
                raise RequestTimedOut(f"{about}: nothing came in {waited} ms; last: {failed}", failed.code) from None
            if failed is not None:
                failures += 1
                core.metadata.forget(self.partition.topic)
                await core.scheduler.sleep(min(core.metadata.backoff_ms(failures), self._timeout_ms - waited))

    async def _attempt(self, position: int) -> Chunk | None:
        core, config = self._core, self._core.config
        info = await core.metadata.topic(self.partition.topic)
        if ZERO_UUID not in (self._topic_id, info.id) and info.id != self._topic_id:
            raise TopicRecreated(f"topic {info.name} was deleted and created again")
        link = await core.network.ready(core.metadata.leader_in(info, self.partition), _READING)
        frame, answer = await _fetch(
            core,
            link,
            {self.partition: (position, info)},
            max_wait_ms=config["fetch.max.wait.ms"],
            min_bytes=config["fetch.min.bytes"],
            partition_max_bytes=config["max.partition.fetch.bytes"],
        )
        about = f"fetch of {self.partition} from offset {position}"
        rows = [row for topic in answer.responses for row in topic.partitions]
        if len(rows) != 1 or rows[0].partition_index != self.partition.partition:
            raise RetriableError(f"{about}: the answer is about something else")
        chunk = _chunk(core, self.partition, frame, rows[0], position, about)
        if chunk is None and answer.throttle_time_ms == 0 and self._has_nothing(rows[0]):
            nothing = Batches(b"", 0, 0)
            return Chunk(PartitionState(self.partition), nothing, position, self.end, [], check_crcs=False)
        return chunk

    def _has_nothing(self, row: Any) -> bool:
        """Return True if an empty response means that the rest of the range is empty: its records were compacted away, and
        the records after it belong to an open transaction."""
        readable = row.last_stable_offset if self._core.config.read_committed else row.high_watermark
        return not _has_records(row) and readable >= self.end


def _has_records(row: Any) -> bool:
    return row.records is not None and row.records[0] < row.records[1]


def _chunk(core: Core, partition: TopicPartition, frame: bytes, row: Any, position: int, about: str) -> Chunk | None:
    if row.error_code == OFFSET_OUT_OF_RANGE:
        error = OffsetOutOfRange(f"{about}: the log has no such offset", row.error_code)
        error.log_start = row.log_start_offset
        raise error
    if row.error_code != NONE:
        raise error_for(row.error_code, about, None, Permission("Read", "topic", (partition.topic,)))
    chunk = chunk_of(PartitionState(partition), frame, row, position, core.config)
    return None if chunk is None or chunk.next_offset <= position else chunk


async def _fetch(
    core: Core,
    link: Link,
    positions: Mapping[TopicPartition, tuple[int, TopicInfo]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    partition_max_bytes: int,
) -> PositionalResponse:
    """Send one fetch without a session. Raises KafkaError for an error of the whole response."""
    config = core.config
    topics: dict[str, FetchTopic] = {}
    for part, (offset, info) in positions.items():
        topic = topics.setdefault(part.topic, FetchTopic(topic=part.topic, topic_id=info.id))
        topic.partitions.append(
            FetchPartition(
                partition=part.partition,
                current_leader_epoch=info.epochs.get(part.partition, -1),
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
            )
        )
    with_ids = all(info.id != ZERO_UUID for _, info in positions.values())
    version = link.version(FetchRequest, 32767 if with_ids else _NEWEST_WITHOUT_IDS)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=config["fetch.max.bytes"],
        isolation_level=int(config.read_committed),
        topics=list(topics.values()),
        rack_id=config["client.rack"],
    )
    limit = config["request.timeout.ms"] + max_wait_ms
    answer = await link.request_positions(request, version, timeout_ms=limit)
    if answer.fields.error_code != NONE:
        raise error_for(answer.fields.error_code, "fetch")
    return answer


async def _by_node(
    core: Core, positions: Mapping[TopicPartition, int]
) -> dict[int, dict[TopicPartition, tuple[int, TopicInfo]]]:
    groups: dict[int, dict[TopicPartition, tuple[int, TopicInfo]]] = {}
    for part, offset in positions.items():
        info = await core.metadata.topic(part.topic)
        groups.setdefault(core.metadata.leader_in(info, part), {})[part] = offset, info
    return groups


async def wait_for_records(core: Core, positions: Mapping[TopicPartition, int], wait_ms: int) -> bool:
    """Wait up to about `wait_ms` for records at or after these offsets. Return True if some may have arrived.

    Each leader gets one Fetch request, to which it responds when it has records or after `wait_ms`. A retriable error counts
    as "some may have arrived". Raises KafkaError for other errors.
    """

    async def look(node: int, parts: dict[TopicPartition, tuple[int, TopicInfo]]) -> bool:
        link = await core.network.ready(node, _WAITING)
        _, answer = await _fetch(core, link, parts, max_wait_ms=wait_ms, min_bytes=1, partition_max_bytes=1)
        return any(_has_records(row) or row.error_code for topic in answer.responses for row in topic.partitions)

    tasks: list[Task[bool]] = []
    try:
        groups = await _by_node(core, positions)
        if not groups:
            await core.scheduler.sleep(wait_ms)
            return False
        tasks = [core.scheduler.start(look(node, parts), "wait") for node, parts in groups.items()]
        while tasks:
            await core.scheduler.within(tasks[0], wait_ms + core.config["request.timeout.ms"], *tasks[1:])
            if any(task.done and task.result() for task in tasks):
                return True
            tasks = [task for task in tasks if not task.done]
        return False
    except KafkaError as error:
        if not error.retriable:
            raise
        core.metadata.forget()
        return True
    finally:
        for task in tasks:
            task.cancel()


async def bytes_per_offset(
    core: Core, positions: Mapping[TopicPartition, int], sample_bytes: int
) -> dict[TopicPartition, float]:
    """Return the bytes of log per offset, estimated from the first batches at each position; partitions without any are left
    out. Raises KafkaError."""

    async def look(node: int, parts: dict[TopicPartition, tuple[int, TopicInfo]]) -> dict[TopicPartition, float]:
        link = await core.network.ready(node, _WAITING)
        frame, answer = await _fetch(core, link, parts, max_wait_ms=0, min_bytes=0, partition_max_bytes=sample_bytes)
        names = {info.id: part.topic for part, (_, info) in parts.items()}
        sizes = {}
        for topic in answer.responses:
            for row in topic.partitions:
                part = TopicPartition(topic.topic or names.get(topic.topic_id, ""), row.partition_index)
                if row.error_code != NONE or part not in parts:
                    continue
                offset = parts[part][0]
                chunk = chunk_of(PartitionState(part), frame, row, offset, core.config)
                if chunk is not None and chunk.next_offset > offset:
                    sizes[part] = chunk.size / (chunk.next_offset - offset)
        return sizes

    groups = await _by_node(core, positions)
    answers = await core.scheduler.every([look(node, parts) for node, parts in groups.items()])
    return {part: size for answer in answers for part, size in answer.items()}
