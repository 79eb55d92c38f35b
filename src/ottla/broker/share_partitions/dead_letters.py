"""Dead letters (KIP-1191): a topic for the records that no member of a share group could process.

    group config  errors.deadletterqueue.topic.name                the topic; without it no dead letters are written
                  errors.deadletterqueue.copy.record.enable        with keys and values, not only with their origin
    topic config  errors.deadletterqueue.group.enable              must be true
    broker config errors.deadletterqueue.topic.name.prefix         the topic's name must begin with it
                  errors.deadletterqueue.auto.create.topics.enable a missing topic is created

A dead letter goes to the partition with the number of its record's partition, modulo the number of partitions. Its headers
name its origin: `__dlq.errors.topic`, `.partition`, `.offset`, `.group`, `.delivery.count` and, when it is known, `.message`;
all are texts. The record's own headers are not kept, and the timestamp is the time of archiving.

Writes that fail are retried a few times. Records that cannot be written at all are logged and archived all the same, as in
Kafka.
"""

import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.broker.cluster.other_brokers import OtherBrokers
from ottla.broker.config import BrokerConfig
from ottla.broker.requests.delayed import DelayedCommit, Uncommitted
from ottla.coordinators.share.window import DeadLetters
from ottla.environment import Clock
from ottla.log import reading
from ottla.log.log import OffsetNotInLog, StorageError
from ottla.metadata.configs import group_configs, topic_configs
from ottla.metadata.configs.alteration import GROUP
from ottla.metadata.image import TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.plans.topics import RequestedTopic
from ottla.metadata.refusal import ChangeResult
from ottla.protocol.errors import (
    INVALID_RECORD,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_ALREADY_EXISTS,
    name_of,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.records.batch import build, records_of
from ottla.records.errors import CorruptRecords
from ottla.records.record import Header, Record
from ottla.replication.replicas import Replicas
from ottla.tasks.deferred import Deferred, awaitable
from ottla.tasks.scheduler import Scheduler

if TYPE_CHECKING:
    from ottla.log.log import Log
    from ottla.replication.partition import Partition

_logger = logging.getLogger("ottla.broker")
_ENABLED: Final = "errors.deadletterqueue.group.enable"
_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
_AUTO_CREATE: Final = "errors.deadletterqueue.auto.create.topics.enable"
_ATTEMPTS: Final = 5
_RETRY_MS: Final = 1000
_READ_BYTES: Final = 1 << 20
_COMMIT_TIMEOUT_MS: Final = 30_000
_ROOM_FOR_A_HEADER: Final = 200
"""Bytes reserved for a batch header, and for a record's fields beside key, value and headers."""


class _NotWritten(Exception):
    """Failed attempt to write dead letters: the reason.

    is_final  True if another attempt cannot succeed
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class _Letters(NamedTuple):
    """Dead letters that are being written: records of `source`."""

    group_id: str
    source: "Partition"
    letters: DeadLetters


class DeadLetterWriter:
    """Writer of the dead letters of this broker's share partitions.

    config        returns the broker's configs in force
    create_topic  creates a dead-letter topic
    """

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        tasks: Scheduler,
        metadata: Metadata,
        replicas: Replicas,
        create_topic: Callable[[RequestedTopic], Coroutine[Deferred[Any], Any, ChangeResult]],
        peers: OtherBrokers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._tasks = tasks
        self._metadata = metadata
        self._replicas = replicas
        self._create_topic = create_topic
        self._peers = peers

    async def write(self, group_id: str, source: "Partition", letters: DeadLetters) -> None:
        """Write `letters`, records of `source`; return when they are committed, or when they cannot be written."""
        reason: object = None
        for attempts_left in range(_ATTEMPTS - 1, -1, -1):
            try:
                await self._attempt(_Letters(group_id, source, letters))
            except (_NotWritten, StorageError, OSError) as cause:
                reason = cause
                if not attempts_left or (isinstance(cause, _NotWritten) and cause.is_final):
                    break
                await self._tasks.sleep(_RETRY_MS)
            else:
                return
        _logger.error(
            "offsets %d to %d of %s have no dead letters in share group %s: %s",
            letters.first,
            letters.last,
            source.log.name,
            group_id,
            reason,
        )

    async def _attempt(self, letters: _Letters) -> None:
        """Write the letters once, and wait for their commit. Raises _NotWritten, StorageError, OSError."""
        topic = await self._topic(letters.group_id)
        index = letters.source.index % len(topic.partitions)
        target = self._replicas.leader(topic.name, index)
        leader = topic.partitions[index].leader
        if not isinstance(target, int):
            await self._append(target, letters)
        elif target == NOT_LEADER_OR_FOLLOWER and leader in self._metadata.image.brokers:
            await self._send(leader, topic, index, letters)
        else:
            raise _NotWritten("its partition has no leader")

    async def _topic(self, group_id: str) -> TopicImage:
        """Return the dead-letter topic of a group, which is created if it is missing. Raises _NotWritten."""
        image, config = self._metadata.image, self._config()
        name = group_configs(image.configs_of(GROUP, group_id), config).text("errors.deadletterqueue.topic.name")
        if not name:
            raise _NotWritten("there is no dead-letter topic any more", is_final=True)
        if name.startswith("__"):
            raise _NotWritten(f"the name of a dead-letter topic cannot begin with __, as {name} does", is_final=True)
        prefix = config.text(_PREFIX) or ""
        if not name.startswith(prefix):
            text = f"the name of a dead-letter topic must begin with {prefix}, unlike {name} ({_PREFIX})"
            raise _NotWritten(text, is_final=True)
        topic = image.topics.get(name)
        if topic is None:
            await self._create(name)
            return await self._topic(group_id)
        if not topic_configs(topic.configs, config).flag(_ENABLED):
            raise _NotWritten(f"topic {name} takes no dead letters: set its {_ENABLED}", is_final=True)
        return topic

    async def _create(self, name: str) -> None:
        """Create a dead-letter topic. Raises _NotWritten."""
        if not self._config().flag(_AUTO_CREATE):
            text = f"there is no topic {name}, and errors.deadletterqueue.auto.create.topics.enable is false"
            raise _NotWritten(text, is_final=True)
        configs = {_ENABLED: "true", "message.timestamp.type": "CreateTime"}
        change = await self._create_topic(RequestedTopic(name, -1, -1, {}, configs))
        if change.error_code not in (NONE, TOPIC_ALREADY_EXISTS):
            raise _NotWritten(change.error_message or name_of(change.error_code), is_final=True)

    async def _send(self, leader: int, topic: TopicImage, index: int, letters: _Letters) -> None:
        """Produce the letters to another broker, one batch after the other. Raises _NotWritten, StorageError, OSError."""
        max_bytes = topic_configs(topic.configs, self._config()).integer("max.message.bytes")
        for batch in _batches(self._letters(letters), max_bytes):
            data = PartitionProduceData(index=index, records=batch)
            rows = [TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])]
            request = ProduceRequest(acks=-1, timeout_ms=_COMMIT_TIMEOUT_MS, topic_data=rows)
            response = await awaitable(self._peers.request(leader, request, purpose="dead letters"), self._tasks)
            if response is None:
                raise _NotWritten("the leader of its partition does not answer")
            (row,) = response.responses[0].partition_responses
            if row.error_code != NONE:
                is_final = row.error_code in (MESSAGE_TOO_LARGE, INVALID_RECORD)
                raise _NotWritten(row.error_message or name_of(row.error_code), is_final=is_final)

    async def _append(self, target: "Partition", letters: _Letters) -> None:
        """Append the letters, and wait for their commit. Raises _NotWritten, StorageError, OSError."""
        now_ms = self._clock.wall_ms()
        for batch in _batches(self._letters(letters), target.log.config.max_message_bytes):
            appended = target.append(batch, 0, len(batch), now_ms)
            if appended.error_code != NONE:
                raise _NotWritten(appended.error_message or name_of(appended.error_code), is_final=True)
        committed: Deferred[int] = Deferred(self._tasks)
        delayed = DelayedCommit(lambda: None)
        delayed.begin([Uncommitted.last_of(target, committed.complete)], self._tasks, _COMMIT_TIMEOUT_MS)
        code = await committed
        if code != NONE:
            raise _NotWritten(name_of(code))

    def _letters(self, letters: _Letters) -> list[Record]:
        """Return the records to write. Raises StorageError, OSError."""
        dead = letters.letters
        values = group_configs(self._metadata.image.configs_of(GROUP, letters.group_id), self._config())
        copies = values.flag("errors.deadletterqueue.copy.record.enable")
        now_ms = self._clock.wall_ms()
        originals = _records(letters.source.log, dead.first, dead.last) if copies else {}
        records = []
        for offset in range(dead.first, dead.last + 1):
            key, value = originals.get(offset, (None, None))
            headers = _headers(letters.group_id, letters.source, dead, offset)
            records.append(Record(0, now_ms, key, value, headers))
        return records


def _headers(group_id: str, source: "Partition", letters: DeadLetters, offset: int) -> list[Header]:
    texts = {
        "topic": source.topic,
        "partition": str(source.index),
        "offset": str(offset),
        "group": group_id,
        "delivery.count": str(letters.delivery_count),
    }
    if letters.message is not None:
        texts["message"] = letters.message
    return [(f"__dlq.errors.{name}", text.encode()) for name, text in texts.items()]


def _records(log: "Log", first: int, last: int) -> dict[int, tuple[bytes | None, bytes | None]]:
    """Return keys and values by offset, of the records that the log still has. Raises StorageError."""
    originals: dict[int, tuple[bytes | None, bytes | None]] = {}
    offset = max(first, log.start_offset)
    while offset <= last:
        try:
            region = log.read(offset, _READ_BYTES, log.high_watermark, whole_first=True)
        except OffsetNotInLog:
            break
        if region is None:
            break
        *_, newest = reading.headers(log, region)
        try:
            for record in records_of(region.read()):
                if first <= record.offset <= last:
                    originals[record.offset] = record.key, record.value
        except CorruptRecords as cause:
            raise StorageError(f"{log.directory}: {cause}") from cause
        offset = newest.next_offset
    return originals


def _batches(records: list[Record], max_bytes: int) -> Iterator[bytes]:
    """Split records into batches of at most `max_bytes`; a larger record gets a batch of its own."""
    some: list[Record] = []
    size = _ROOM_FOR_A_HEADER
    for record in records:
        need = _ROOM_FOR_A_HEADER + len(record.key or b"") + len(record.value or b"")
        need += sum(len(name) + len(value or b"") for name, value in record.headers)
        if some and size + need > max_bytes:
            yield _batch(some)
            some, size = [], _ROOM_FOR_A_HEADER
        some.append(record)
        size += need
    if some:
        yield _batch(some)


def _batch(records: list[Record]) -> bytes:
    return build(
        Record(at, record.timestamp, record.key, record.value, record.headers) for at, record in enumerate(records)
    )
