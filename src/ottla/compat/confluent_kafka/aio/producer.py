"""Producers for asyncio."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from types import GenericAlias, TracebackType
from typing import Any, Final, Self

from ottla.compat.confluent_kafka.aio.calls import Calls, awaited, forwarded
from ottla.compat.confluent_kafka.error import KeySerializationError, ValueSerializationError
from ottla.compat.confluent_kafka.serialization import MessageField, SerializationContext, choose_serdes
from ottla.compat.librdkafka.errors import KafkaError, KafkaException
from ottla.compat.librdkafka.producer import Producer
from ottla.compat.librdkafka.values import Message

_POLL_S: Final = 0.1
_OPTIONS: Final = ("partition", "timestamp", "headers")


class AIOProducer:
    """Producer with coroutines; callbacks are coroutine functions.

        async with AIOProducer({"bootstrap.servers": "localhost:9092"}) as producer:
            delivery = await producer.produce("work", "value")
            message = await delivery

    Records are sent as `linger.ms` says: `batch_size` and `buffer_timeout` have no effect.
    """

    def __init__(
        self,
        producer_conf: dict[str, Any],
        max_workers: int = 4,
        executor: Executor | None = None,
        batch_size: int = 1000,
        buffer_timeout: float = 1.0,
    ) -> None:
        del batch_size, buffer_timeout
        self._calls = Calls(executor, max_workers)
        self.executor = self._calls.executor
        self._producer = Producer(self._calls.wrap_callbacks(producer_conf))
        self._settled: deque[tuple[asyncio.Future[Message], Any, Message]] = deque()
        self._polling: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Send all records, and close the connections."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self.flush()
        finally:
            await self._calls.run(self._producer.close)
            if self._polling is not None:
                await self._polling
            self._settle()
            await self._calls.close()

    def __len__(self) -> int:
        return 0 if self._is_closed else len(self._producer)

    async def produce(
        self, topic: str, value: Any = None, key: Any = None, *args: Any, **options: Any
    ) -> "asyncio.Future[Message]":
        """Produce a record; return the future of the delivered message, which raises KafkaException.

        options  partition, timestamp and headers; others have no effect

        Waits while the queue is full. Raises TypeError, RuntimeError.
        """
        del args
        chosen = {name: options[name] for name in _OPTIONS if name in options}
        delivery: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

        def on_delivered(error: Any, message: Message) -> None:
            self._settled.append((delivery, error, message))
            if len(self._settled) == 1:
                self._calls.loop.call_soon_threadsafe(self._settle)

        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=on_delivered, **chosen)
                break
            except BufferError:
                await self._call(self._producer.poll, _POLL_S)
            except KafkaException as error:
                code = error.args[0].code()
                delivery.set_exception(KafkaException(KafkaError(code, f"Message failed: {KafkaError(code).str()}")))
                return delivery
        if self._polling is None or self._polling.done():
            self._polling = asyncio.get_running_loop().create_task(self._poll())
        return delivery

    async def _poll(self) -> None:
        """Run delivery callbacks until all records have their outcome."""
        while not self._is_closed and len(self._producer) > 0:
            await self._call(self._producer.poll, _POLL_S)

    def _settle(self) -> None:
        """Complete the futures of delivered records. Called on the event loop."""
        while self._settled:
            delivery, error, message = self._settled.popleft()
            if delivery.done():
                continue
            if error is None:
                delivery.set_result(message)
            else:
                delivery.set_exception(KafkaException(error))

    async def poll(self, timeout: float = 0) -> int:
        """Run callbacks, and wait for at most `timeout` seconds for one; return how many records have an outcome."""
        count: int = await self._call(self._producer.poll, timeout)
        return count

    async def _call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        return await self._calls.run(function, *args, **named)

    async def begin_transaction(self, *args: Any, **named: Any) -> None:
        """Send all records, and begin a transaction. Raises KafkaException."""
        await self.flush()
        await self._call(self._producer.begin_transaction, *args, **named)

    abort_transaction = forwarded("abort_transaction", "_producer")
    cluster_id = forwarded("cluster_id", "_producer")
    commit_transaction = forwarded("commit_transaction", "_producer")
    flush = forwarded("flush", "_producer")
    init_transactions = forwarded("init_transactions", "_producer")
    list_topics = forwarded("list_topics", "_producer")
    purge = forwarded("purge", "_producer")
    send_offsets_to_transaction = forwarded("send_offsets_to_transaction", "_producer")
    set_sasl_credentials = forwarded("set_sasl_credentials", "_producer")


class AsyncSerializingProducer(AIOProducer):
    """Producer that serializes keys and values; `await` makes it. Serializers may be coroutine functions."""

    _key_serializer: Any
    _value_serializer: Any

    def __new__(cls, conf: dict[str, Any], **options: Any) -> Any:
        return cls._create(conf, **options)

    def __class_getitem__(cls, types: Any) -> GenericAlias:
        return GenericAlias(cls, types)

    @classmethod
    async def _create(cls, conf: dict[str, Any], **options: Any) -> Any:
        made = object.__new__(cls)
        choices, left = choose_serdes(conf, "serializer")
        serdes = []
        for choice in choices:
            serde, left = await awaited(choice(left))
            serdes.append(await awaited(serde))
        made._key_serializer, made._value_serializer = serdes
        AIOProducer.__init__(made, left, **options)
        return made

    async def produce(  # type: ignore[override]  # confluent-kafka's order of the arguments
        self,
        topic: str,
        key: Any = None,
        value: Any = None,
        partition: int = -1,
        timestamp: int = 0,
        headers: Any = None,
    ) -> "asyncio.Future[Message]":
        """Serialize key and value, and produce. Raises KeySerializationError, ValueSerializationError, and as `produce`."""
        if self._is_closed:
            raise RuntimeError("Producer has been closed")
        context = SerializationContext(topic, MessageField.KEY, headers)
        if self._key_serializer is not None:
            try:
                key = await awaited(self._key_serializer(key, context))
            except Exception as error:
                raise KeySerializationError(error) from error
        context.field = MessageField.VALUE
        if self._value_serializer is not None:
            try:
                value = await awaited(self._value_serializer(value, context))
            except Exception as error:
                raise ValueSerializationError(error) from error
        options = {"partition": partition, "timestamp": timestamp, "headers": headers}
        return await super().produce(topic, value, key, **options)
