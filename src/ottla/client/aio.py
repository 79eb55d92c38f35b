"""Clients for asyncio: a thin API over the core that the blocking classes use as well.

The core runs on the event loop that is running when a client is created. This file holds no logic of its own.
Timeouts are seconds, as in confluent-kafka.

One file, because the four classes are one public API, with the same method names in the same order as in `blocking.py`.
"""

import asyncio
import contextlib
import inspect
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ottla.client.admin.core import AdminCore
from ottla.client.awaiting import Asynchronous
from ottla.client.calls import check_call, checked
from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.rebalance import Listener as RebalanceListener
from ottla.client.consumer.rebalance import Listeners
from ottla.client.errors import IllegalState, KafkaError
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.interceptors import ProducerRecord, interceptors_of
from ottla.client.metrics import MetricValues
from ottla.client.producer.accumulator import ANY
from ottla.client.producer.closed import Delivered
from ottla.client.producer.contents import (
    Headers,
    OnDelivery,
    as_bytes,
    check_headers,
    header_list,
    wrong_argument,
)
from ottla.client.producer.core import ProducerCore
from ottla.client.producer.partitioners import Partitioner
from ottla.client.producer.undelivered import watch
from ottla.client.producer.wakeup import Wakeup
from ottla.client.serialization import (
    Deserializers,
    Serializers,
    deserializers_of,
    fetched_record,
    serializers_of,
    share_deserializers_of,
)
from ottla.client.share.consumer import CommitCallback, CommitResults, ShareConsumerCore
from ottla.client.share.delivery import AcknowledgeType
from ottla.client.topics import EARLIEST, LATEST, FoundOffset, TopicPartition
from ottla.client.waiting import Timeout, deadline_of, limit_ms, milliseconds, records_wanted
from ottla.records.record import Header, Record
from ottla.schemas.context import Serializer

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.producer.tables import TableDelivered

T = TypeVar("T")
P = ParamSpec("P")
_ROWS_BETWEEN_TURNS = 10_000
"""Number of rows of a table that are encoded before control returns to the event loop."""


class ShareConsumer(Asynchronous):
    """Member of a share group (KIP-932); see `ottla.ShareConsumer`, which has the same methods.

    async with ShareConsumer(bootstrap_servers="localhost:9092", group_id="jobs") as consumer:
        consumer.subscribe(["work"])
        async for record in consumer:
            ...
    """

    _ends_waits_first = True

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        key_deserializer: Any = None,  # Deserializer | None; Any, so that **options of one type can be given
        value_deserializer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(config, options)
        self._share = self._make_part(lambda: ShareConsumerCore(self._core))
        self._deserializers = share_deserializers_of(key_deserializer, value_deserializer)

    @checked
    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics, in place of the previous ones."""
        self._check()
        self._share.subscribe(topics)

    async def unsubscribe(self) -> None:
        """Leave the group; records without an acknowledgement are released."""
        await self._run(self._share.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        self._check()
        return self._share.subscription

    async def poll(self, timeout: Timeout = None) -> list[Record]:
        """Return up to max.poll.records records; an empty list if none arrived within `timeout` seconds (None: no limit).

        Raises UnreadableRecord for a record of an earlier poll that no deserializer could read, and KafkaErrors.
        """
        deserializers = self._deserializers
        if deserializers is None:
            return await self._run(self._share.poll(milliseconds(timeout)))
        deserializers.raise_earlier()
        records = await self._run(self._share.poll(milliseconds(timeout)))
        try:
            # In a thread: deserializers may have to query a schema registry.
            read = await asyncio.to_thread(deserializers.read, records)
        except BaseException:  # a cancelled call returns none of them
            self._share.release(records)
            raise
        return deserializers.finish_poll(*read, self._share.release)

    def acknowledge(self, record: Record, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Set the acknowledgement of a record of the last poll (explicit mode). Raises IllegalState, TypeError."""
        record = fetched_record(record)
        if type(record) is not Record or type(kind) is not AcknowledgeType:  # a check of every record would be slow
            check_call(ShareConsumer.acknowledge, (self, record, kind), {})
        self._check()
        self._share.acknowledge(record, kind)

    @checked
    async def commit(self, timeout: Timeout = 60.0) -> CommitResults:
        """Send the acknowledgements and wait; return partition -> None or its error. Raises RequestTimedOut."""
        return await self._run(self._share.commit(milliseconds(timeout)))

    def commit_async(self) -> None:
        """Send the acknowledgements; the callback is called with the outcome."""
        self._check()
        self._share.commit_soon()

    @checked
    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Set the callback, run as `callback({partition: offsets}, error)` after each response to acknowledgements."""
        self._check()
        self._share.callback = callback

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Acquisition lock timeout of the records of a poll, in ms; None before a broker returned one."""
        self._check()
        return self._share.lock_ms

    @property
    def member_id(self) -> str:
        """Return the member id of this consumer."""
        self._check()
        return self._share.member_id

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over records until the consumer is closed."""
        self._check()
        while not self._calls.is_ended:
            records = await self._unless_closed(self.poll)
            for record in records or ():
                yield record

    def metrics(self) -> MetricValues:
        """Return the metrics of the share consumer, by Kafka's names: `metrics().value("acknowledgements-send-total")`."""
        self._check()
        return self._share.metrics()

    async def close(self, timeout: Timeout = 30.0) -> None:
        """Accept the records of the last poll (implicit mode), release all others, leave the group."""
        await self._close(milliseconds(timeout))

    def _closing(self, timeout_ms: int) -> Coroutine[Any, None, None]:
        return self._share.close(timeout_ms)


