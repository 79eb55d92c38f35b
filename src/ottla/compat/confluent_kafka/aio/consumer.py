"""Consumers for asyncio."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from types import GenericAlias, TracebackType
from typing import Any, Final, Self

from ottla.compat.confluent_kafka.aio.calls import Calls, awaited, forwarded
from ottla.compat.confluent_kafka.error import ConsumeError, KeyDeserializationError, ValueDeserializationError
from ottla.compat.confluent_kafka.serialization import MessageField, SerializationContext, choose_serdes
from ottla.compat.librdkafka.consumer import Consumer
from ottla.compat.librdkafka.values import Message

_SLICE_S: Final = 0.1
"""Time after which a poll lets other calls have their turn."""


class AIOConsumer:
    """Consumer with coroutines; callbacks are coroutine functions.

    async with AIOConsumer({"bootstrap.servers": "localhost:9092", "group.id": "readers"}) as consumer:
        await consumer.subscribe(["work"])
        message = await consumer.poll(1.0)
    """

    def __init__(self, consumer_conf: dict[str, Any], max_workers: int = 100, executor: Executor | None = None) -> None:
        if executor is None and max_workers < 1:
            raise ValueError("max_workers must be at least 1")
        self._calls = Calls(executor, max_workers)
        self.executor = self._calls.executor
        self._consumer = Consumer(self._calls.wrap_callbacks(consumer_conf))
        self._kept: deque[Message] = deque()  # taken by calls that were cancelled
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if self._closed:
            raise RuntimeError("Consumer closed")
        return await self._calls.run(function, *args, **named)

    async def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message, None if none came within `timeout` seconds (-1: no limit). Raises RuntimeError."""
        messages = await self._take_messages(1, timeout)
        return messages[0] if messages else None

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` messages; fewer if `timeout` seconds pass before. Raises RuntimeError, ValueError."""
        return await self._take_messages(num_messages, timeout)

    async def _take_messages(self, most: int, timeout: float) -> list[Message]:
        """Return messages; those of a call that is cancelled are kept for the next one."""
        end = float("inf") if timeout < 0 else time.monotonic() + timeout
        messages: list[Message] = []
        try:
            while True:
                wait = max(min(_SLICE_S, end - time.monotonic()), 0)
                messages += await self._call(self._take, most - len(messages), wait, keep=self._kept.extend)
                if len(messages) >= most or time.monotonic() >= end:
                    return messages
        except BaseException:
            self._kept.extendleft(reversed(messages))
            raise

    def _take(self, most: int, wait: float) -> list[Message]:
        """Return messages that were kept, and new ones. Runs on a thread, in the turn of a call."""
        messages = [self._kept.popleft() for _ in range(min(most, len(self._kept)))]
        left = most - len(messages)
        return messages + self._consumer.consume(left, 0 if messages else wait) if left else messages

    async def subscribe(self, topics: list[str], **callbacks: Callable[..., Any]) -> None:
        """Read topics as a member of the group; `on_assign`, `on_revoke` and `on_lost` are called with this consumer."""
        wrapped = {name: self._calls.callback(self._of_this(function)) for name, function in callbacks.items()}
        await self._call(self._consumer.subscribe, topics, **wrapped)

    def _of_this(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda _, *args: function(self, *args)

    async def close(self) -> None:
        """Leave the group and close the connections. Raises RuntimeError if it is closed."""
        try:
            await self._call(self._consumer.close)
        finally:
            self._closed = True
            await self._calls.close()

    assign = forwarded("assign", "_consumer")
    assignment = forwarded("assignment", "_consumer")
    cluster_id = forwarded("cluster_id", "_consumer")
    commit = forwarded("commit", "_consumer")
    committed = forwarded("committed", "_consumer")
    consumer_group_metadata = forwarded("consumer_group_metadata", "_consumer")
    get_watermark_offsets = forwarded("get_watermark_offsets", "_consumer")
    incremental_assign = forwarded("incremental_assign", "_consumer")
    incremental_unassign = forwarded("incremental_unassign", "_consumer")
    list_topics = forwarded("list_topics", "_consumer")
    offsets_for_times = forwarded("offsets_for_times", "_consumer")
    pause = forwarded("pause", "_consumer")
    position = forwarded("position", "_consumer")
    resume = forwarded("resume", "_consumer")
    seek = forwarded("seek", "_consumer")
    set_sasl_credentials = forwarded("set_sasl_credentials", "_consumer")
    store_offsets = forwarded("store_offsets", "_consumer")
    unassign = forwarded("unassign", "_consumer")
    unsubscribe = forwarded("unsubscribe", "_consumer")


class AsyncDeserializingConsumer(AIOConsumer):
    """Consumer that deserializes keys and values; `await` makes it. Deserializers may be coroutine functions."""

    _key_deserializer: Any
    _value_deserializer: Any

    def __new__(cls, conf: dict[str, Any], **options: Any) -> Any:
        return cls._create(conf, **options)

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)

    @classmethod
    async def _create(cls, conf: dict[str, Any], **options: Any) -> Any:
        made = object.__new__(cls)
        choices, left = choose_serdes(conf, "deserializer")
        serdes = []
        for choice in choices:
            serde, left = await awaited(choice(left))
            serdes.append(await awaited(serde))
        made._key_deserializer, made._value_deserializer = serdes
        AIOConsumer.__init__(made, left, **options)
        return made

    async def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message with deserialized key and value, as `poll` does.

        Raises ConsumeError for a message that is an error, KeyDeserializationError, ValueDeserializationError.
        """
        message = await super().poll(timeout)
        if message is None:
            return None
        failure = message.error()
        if failure is not None:
            raise ConsumeError(failure, kafka_message=message)
        return await self._deserialize(message)

    async def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return messages as `consume`, deserialized; those that are errors as they are."""
        messages = await super().consume(num_messages, timeout)
        return [message if message.error() is not None else await self._deserialize(message) for message in messages]

    async def _deserialize(self, message: Message) -> Message:
        context = SerializationContext(str(message.topic()), MessageField.KEY, message.headers())
        key, value = message.key(), message.value()
        if self._key_deserializer is not None:
            try:
                key = await awaited(self._key_deserializer(key, context))
            except Exception as error:
                raise KeyDeserializationError(error, message) from error
        context.field = MessageField.VALUE
        if self._value_deserializer is not None:
            try:
                value = await awaited(self._value_deserializer(value, context))
            except Exception as error:
                raise ValueDeserializationError(error, message) from error
        message.set_key(key)
        message.set_value(value)
        return message
