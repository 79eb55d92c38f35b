"""An event loop on virtual time, and a topic in memory behind clients of the shape of `ottla.aio`.

Times are random: a record that a client sends is appended later, its acknowledgement comes later still, and readers see it when
they get to it. A client that is killed leaves what it has sent on the way: it is appended or lost.
"""

import asyncio
import contextlib
import random
import selectors
from collections.abc import AsyncIterator, Coroutine, Mapping
from functools import partial
from typing import Any, NamedTuple, Self, TypeVar

from ottla.client.errors import FencedError, KafkaError
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import INVALID_PRODUCER_EPOCH, NETWORK_EXCEPTION, NOT_ENOUGH_REPLICAS

T = TypeVar("T")


class Stalled(Exception):
    """Nothing will ever happen any more."""


class _Selector(selectors.DefaultSelector):
    """Selector that lets time pass instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise Stalled
            self.now_s += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop whose time passes while it waits."""

    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._clock.now_s


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


class Inline:
    """Checker that does its work at once."""

    async def run(self, check: "partial[T]") -> T:
        """Call a function."""
        await asyncio.sleep(0)
        return check()


class Stored(NamedTuple):
    """A record of the topic."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int = 0


class Position(NamedTuple):
    """The position of an appended record."""

    offset: int


class VirtualTopic:
    """The topic, with the module that clients come from, and the fencing of its leaders.

    has_epochs  whether a producer of a newer epoch, once it has appended a record, fences older ones
    failures    part of the appends that fail
    """

    def __init__(
        self,
        random_numbers: random.Random,
        longest_s: float = 0.2,
        *,
        has_epochs: bool = True,
        failures: float = 0.0,
    ) -> None:
        self.records: list[Stored] = []
        self.has_epochs = has_epochs
        self._failures = failures
        self._newest_epoch = self._appended_epoch = 0
        self.grown = asyncio.Condition()
        self._random = random_numbers
        self._longest_s = longest_s
        topic = self

        class Consumer(_Consumer):
            def __init__(self, config: Mapping[str, object]) -> None:
                super().__init__(topic, config)

        class Admin:
            def __init__(self, config: Mapping[str, object]) -> None:
                del config

            async def __aenter__(self) -> Self:
                return self

            async def __aexit__(self, *error: object) -> None:
                del error

        self.Consumer, self.Admin = Consumer, Admin

    async def producer(self, config: Mapping[str, object], limit_ms: int) -> "_Producer":
        """Return a producer with the newest epoch."""
        del config, limit_ms
        await asyncio.sleep(self.delay_s())
        self._newest_epoch += 1
        epoch = self._newest_epoch
        await asyncio.sleep(self.delay_s())
        return _Producer(self, epoch)

    def delay_s(self) -> float:
        """Return a time on the way: mostly short."""
        return self._random.random() ** 3 * self._longest_s

    def is_lost(self) -> bool:
        """Return whether what a killed client has sent is lost."""
        return self._random.random() < 0.5

    async def append(self, key: bytes, value: bytes | None, epoch: int) -> int:
        """Append a record; return its offset. Raises KafkaError."""
        if self._random.random() < self._failures:
            raise KafkaError("too few replicas", NOT_ENOUGH_REPLICAS)
        async with self.grown:
            if self.has_epochs and epoch < self._appended_epoch:
                raise FencedError("an older epoch", INVALID_PRODUCER_EPOCH)
            self._appended_epoch = epoch
            self.records.append(Stored(len(self.records), key, value))
            self.grown.notify_all()
            return len(self.records) - 1


class _Producer:
    def __init__(self, topic: VirtualTopic, epoch: int) -> None:
        self.is_usable = True
        self._epoch = epoch
        self._topic = topic
        self._last: asyncio.Task[int] | None = None
        self._is_dead = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def close(self, timeout: float) -> None:
        """End; what was sent may still arrive."""
        del timeout
        self._is_dead = True

    async def send(self, topic: str, value: bytes | None, key: bytes, partition: int) -> "asyncio.Future[Position]":
        """Send a record, behind those before it."""
        del topic, partition
        loop = asyncio.get_running_loop()
        before, self._last = self._last, loop.create_task(self._append(self._last, key, value))
        del before
        acknowledged = loop.create_task(self._acknowledged(self._last))
        for task in (self._last, acknowledged):
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return acknowledged

    async def _append(self, before: "asyncio.Task[int] | None", key: bytes, value: bytes | None) -> int:
        await asyncio.sleep(self._topic.delay_s())
        if before is not None:
            await before  # one that fails ends the producer
        if self._is_dead and self._topic.is_lost():
            raise KafkaError("the process has ended", NETWORK_EXCEPTION)
        try:
            return await self._topic.append(key, value, self._epoch)
        except KafkaError:
            self.is_usable = False
            raise

    async def _acknowledged(self, appended: "asyncio.Task[int]") -> Position:
        offset = await appended
        await asyncio.sleep(self._topic.delay_s())
        return Position(offset)


class _Consumer:
    def __init__(self, topic: VirtualTopic, config: Mapping[str, object]) -> None:
        del config
        self._topic = topic
        self._position = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        del error

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read the topic."""
        del partitions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at an offset."""
        del partition
        self._position = offset

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset."""
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of the topic."""
        return dict.fromkeys(partitions, len(self._topic.records))

    async def consume(self, most: int) -> list[Stored]:
        """Return records, once there are any."""
        await asyncio.sleep(self._topic.delay_s())
        async with self._topic.grown:
            await self._topic.grown.wait_for(lambda: len(self._topic.records) > self._position)
        records = self._topic.records[self._position : self._position + most]
        self._position += len(records)
        return records


@contextlib.asynccontextmanager
async def ending(tasks: set[asyncio.Task[Any]]) -> AsyncIterator[None]:
    """Cancel tasks at the end, and wait for them."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
