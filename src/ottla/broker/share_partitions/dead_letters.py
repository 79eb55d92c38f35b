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
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.config import BrokerConfig
from ottla.broker.delayed import DelayedCommit, Uncommitted
from ottla.broker.other_brokers import OtherBrokers
from ottla.coordinators.share.window import DeadLetters
from ottla.environment import Clock
from ottla.log import reading
from ottla.log.log import OffsetNotInLog, StorageError
from ottla.metadata.alteration import GROUP
from ottla.metadata.configs import group_configs, topic_configs
from ottla.metadata.image import TopicImage
from ottla.metadata.metadata import Metadata
from ottla.metadata.refusal import ChangeResult
from ottla.metadata.topic_plans import RequestedTopic
from ottla.protocol.errors import (
    INVALID_RECORD,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_TOPIC_OR_PARTITION,
    name_of,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.records.batch import build, records_of
from ottla.records.errors import CorruptRecords
from ottla.records.record import Header, Record
from ottla.replication.replicas import Replicas
from ottla.tasks.answers import after
from ottla.tasks.deferred import Answer, Deferred
from ottla.tasks.queue import CallbackQueue
from ottla.tasks.retrying import repeat_while

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


class _Missing(Exception):
    """Missing dead-letter topic; the argument is its name."""


class _Impossible(Exception):
    """Permanent reason for which dead letters cannot be written."""


class _Letters(NamedTuple):
    """Dead letters that are being written: records of `source`."""

    group_id: str
    source: "Partition"
    letters: DeadLetters


class _WriteResult(NamedTuple):
    """Result of an attempt to write dead letters.

    reason    why the letters were not written; None when they are committed
    is_final  True if another attempt cannot succeed
    """

    reason: str | None
    is_final: bool = False


_WRITTEN: Final = _WriteResult(None)


class DeadLetterWriter:
    """Writer of the dead letters of this broker's share partitions.

    config        returns the broker's configs in force
    create_topic  creates a dead-letter topic
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        tasks: CallbackQueue,
        metadata: Metadata,
        replicas: Replicas,
        create_topic: Callable[[RequestedTopic], Answer[ChangeResult]],
        peers: OtherBrokers,
    ) -> None:
        self._config = config
        self._clock = clock
        self._tasks = tasks
        self._metadata = metadata
        self._replicas = replicas
        self._create_topic = create_topic
        self._peers = peers

    def write(self, group_id: str, source: "Partition", letters: DeadLetters, done: Callable[[], None]) -> None:
        """Write `letters`, records of `source`, and call `done` when they are committed, or when they cannot be written."""

        def written(outcome: _WriteResult) -> None:
            if outcome.reason is not None:
                _logger.error(
                    "offsets %d to %d of %s have no dead letters in share group %s: %s",
                    letters.first,
                    letters.last,
                    source.log.name,
                    group_id,
                    outcome.reason,
                )
            done()

        attempt = partial(self._attempt, _Letters(group_id, source, letters))
        after(
            repeat_while(_is_temporary, attempt, self._tasks, attempts=_ATTEMPTS, pause_ms=_RETRY_MS),
            written,
        )

    def _attempt(self, letters: _Letters) -> Answer[_WriteResult]:
        try:
            topic = self._topic(letters.group_id)
            index = letters.source.index % len(topic.partitions)
            target = self._replicas.leader(topic.name, index)
            if not isinstance(target, int):
                return self._append(target, letters)
            leader = topic.partitions[index].leader
            if target == NOT_LEADER_OR_FOLLOWER and leader in self._metadata.image.brokers:
                return self._send(leader, topic, index, letters)
            return _WriteResult("its partition has no leader")
        except _Missing as missing:
            return after(self._create(str(missing)), partial(self._created, letters))
        except _Impossible as cause:
            return _WriteResult(str(cause), is_final=True)
        except (StorageError, OSError) as cause:
            return _WriteResult(str(cause))

    def _created(self, letters: _Letters, change: ChangeResult) -> Answer[_WriteResult]:
        if change.error_code in (NONE, TOPIC_ALREADY_EXISTS):
            return self._attempt(letters)
        return _WriteResult(change.error_message or name_of(change.error_code), is_final=True)

    def _topic(self, group_id: str) -> TopicImage:
        """Return the dead-letter topic of a group. Raises _Impossible, _Missing."""
        image, config = self._metadata.image, self._config()
        name = group_configs(image.configs_of(GROUP, group_id), config).text("errors.deadletterqueue.topic.name")
        if not name:
            raise _Impossible("there is no dead-letter topic any more")
        if name.startswith("__"):
            raise _Impossible(f"the name of a dead-letter topic cannot begin with __, as {name} does")
        prefix = config.text(_PREFIX) or ""
        if not name.startswith(prefix):
            raise _Impossible(f"the name of a dead-letter topic must begin with {prefix}, unlike {name} ({_PREFIX})")
        topic = image.topics.get(name)
        if topic is None:
            raise _Missing(name)
        if not topic_configs(topic.configs, config).flag(_ENABLED):
            raise _Impossible(f"topic {name} takes no dead letters: set its {_ENABLED}")
        return topic

    def _create(self, name: str) -> Answer[ChangeResult]:
        """Create a dead-letter topic."""
        if not self._config().flag(_AUTO_CREATE):
            text = f"there is no topic {name}, and errors.deadletterqueue.auto.create.topics.enable is false"
            return ChangeResult(UNKNOWN_TOPIC_OR_PARTITION, text)
        configs = {_ENABLED: "true", "message.timestamp.type": "CreateTime"}
        return self._create_topic(RequestedTopic(name, -1, -1, {}, configs))

    def _send(self, leader: int, topic: TopicImage, index: int, letters: _Letters) -> Answer[_WriteResult]:
        """Produce the letters to another broker, one batch after the other. Raises StorageError, OSError."""
        max_bytes = topic_configs(topic.configs, self._config()).integer("max.message.bytes")
        batches = _batches(self._letters(letters), max_bytes)

        def send_next(result: _WriteResult = _WRITTEN) -> Answer[_WriteResult]:
            batch = next(batches, None) if result.reason is None else None
            if batch is None:
                return result
            data = PartitionProduceData(index=index, records=batch)
            rows = [TopicProduceData(name=topic.name, topic_id=topic.id, partition_data=[data])]
            request = ProduceRequest(acks=-1, timeout_ms=_COMMIT_TIMEOUT_MS, topic_data=rows)
            return after(after(self._peers.request(leader, request, purpose="dead letters"), _produced), send_next)

        return send_next()

    def _append(self, target: "Partition", letters: _Letters) -> Answer[_WriteResult]:
        """Append the letters, and wait for their commit. Raises _Impossible, StorageError, OSError."""
        now_ms = self._clock.wall_ms()
        for batch in _batches(self._letters(letters), target.log.config.max_message_bytes):
            appended = target.append(batch, 0, len(batch), now_ms)
            if appended.error_code != NONE:
                raise _Impossible(appended.error_message or name_of(appended.error_code))
        committed: Deferred[_WriteResult] = Deferred(self._tasks)

        def decided(code: int) -> None:
            committed.complete(_WriteResult(None if code == NONE else name_of(code)))

        delayed = DelayedCommit(lambda: None)
        delayed.begin([Uncommitted.last_of(target, decided)], self._tasks, _COMMIT_TIMEOUT_MS)
        return committed

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


def _produced(response: ProduceResponse | None) -> _WriteResult:
    """Return the result of a Produce request to another broker."""
    if response is None:
        return _WriteResult("the leader of its partition does not answer")
    (row,) = response.responses[0].partition_responses
    if row.error_code == NONE:
        return _WRITTEN
    return _WriteResult(
        row.error_message or name_of(row.error_code), is_final=row.error_code in (MESSAGE_TOO_LARGE, INVALID_RECORD)
    )


def _is_temporary(outcome: _WriteResult) -> bool:
    return outcome.reason is not None and not outcome.is_final


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
