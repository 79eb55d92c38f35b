"""An event loop on virtual time, and a topic in memory behind clients of the shape of `ottla.aio`.

Times are random: a record that a client sends is appended later, its acknowledgement comes later still, and readers see it when
they get to it. A client that is killed leaves what it has sent on the way: it is appended or lost.
"""

import asyncio
import contextlib
import random
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple, Self, TypeVar

from ottla.client.errors import KafkaError
from ottla.client.topics import TopicPartition
from ottla.protocol.errors import NETWORK_EXCEPTION

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


class Inline(Executor):
    """Executor that does its work at once."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Call a function."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  (it is the outcome)
            future.set_exception(error)
        return future


class Stored(NamedTuple):
    """A record of the topic."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int = 0


class Position(NamedTuple):
    """Where a record was appended."""

    offset: int


class VirtualTopic:
    """The topic, with the module that clients come from."""

    def __init__(self, random_numbers: random.Random, longest_s: float = 0.2) -> None:
        self.records: list[Stored] = []
        self.grown = asyncio.Condition()
        self._random = random_numbers
        self._longest_s = longest_s
        topic = self

        class Producer(_Producer):
            def __init__(self, config: Mapping[str, object]) -> None:
                super().__init__(topic, config)

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

        self.Producer, self.Consumer, self.Admin = Producer, Consumer, Admin

    def delay_s(self) -> float:
        """Return a time on the way: mostly short."""
        return self._random.random() ** 3 * self._longest_s

    def is_lost(self) -> bool:
        """Return whether what a killed client has sent is lost."""
        return self._random.random() < 0.5

    async def append(self, key: bytes, value: bytes | None) -> int:
        """Append a record; return its offset."""
        async with self.grown:
            self.records.append(Stored(len(self.records), key, value))
            self.grown.notify_all()
            return len(self.records) - 1


class _Producer:
    def __init__(self, topic: VirtualTopic, config: Mapping[str, object]) -> None:
        del config
        self._topic = topic
        self._last: asyncio.Task[int] | None = None
        self._is_dead = False
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        del error
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
            with contextlib.suppress(KafkaError):
                await before
        if self._is_dead and self._topic.is_lost():
            raise KafkaError("the process has ended", NETWORK_EXCEPTION)
        return await self._topic.append(key, value)

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