def _settle(future: "asyncio.Future[T]", error: KafkaError | None, delivered: T | None) -> None:
    """Set the outcome of a future."""
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    elif delivered is not None:
        future.set_result(delivered)


def _outcomes(calls: Iterable[Callable[[], T]]) -> list[T | Exception]:
    """Return what each call returns or raises."""
    outcomes: list[T | Exception] = []
    for call in calls:
        try:
            outcomes.append(call())
        except Exception as error:  # noqa: BLE001  (it is the caller's)
            outcomes.append(error)
    return outcomes


class Producer(Asynchronous):
    """Writes records to topics, in batches; see `ottla.Producer`.

        async with Producer(bootstrap_servers="localhost:9092") as producer:
            await producer.produce("work", "value", key="key")

    `produce` waits for buffer memory only; `send` returns a future for the position of the appended record.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        choose: Partitioner | None = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        **options: Any,
    ) -> None:
        self._serializers = serializers_of(key_serializer, value_serializer)
        super().__init__(config, options)
        self._to_serialize: list[tuple[asyncio.Future[tuple[Any, Any]], Callable[[], tuple[Any, Any]]]] = []
        self._serializing: asyncio.Task[None] | None = None
        wake = Wakeup(self._loop.call_soon)
        self._producer = self._make_part(lambda: ProducerCore(self._core, contextlib.nullcontext(), wake, choose))
        self._interceptors = self._make_part(lambda: interceptors_of(self.config))
        wake.function = self._producer.sender.take_in
        watch(self)

    async def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = ANY,
        on_delivery: OnDelivery | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Append a record to a batch; see `ottla.Producer.produce`. `on_delivery` is called when the outcome is known.

        Serializers run in a thread, in the order of the calls, as they may have to query a schema registry.
        """
        if on_delivery is not None and not callable(on_delivery):
            raise TypeError(f"on_delivery must be a function or None, not {type(on_delivery).__name__}")
        self._check()
        interceptors = self._interceptors
        if interceptors is None:
            await self._take(topic, value, key, partition, on_delivery, timestamp, headers)
            return
        own = check_headers(headers) or ()
        record = interceptors.before_send(ProducerRecord(topic, value, key, partition, timestamp, own))
        topic, value, key, partition, timestamp, left = record
        intercepted = interceptors.listener(record, on_delivery)
        try:
            await self._take(topic, value, key, partition, intercepted, timestamp, left or None)
        except BaseException as error:
            intercepted.refuse(error)
            raise

    async def _take(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        on_delivery: OnDelivery | None,
        timestamp: int | None,
        headers: Headers | None,
    ) -> None:
        if self._serializers is not None:
            added = list(check_headers(headers) or ())  # converted once; serializers may add a header
            key, value = await self._serialize(self._serializers, topic, key, value, added)
            headers = added
        moment = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        try:
            pairs = None if headers is None else header_list(headers)
            record = (topic, partition, moment, as_bytes(key), as_bytes(value), pairs, on_delivery)
            if self._producer.append(*record):
                return
        except (TypeError, ValueError, AttributeError) as error:  # AttributeError: where nothing is compiled
            raise wrong_argument(topic, value, key, partition, timestamp, headers) or error from None
        wrong = wrong_argument(topic, value, key, partition, timestamp, headers)
        if wrong is not None:
            raise wrong
        await self._run(self._producer.append_later(*record))

    async def _serialize(
        self, serializers: Serializers, topic: str, key: Any, value: Any, headers: list[Header] | None
    ) -> tuple[Any, Any]:
        """Serialize key and value. Results come in the order of the calls; one run in a thread serializes all pending calls."""
        future: asyncio.Future[tuple[Any, Any]] = self._loop.create_future()
        self._to_serialize.append((future, partial(serializers.key_and_value, topic, key, value, headers)))
        if self._serializing is None:
            self._serializing = self._loop.create_task(self._serialize_all())
        return await future

    async def _serialize_all(self) -> None:
        calls: list[tuple[asyncio.Future[tuple[Any, Any]], Callable[[], tuple[Any, Any]]]] = []
        try:
            while self._to_serialize:
                calls, self._to_serialize = self._to_serialize, []
                outcomes = await asyncio.to_thread(_outcomes, [serialize for _, serialize in calls])
                for (future, _), outcome in zip(calls, outcomes, strict=True):
                    if future.done():
                        continue  # cancelled
                    if isinstance(outcome, Exception):
                        future.set_exception(outcome)
                    else:
                        future.set_result(outcome)
        finally:
            self._serializing = None
            for future, _ in calls:
                future.cancel()  # no effect, unless the loop ends

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = ANY,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> "asyncio.Future[Delivered]":
        """Produce a record; the future returns the position of the appended record, or raises the error."""
        future: asyncio.Future[Delivered] = self._loop.create_future()
        await self.produce(topic, value, key, partition, partial(_settle, future), timestamp, headers)
        return future

    @checked
    async def produce_arrow(
        self, data: Any, topic: str | None = None, *, partition: int = ANY
    ) -> "asyncio.Future[TableDelivered]":
        """Append the rows of Arrow tables to batches; see `ottla.Producer.produce_arrow`."""
        from ottla.client.producer.tables import TableReport, TableWriting

        self._check()
        future: asyncio.Future[TableDelivered] = self._loop.create_future()
        report = TableReport(partial(_settle, future))
        writing = TableWriting(self._producer, report, data, topic, partition)
        while writing.advance(most=_ROWS_BETWEEN_TURNS):
            await self._run(writing.ready())
            await asyncio.sleep(0)  # let other tasks of the event loop run
        report.complete(writing.taken)
        return future

    async def flush(self, timeout: Timeout = None) -> int:
        """Send all records and wait; return how many have no outcome after `timeout` seconds."""
        return await self._run(self._producer.flush(milliseconds(timeout)))

    def __len__(self) -> int:
        """Return the number of records without an outcome; 0 after `close`."""
        return 0 if self._released else self._producer.accumulator.records

    @checked
    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        return await self._run(self._producer.partitions_for(topic))

    def metrics(self) -> MetricValues:
        """Return the metrics of the producer, by Kafka's names: `metrics().value("record-send-total")`."""
        self._check()
        return self._producer.metrics()

    @checked
    async def init_transactions(self, timeout: Timeout = None) -> None:
        """Register as the only producer of transactional.id and fence all others. Raises IllegalState, FencedError."""
        await self._run(self._producer.transactional().init(limit_ms(timeout)))

    def begin_transaction(self) -> None:
        """Begin a transaction: all records produced until its end are committed or aborted together."""
        self._check()
        self._producer.transactional().begin()

    @checked
    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
        timeout: Timeout = None,
    ) -> None:
        """Add the offsets of a consumer group to the transaction."""
        await self._run(self._producer.send_offsets(offsets, group_metadata, limit_ms(timeout)))

    @checked
    async def commit_transaction(self, timeout: Timeout = None) -> None:
        """Wait until all records are acknowledged, then commit the transaction.

        timeout  limit for both steps together, in seconds; default.api.timeout.ms by default

        After RequestTimedOut no record is visible yet: call again, or abort unless the error says that the commit may
        have succeeded. After IllegalState, raised when a record or request of the transaction failed, only abort is
        possible.
        """
        await self._run(self._producer.transactional().commit(limit_ms(timeout)))

    @checked
    async def abort_transaction(self, timeout: Timeout = None) -> None:
        """Abort the transaction and discard its records; those without an acknowledgement fail with TransactionAborted.

        Raises RequestTimedOut while records are in flight to a broker that does not respond; the call can be repeated.
        """
        await self._run(self._producer.transactional().abort(limit_ms(timeout)))

    def transaction(self) -> AbstractAsyncContextManager[None]:
        """Begin a transaction that is committed at the end of the block, or aborted if it raises.

            async with producer.transaction():
                producer.produce("totals", total)

        Raises what the block or the commit raises. After RequestTimedOut of a commit the transaction is still open; any other
        error of a commit that can be aborted has aborted it.
        """
        self._check()
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        self.begin_transaction()
        try:
            yield
        except BaseException:
            with suppress(KafkaError):
                await self.abort_transaction()
            raise
        try:
            await self.commit_transaction()
        except IllegalState:
            with suppress(KafkaError):
                await self.abort_transaction()
            raise

    async def close(self, timeout: Timeout = 30.0) -> None:
        """Flush for up to `timeout` seconds; records that are not delivered by then fail."""
        try:
            await self._close(milliseconds(timeout))
        finally:
            if self._interceptors is not None:
                self._interceptors.close()

    def _closing(self, timeout_ms: int) -> Coroutine[Any, None, None]:
        return self._producer.close(timeout_ms)


