"""The topic `_schemas`: one reader, which keeps the state, and one writer. Both are clients of Ottla on the running event loop.

A write returns when the reader has applied its records: a response is sent once the state has what it says.

A registry that begins to lead writes NOOP, as Confluent's does, and one that reads the NOOP of another writes no more: two that
write to one subject would overwrite each other's versions. What was on the way then is refused by the epoch of the producer
(`fencing.py`). Registries of others write without epochs, and not every cluster has them: then it may still be appended later.
The first record of a version counts, and the registry that leads writes it again if another one follows
(`Operations.restore_soon`): compaction keeps the last.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla import aio
from ottla.client.admin.configs import ConfigResource, ResourceType
from ottla.client.admin.topics import NewTopic
from ottla.client.errors import FencedError, KafkaError, RequestTimedOut
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import TOPIC_ALREADY_EXISTS
from ottla.records.record import Record as KafkaRecord
from ottla.registry.fencing import Fencing, LeaderProducer
from ottla.registry.records import Record, WrongRecord, decode_record, noop
from ottla.registry.state import State

_logger = logging.getLogger("ottla.registry")
_MOST_REPLICAS: Final = 3
_COMMON: Final = {"allow.auto.create.topics": False}
"""A topic that was deleted and created again is an error, not a topic to go on with: the state would be that of both."""
_WRITING: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "delivery.timeout.ms": 30_000,
    "request.timeout.ms": 10_000,
}
_COORDINATOR_MS: Final = 2_000
"""Time for the transaction coordinator to give an epoch before this registry leads without one, for now."""
_COORDINATOR_LATE_MS: Final = 60_000
_AGAIN_S: Final = 1.0
_AT_ONCE: Final = 500
"""Records that are applied before others have their turn: about 20 ms."""


class WrongTopic(ValueError):
    """The topic of the registry has configs with which it would lose schemas."""


class Store:
    """The topic of a registry.

    client_config  configs of the clients, with bootstrap.servers
    topic          name of the topic
    on_change      called after records were applied, and when this registry begins or ceases to lead
    fencing        where the producer of a leader comes from
    """

    def __init__(
        self, client_config: Mapping[str, object], topic: str, on_change: Callable[[], None], fencing: Fencing
    ) -> None:
        self.state = State()
        self._config = dict(client_config)
        self._topic = topic
        self._on_change = on_change
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._exits = contextlib.AsyncExitStack()
        self._fencing = fencing
        self._fencing_later: asyncio.Task[None] | None = None
        self._writing = {**self._config, **_COMMON, **_WRITING}
        self._beginning = asyncio.Lock()
        self._producer: LeaderProducer | None = None
        self._reader: asyncio.Task[None] | None = None
        self._consumer: aio.Consumer | None = None
        self._led_from = -1

    async def open(self) -> None:
        """Create or check the topic, and begin to read it. Raises KafkaError, WrongTopic."""
        async with aio.Admin(self._config) as admin:
            await _create(admin, self._topic)
            await _check(admin, self._topic)
        partition = TopicPartition(self._topic, 0)
        common = {**self._config, **_COMMON}
        reading = {"auto.offset.reset": "none", "isolation.level": "read_uncommitted", "enable.auto.commit": False}
        consumer = self._consumer = await self._exits.enter_async_context(aio.Consumer({**common, **reading}))
        consumer.assign([partition])
        consumer.seek(partition, (await consumer.beginning_offsets([partition]))[partition])
        self._reader = asyncio.get_running_loop().create_task(self._read(consumer))

    async def catch_up(self) -> None:
        """Read the topic to its end. Raises KafkaError."""
        assert self._consumer is not None
        partition = TopicPartition(self._topic, 0)
        end = (await self._consumer.end_offsets([partition]))[partition]
        await self._reach(end - 1)

    async def lead(self) -> None:
        """Take the right to write from the registry that had it, and read all that it wrote. Raises KafkaError."""
        async with self._beginning:
            if self._fencing_later is not None:
                self._fencing_later.cancel()
            try:
                producer = await self._fencing.producer(self._writing, _COORDINATOR_MS)
            except RequestTimedOut as late:
                _logger.info("the registry leads without an epoch at first: %s", late)
                producer = LeaderProducer(self._writing, "")
                self._fencing_later = asyncio.get_running_loop().create_task(self._fence_later())
            await self._begin(producer)

    async def _begin(self, producer: LeaderProducer) -> None:
        self.resign()  # what was decided before the NOOP is read must not get the new epoch
        former, self._producer = self._producer, producer
        if former is not None:
            await former.close(0)
        self._led_from = await self._append([noop()])
        self._on_change()

    async def _fence_later(self) -> None:
        """Begin to lead with an epoch when the transaction coordinator has one: it may have to create its topic first."""
        producer = None
        while producer is None:
            await asyncio.sleep(_AGAIN_S)
            with contextlib.suppress(KafkaError):
                producer = await self._fencing.producer(self._writing, _COORDINATOR_LATE_MS)
        if not self.leads:
            await producer.close(0)
            return
        try:
            await self._begin(producer)
        except KafkaError as failed:
            _logger.warning("the registry cannot write: %s", failed)

    async def renew(self) -> None:
        """Begin to lead again if a write has failed, or none was made for long. Raises KafkaError."""
        if self._producer is not None and not self._producer.is_usable:
            await self.lead()

    def resign(self) -> None:
        """Write no more, as another registry was elected."""
        self._led_from = -1

    @property
    def leads(self) -> bool:
        """True while this registry may write: the last one that has begun to lead."""
        return -1 < self.state.led_from <= self._led_from

    @property
    def lag(self) -> int | None:
        """Records of the topic that were not read yet, None while that is unknown."""
        return None if self._consumer is None else self._consumer.lag(TopicPartition(self._topic, 0))

    async def wait_failed(self) -> None:
        """Wait until the reader has failed. Raises what it failed with."""
        if self._reader is not None:
            await asyncio.shield(self._reader)

    async def close(self) -> None:
        """Close the clients."""
        if self._fencing_later is not None:
            self._fencing_later.cancel()
            await asyncio.gather(self._fencing_later, return_exceptions=True)
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        for _, waiting in self._waiting:
            waiting.cancel()
        if self._producer is not None:
            await self._producer.close(0)
        await self._exits.aclose()

    async def write(self, records: Sequence[Record]) -> None:
        """Append records, and wait until the state has them. Raises KafkaError, FencedError if another registry leads."""
        if records:
            await self._append(records)

    async def _append(self, records: Sequence[Record]) -> int:
        """Append records, and wait until the state has them; return the last offset."""
        producer = self._producer
        assert producer is not None
        futures = []
        try:
            for record in records:
                key, value = record.encoded()
                futures.append(await producer.send(self._topic, value, key, partition=0))
            delivered = await asyncio.gather(*futures)
        except FencedError:
            if producer is self._producer:
                self.resign()
                self._on_change()
            raise
        last = max(position.offset for position in delivered)
        await self._reach(last)
        return last

    async def _reach(self, offset: int) -> None:
        """Wait until the state has the record at an offset, or a later one."""
        if offset >= self.state.end:
            applied = asyncio.get_running_loop().create_future()
            self._waiting.append((offset, applied))
            await applied

    async def _read(self, consumer: aio.Consumer) -> None:
        while True:
            for record in await consumer.consume(_AT_ONCE):
                self._apply(record)
            self._on_change()
            waiting, self._waiting = self._waiting, []
            for offset, applied in waiting:
                if offset >= self.state.end:
                    self._waiting.append((offset, applied))
                elif not applied.done():
                    applied.set_result(None)
            await asyncio.sleep(0)

    def _apply(self, record: KafkaRecord) -> None:
        before = self.state.rejected
        try:
            self.state.apply(decode_record(record.key, record.value), record.offset, record.timestamp)
        except (WrongRecord, AttributeError, TypeError, ValueError) as wrong:
            self.state.reject(str(wrong), record.offset)
        if self.state.rejected != before:
            _logger.warning("a record of %s is ignored: %s", self._topic, self.state.rejection)


async def _create(admin: aio.Admin, topic: str) -> None:
    """Create the topic unless it exists. Raises KafkaError."""
    if topic in await admin.list_topics():
        return
    brokers = len((await admin.describe_cluster()).nodes)
    new = NewTopic(topic, 1, min(_MOST_REPLICAS, brokers), config={"cleanup.policy": "compact"})
    results = await admin.create_topics([new])
    error = results.errors.get(topic)
    if error is not None and error.code != TOPIC_ALREADY_EXISTS:
        raise error


async def _check(admin: aio.Admin, topic: str) -> None:
    """Raise WrongTopic for a topic that loses schemas."""
    description = (await admin.describe_topics([topic]))[topic]
    if len(description.partitions) != 1:
        raise WrongTopic(
            f"The schema topic {topic} should have only 1 partition but has {len(description.partitions)}: ids would not be"
            " unique"
        )
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = (await admin.describe_configs([resource], names=["cleanup.policy"]))[resource]
    policy = configs["cleanup.policy"].value
    if policy != "compact":
        raise WrongTopic(
            f"The retention policy of the schema topic {topic} is incorrect. You must configure the topic to 'compact' cleanup"
            f" policy to avoid Kafka deleting your schemas after a week; it is '{policy}'"
        )