class Consumer(Asynchronous):
    """Reads records of topics; see `ottla.Consumer`, which has the same methods.

        async with Consumer(bootstrap_servers="localhost:9092", group_id="readers") as consumer:
            consumer.subscribe(["work"])
            async for record in consumer:
                ...

    Rebalance listeners may be coroutine functions.
    """

    _ends_waits_first = True

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        key_deserializer: Any = None,  # Deserializer | None; Any, so that **options of one type can be given
        value_deserializer: Any = None,
        **options: Any,
    ) -> None:
        self._deserializers = deserializers_of(key_deserializer, value_deserializer)
        super().__init__(config, options)
        self._deserializing = asyncio.Lock()  # two concurrent calls would begin with the same record
        self._interceptors = interceptors = self._make_part(lambda: interceptors_of(self.config))
        on_commit = None if interceptors is None else interceptors.on_commit
        self._consumer = self._make_part(lambda: ConsumerCore(self._core, on_commit))

    @checked
    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assign: RebalanceListener | None = None,
        on_revoke: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
    ) -> None:
        """Read topics as a member of the group, in place of the previous subscription or assignment."""
        self._check()
        self._consumer.subscribe(topics, pattern, Listeners(on_assign, on_revoke, on_lost))

    async def unsubscribe(self) -> None:
        """Drop the subscription and assignment, and leave the group."""
        await self._run(self._consumer.unsubscribe())

    def subscription(self) -> list[str]:
        """Return the topics subscribed by name."""
        self._check()
        return self._consumer.subscription

    @checked
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without group membership."""
        self._check()
        self._consumer.assign([TopicPartition.of(partition) for partition in partitions])

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        self._check()
        return self._consumer.assignment

    async def poll(self, timeout: Timeout = None) -> Record | None:
        """Return the next record; None if none arrived within `timeout` seconds (None: no limit)."""
        self._check()
        if self._interceptors is not None:
            return await self._poll_intercepted(timeout)
        if self._deserializers is not None:
            return next(iter(await self._consume_objects(self._deserializers, 1, timeout)), None)
        record = self._consumer.take()
        deadline = deadline_of(timeout, time.monotonic())
        while record is None and await self._wait(deadline):
            record = self._consumer.take()
        return record

    async def _poll_intercepted(self, timeout: Timeout) -> Record | None:
        """Return the next record that the interceptors do not leave out."""
        deadline = deadline_of(timeout, time.monotonic())
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            records = await self._consume(1, left)
            if not records:
                return None
            records = self._intercept_records(records)
            if records:
                return records[0]

    def _intercept_records(self, records: list[Record]) -> list[Record]:
        return records if self._interceptors is None or not records else self._interceptors.on_consume(records)

    async def _wait(self, deadline: float | None) -> bool:
        """Wait until records may be available, and run pending listeners. Return False when the timeout expires."""
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            event = await self._run(self._consumer.wait(milliseconds(left)))
            if isinstance(event, bool):
                return event
            try:
                outcome = event.listener(event.partitions)
                if inspect.isawaitable(outcome):
                    await outcome
            finally:
                event.done.complete(None)

    async def consume(self, num_messages: int | None = None, timeout: Timeout = None) -> list[Record]:
        """Return up to `num_messages` records (default max.poll.records); empty if none arrived within `timeout` seconds.

        Raises ValueError if `num_messages` is negative; 0 returns an empty list at once.
        """
        most = records_wanted(num_messages, self.config["max.poll.records"])
        self._check()
        if most == 0:
            return []
        return self._intercept_records(await self._consume(most, timeout))

    async def _consume(self, most: int, timeout: Timeout) -> list[Record]:
        if self._deserializers is not None:
            return await self._consume_objects(self._deserializers, most, timeout)
        deadline = deadline_of(timeout, time.monotonic())
        records = self._consumer.take_many(most)
        while not records and await self._wait(deadline):  # no await afterwards: a cancellation would lose records
            records = self._consumer.take_many(most)
        return records

    async def _consume_objects(self, deserializers: Deserializers, most: int, timeout: Timeout) -> list[Record]:
        """Return deserialized records of one chunk, as `consume` does.

        The position moves past a record once it is deserialized, so a cancelled call loses no record. It moves past an
        unreadable record when its error is raised: by the next call, if readable records come before it."""
        deadline = deadline_of(timeout, time.monotonic())
        async with self._deserializing:
            while True:
                records = self._consumer.peek_many(most)
                if not records:
                    if not await self._wait(deadline):
                        return []
                    continue
                # In a thread: deserializers may have to query a schema registry.
                objects, unreadable = await asyncio.to_thread(deserializers.records, records)
                if self._consumer.advance(records, len(objects) or 1):
                    if unreadable is not None and not objects:
                        raise unreadable
                    return objects

    async def poll_arrow(self, timeout: Timeout = None, *, columns: Sequence[str] | None = None) -> "pa.Table | None":
        """Return the records of one fetch as an Arrow table; see `ottla.Consumer.poll_arrow`."""
        from ottla.client.consumer.tables import table_of

        self._check()
        batches = self._consumer.take_batches()
        deadline = deadline_of(timeout, time.monotonic())
        while batches is None and await self._wait(deadline):
            batches = self._consumer.take_batches()
        return None if batches is None else table_of(*batches, columns=columns)

    async def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over records until the consumer is closed."""
        self._check()
        while not self._calls.is_ended:
            record = await self._unless_closed(self.poll)
            if record is not None:
                yield record

    @checked
    async def position(self, partition: TopicPartition, timeout: Timeout = 60.0) -> int:
        """Return the offset of the next record."""
        return await self._run(self._consumer.position(partition, milliseconds(timeout)))

    @checked
    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the position to an offset; one with a leader epoch is validated first (KIP-320)."""
        self._check()
        self._consumer.seek(TopicPartition.of(partition), offset)

    @checked
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Set the positions of partitions (default: all) to their first offsets."""
        self._check()
        self._consumer.seek_to(partitions, EARLIEST)

    @checked
    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Set the positions of partitions (default: all) to their end offsets."""
        self._check()
        self._consumer.seek_to(partitions, LATEST)

    @checked
    async def seek_to_committed(self, partitions: Iterable[TopicPartition] = (), timeout: Timeout = None) -> None:
        """Set the positions of partitions (default: all) to the committed offsets, so that what was read since is read again;
        by auto.offset.reset where the group has none.
        """
        await self._run(self._consumer.seek_to_committed(list(partitions), limit_ms(timeout)))

    @checked
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed."""
        self._check()
        self._consumer.pause([TopicPartition.of(partition) for partition in partitions])

    @checked
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume paused partitions."""
        self._check()
        self._consumer.resume([TopicPartition.of(partition) for partition in partitions])

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        self._check()
        return self._consumer.paused

    @checked
    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records between the position and the end; None before a fetch has returned the end."""
        self._check()
        return self._consumer.lag(partition)

    @checked
    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the offset behind the last committed record, as the last fetch returned it; None before one."""
        self._check()
        return self._consumer.high_watermark(partition)

    def enforce_rebalance(self) -> None:
        """Join the group again at the next poll, for a new assignment (KIP-568).

        Members of groups with the consumer protocol get theirs from the broker, which computes one only if something has
        changed. Raises IllegalState without a subscription.
        """
        self._check()
        self._consumer.enforce_rebalance()

    @checked
    async def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """Return the first offset at or after a time in ms; offset -1 if there is no such record."""
        return await self._run(self._consumer.offsets_at(timestamps))

    @checked
    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        offsets = await self._run(self._consumer.offsets_at(dict.fromkeys(partitions, EARLIEST)))
        return {partition: entry.offset for partition, entry in offsets.items()}

    @checked
    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset (that of the next record) of each partition; the last stable offset with read_committed."""
        offsets = await self._run(self._consumer.offsets_at(dict.fromkeys(partitions, LATEST)))
        return {partition: entry.offset for partition, entry in offsets.items()}

    @checked
    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit offsets, by default the positions, and wait; return the committed offsets."""
        return await self._run(self._consumer.commit(offsets, limit_ms(timeout)))

    @checked
    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the group; partitions without a commit are left out."""
        return await self._run(self._consumer.committed(partitions, limit_ms(timeout)))

    def consumer_group_metadata(self) -> GroupMetadata:
        """Return the ids and generation of this member, for a producer's transaction."""
        self._check()
        return self._consumer.group_metadata

    def metrics(self) -> MetricValues:
        """Return the metrics of the consumer, by Kafka's names: `metrics().value("records-lag-max")`."""
        self._check()
        return self._consumer.metrics()

    async def close(self, timeout: Timeout = 30.0) -> None:
        """Commit the positions (enable.auto.commit) and leave the group."""
        try:
            await self._close(milliseconds(timeout))
        finally:
            if self._interceptors is not None:
                self._interceptors.close()

    def _closing(self, timeout_ms: int) -> Coroutine[Any, None, None]:
        return self._consumer.close(timeout_ms)


def _awaits(
    method: Callable[Concatenate[AdminCore, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], Coroutine[Any, Any, T]]:
    """Convert a method of the core to an asyncio coroutine function."""

    async def awaiting(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        check_call(method, (self, *args), kwargs)
        return await self._run(method(self._admin, *args, **kwargs))

    update_wrapper(awaiting, method)
    return awaiting


class Admin(Asynchronous):
    """Administrative requests to a cluster; see `ottla.Admin`, which has the same methods."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        super().__init__(config, options)
        self._admin = self._make_part(lambda: AdminCore(self._core))

    def _closing(self, timeout_ms: int) -> Coroutine[Any, None, None]:
        del timeout_ms
        return self._admin.close()

    create_topics = _awaits(AdminCore.create_topics)
    create_partitions = _awaits(AdminCore.create_partitions)
    delete_topics = _awaits(AdminCore.delete_topics)
    list_topics = _awaits(AdminCore.list_topics)
    describe_topics = _awaits(AdminCore.describe_topics)
    delete_records = _awaits(AdminCore.delete_records)
    list_offsets = _awaits(AdminCore.list_offsets)
    describe_configs = _awaits(AdminCore.describe_configs)
    alter_configs = _awaits(AdminCore.alter_configs)
    incremental_alter_configs = _awaits(AdminCore.incremental_alter_configs)
    list_config_resources = _awaits(AdminCore.list_config_resources)
    list_groups = _awaits(AdminCore.list_groups)
    delete_groups = _awaits(AdminCore.delete_groups)
    describe_consumer_groups = _awaits(AdminCore.describe_consumer_groups)
    describe_classic_groups = _awaits(AdminCore.describe_classic_groups)
    list_consumer_group_offsets = _awaits(AdminCore.list_consumer_group_offsets)
    alter_consumer_group_offsets = _awaits(AdminCore.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _awaits(AdminCore.delete_consumer_group_offsets)
    remove_members_from_consumer_group = _awaits(AdminCore.remove_members_from_consumer_group)
    describe_streams_groups = _awaits(AdminCore.describe_streams_groups)
    describe_share_groups = _awaits(AdminCore.describe_share_groups)
    list_share_group_offsets = _awaits(AdminCore.list_share_group_offsets)
    alter_share_group_offsets = _awaits(AdminCore.alter_share_group_offsets)
    delete_share_group_offsets = _awaits(AdminCore.delete_share_group_offsets)
    describe_cluster = _awaits(AdminCore.describe_cluster)
    api_versions = _awaits(AdminCore.api_versions)
    describe_features = _awaits(AdminCore.describe_features)
    describe_metadata_quorum = _awaits(AdminCore.describe_metadata_quorum)
    update_features = _awaits(AdminCore.update_features)
    unregister_broker = _awaits(AdminCore.unregister_broker)
    describe_log_dirs = _awaits(AdminCore.describe_log_dirs)
    alter_replica_log_dirs = _awaits(AdminCore.alter_replica_log_dirs)
    alter_partition_reassignments = _awaits(AdminCore.alter_partition_reassignments)
    list_partition_reassignments = _awaits(AdminCore.list_partition_reassignments)
    elect_leaders = _awaits(AdminCore.elect_leaders)
    describe_client_quotas = _awaits(AdminCore.describe_client_quotas)
    alter_client_quotas = _awaits(AdminCore.alter_client_quotas)
    describe_user_scram_credentials = _awaits(AdminCore.describe_user_scram_credentials)
    alter_user_scram_credentials = _awaits(AdminCore.alter_user_scram_credentials)
    create_delegation_token = _awaits(AdminCore.create_delegation_token)
    renew_delegation_token = _awaits(AdminCore.renew_delegation_token)
    expire_delegation_token = _awaits(AdminCore.expire_delegation_token)
    describe_delegation_token = _awaits(AdminCore.describe_delegation_token)
    create_acls = _awaits(AdminCore.create_acls)
    describe_acls = _awaits(AdminCore.describe_acls)
    delete_acls = _awaits(AdminCore.delete_acls)
    describe_producers = _awaits(AdminCore.describe_producers)
    list_transactions = _awaits(AdminCore.list_transactions)
    describe_transactions = _awaits(AdminCore.describe_transactions)
    find_hanging_transactions = _awaits(AdminCore.find_hanging_transactions)
    abort_transaction = _awaits(AdminCore.abort_transaction)
    fence_producers = _awaits(AdminCore.fence_producers)
    force_terminate_transaction = _awaits(AdminCore.force_terminate_transaction)
