"""Blocking clients: a thin API over the core that `ottla.aio` uses as well.

The core runs on an event loop in a thread that all blocking clients share; a call waits for the result of the core. This
file holds no logic of its own. Timeouts are seconds, as in confluent-kafka.

One file, because the four classes are one public API, with the same method names in the same order as in `aio.py`.
"""

import concurrent.futures
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ottla.client.admin.core import AdminCore
from ottla.client.calls import check_call, checked
from ottla.client.config import ClientConfig
from ottla.client.consumer.chunks import Batches, Chunk
from ottla.client.consumer.core import ConsumerCore, whole_offsets
from ottla.client.consumer.rebalance import Handover, Listeners
from ottla.client.consumer.rebalance import Listener as RebalanceListener
from ottla.client.errors import IllegalState, KafkaError
from ottla.client.groups import GroupMetadata, OffsetAndMetadata
from ottla.client.interceptors import ProducerRecord, interceptors_of
from ottla.client.metrics import MetricValues
from ottla.client.producer.accumulator import ANY, APPENDED
from ottla.client.producer.closed import Delivered, Listener
from ottla.client.producer.contents import Headers, OnDelivery, check_headers, header_list, wrong_argument
from ottla.client.producer.core import ProducerCore
from ottla.client.producer.partitioners import Partitioner
from ottla.client.producer.undelivered import watch
from ottla.client.producer.wakeup import Wakeup
from ottla.client.serialization import (
    Deserializers,
    deserializers_of,
    fetched_record,
    serializers_of,
    share_deserializers_of,
)
from ottla.client.share.consumer import CommitCallback, CommitResults, ShareConsumerCore
from ottla.client.share.delivery import AcknowledgeType
from ottla.client.topics import EARLIEST, LATEST, FoundOffset, TopicPartition
from ottla.client.waiting import Blocking, Timeout, deadline_of, limit_ms, milliseconds, records_wanted
from ottla.environment.thread import LoopThread
from ottla.records.record import Record
from ottla.schemas.context import Serializer

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.producer.tables import TableDelivered

T = TypeVar("T")
P = ParamSpec("P")


class ShareConsumer(Blocking):
    """Member of a share group (KIP-932): records are distributed among the members and acknowledged one by one.

    In implicit mode the next poll accepts all records of the previous one. With share_acknowledgement_mode="explicit" the
    application acknowledges each record by `acknowledge`; `commit` or the next poll sends the acknowledgements.

        with ShareConsumer(bootstrap_servers="localhost:9092", group_id="jobs") as consumer:
            consumer.subscribe(["work"])
            for record in consumer:
                ...

    Not thread-safe. Raises InvalidClientConfig.

    member_id  id of a failed member to resume; a new id by default
    key_deserializer, value_deserializer  (bytes, SerializationContext) -> object: `poll` and iteration return deserialized
                                          records. One that cannot be read is released, and the poll after that raises
                                          UnreadableRecord
    """

    _ends_waits_first = True

    def __init__(
        self,
        config: Mapping[str, Any] | ClientConfig | None = None,
        /,
        *,
        member_id: str | None = None,
        key_deserializer: Any = None,  # Deserializer | None; Any, so that **options of one type can be given
        value_deserializer: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(config, options)
        self._share = self._make_part(lambda: ShareConsumerCore(self._core, member_id))
        self._deserializers = share_deserializers_of(key_deserializer, value_deserializer)

    @checked
    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to these topics, in place of the previous ones."""
        names = list(topics)
        self._call(lambda: self._share.subscribe(names))

    def unsubscribe(self) -> None:
        """Leave the group; records without an acknowledgement are released."""
        self._run(self._share.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._share.subscription

    def poll(self, timeout: Timeout = None) -> list[Record]:
        """Return up to max.poll.records records; an empty list if none arrived within `timeout` seconds (None: no limit).

        Raises IllegalState while records of the last poll are not acknowledged (explicit mode), CorruptBatch, NotAuthorized
        and other KafkaErrors that cannot be retried; UnreadableRecord for a record of an earlier poll that no deserializer
        could read.
        """
        deserializers = self._deserializers
        if deserializers is None:
            return self._run(self._share.poll(milliseconds(timeout)))
        deserializers.raise_earlier()
        records = self._run(self._share.poll(milliseconds(timeout)))
        return deserializers.finish_poll(*deserializers.read(records), self._share.release)

    def acknowledge(self, record: Record, kind: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Set the acknowledgement of a record of the last poll (explicit mode). Raises IllegalState, TypeError."""
        record = fetched_record(record)
        if type(record) is not Record or type(kind) is not AcknowledgeType:  # a check of every record would be slow
            check_call(ShareConsumer.acknowledge, (self, record, kind), {})
        self._share.acknowledge(record, kind)

    @checked
    def commit(self, timeout: Timeout = 60.0) -> CommitResults:
        """Send the acknowledgements and wait; return partition -> None or its error. Raises RequestTimedOut."""
        return self._run(self._share.commit(milliseconds(timeout)))

    def commit_async(self) -> None:
        """Send the acknowledgements; the callback is called with the outcome."""
        self._call(self._share.commit_soon)

    @checked
    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Set the callback, run on the client's thread as `callback({partition: offsets}, error)` after each response."""
        self._share.callback = callback

    def acquisition_lock_timeout_ms(self) -> int | None:
        """Acquisition lock timeout of the records of a poll, in ms; None before a broker returned one."""
        return self._share.lock_ms

    @property
    def member_id(self) -> str:
        """Return the member id of this consumer."""
        return self._share.member_id

    def __iter__(self) -> Iterator[Record]:
        """Iterate over records until the consumer is closed."""
        self._check()
        while not self._calls.is_ended:
            records = self._unless_closed(self.poll)
            yield from records or ()

    def metrics(self) -> MetricValues:
        """Return the metrics of the share consumer, by Kafka's names: `metrics().value("acknowledgements-send-total")`."""
        return self._call(self._share.metrics)

    def close(self, timeout: Timeout = 30.0) -> None:
        """Accept the records of the last poll (implicit mode), release all others, leave the group."""
        self._close(milliseconds(timeout))

    def _closing(self, timeout_ms: int) -> Coroutine[Any, None, None]:
        return self._share.close(timeout_ms)


Report = tuple[OnDelivery, KafkaError | None, Delivered | None]
"""Callback of a record, and its arguments."""


def _run_callbacks(reports: deque[Report]) -> int:
    """Run the pending callbacks; return their number."""
    count = 0
    while reports:
        on_delivery, error, delivered = reports.popleft()
        on_delivery(error, delivered)
        count += 1
    return count


def _settle(future: "concurrent.futures.Future[T]", error: KafkaError | None, delivered: T | None) -> None:
    """Set the outcome of a future."""
    if error is not None:
        future.set_exception(error)
    elif delivered is not None:
        future.set_result(delivered)


class Producer(Blocking):
    """Writes records to topics, in batches, exactly once per record as far as brokers can (enable.idempotence).

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.produce("work", "value", key="key")

    A record is buffered at once and sent in the background; `flush`, or the end of the block, waits for the delivery of
    all records. Strings are sent as UTF-8. Any thread may produce. Raises InvalidClientConfig.

    partitioner                       (topic buffers, key) -> partition, in place of the config `partitioner`
    key_serializer, value_serializer  (object, SerializationContext) -> bytes: `produce` and `send` take what these take; see
                                      `ottla.schemas`
    """

    def __init__(
        self,
        config: Mapping[str, Any] | ClientConfig | None = None,
        /,
        *,
        choose: Partitioner | None = None,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        **options: Any,
    ) -> None:
        self._serializers = serializers_of(key_serializer, value_serializer)
        super().__init__(config, options)
        self._reports: deque[Report] = deque()
        wake = Wakeup(self._thread.post)
        self._producer = self._make_part(lambda: ProducerCore(self._core, threading.Lock(), wake, choose))
        wake.function = partial(self._core.scheduler.run_event, self._producer.sender.take_in)
        self._append = self._producer.accumulator.append if self._producer.transactions is None else None
        self._interceptors = self._make_part(lambda: interceptors_of(self.config))
        watch(self)

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = ANY,
        on_delivery: OnDelivery | None = None,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> None:
        """Append a record to a batch, which is sent in the background.

        value, key   str, bytes or None; with serializers any object that they accept
        partition    partition of the record; chosen by the partitioner unless given
        on_delivery  called with (error, None) or (None, Delivered) from `poll` or `flush`
        timestamp    ms since the epoch; now, unless given

        Waits while buffer.memory is full, at most max.block.ms. Raises BufferExhausted, UnknownTopic, RecordTooLarge,
        ValueError for a negative timestamp, and TypeError for an argument of another type.
        """
        if on_delivery is not None and not callable(on_delivery):
            raise TypeError(f"on_delivery must be a function or None, not {type(on_delivery).__name__}")
        listener = None if on_delivery is None else partial(self._queue_callback, on_delivery)
        if self._interceptors is None:
            self._take(topic, value, key, partition, listener, timestamp, headers)
        else:
            self._intercept(topic, value, key, partition, listener, timestamp, headers)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = ANY,
        timestamp: int | None = None,
        headers: Headers | None = None,
    ) -> "concurrent.futures.Future[Delivered]":
        """Produce a record; the future returns the position of the appended record, or raises the error."""
        future: concurrent.futures.Future[Delivered] = concurrent.futures.Future()
        take = self._take if self._interceptors is None else self._intercept
        take(topic, value, key, partition, partial(_settle, future), timestamp, headers)
        return future

    def _intercept(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        listener: Listener | None,
        timestamp: int | None,
        headers: Headers | None,
    ) -> None:
        """Take a record as the interceptors leave it."""
        if self._interceptors is None:
            self._take(topic, value, key, partition, listener, timestamp, headers)
            return
        own = check_headers(headers) or ()
        record = self._interceptors.before_send(ProducerRecord(topic, value, key, partition, timestamp, own))
        topic, value, key, partition, timestamp, left = record
        intercepted = self._interceptors.listener(record, listener)
        try:
            self._take(topic, value, key, partition, intercepted, timestamp, left or None)
        except BaseException as error:
            intercepted.refuse(error)
            raise

    def _take(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int,
        listener: Listener | None,
        timestamp: int | None,
        headers: Headers | None,
    ) -> None:
        if self._serializers is not None:
            added = list(check_headers(headers) or ())  # converted once; serializers may add a header
            key, value = self._serializers.key_and_value(topic, key, value, added)
            headers = added
        moment = time.time_ns() // 1_000_000 if timestamp is None else timestamp
        if isinstance(value, str):
            value = value.encode()
        if isinstance(key, str):
            key = key.encode()
        try:
            pairs = None if headers is None else header_list(headers)
            if self._append is not None:
                # Fast path of nearly every record; a record that cannot be appended at once takes the slow path below.
                taken = self._append(topic, partition, moment, key, value, pairs, listener)
                if taken == APPENDED or self._producer.check_append_result(taken, topic, partition, key, value):
                    return
            elif self._producer.append(topic, partition, moment, key, value, pairs, listener):
                return
        except (TypeError, ValueError, AttributeError) as error:  # AttributeError: where nothing is compiled
            raise wrong_argument(topic, value, key, partition, timestamp, headers) or error from None
        wrong = wrong_argument(topic, value, key, partition, timestamp, headers)
        if wrong is not None:
            raise wrong
        self._run(self._producer.append_later(topic, partition, moment, key, value, pairs, listener))

    @checked
    def produce_many(
        self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None, partition: int = ANY
    ) -> int:
        """Append many records of a topic to batches; return their number."""
        count = 0
        take = self._take if self._interceptors is None else self._intercept
        if keys is None:
            for value in values:
                take(topic, value, None, partition, None, None, None)
                count += 1
            return count
        for value, key in zip(values, keys, strict=True):
            take(topic, value, key, partition, None, None, None)
            count += 1
        return count

    @checked
    def produce_arrow(
        self, data: Any, topic: str | None = None, *, partition: int = ANY
    ) -> "concurrent.futures.Future[TableDelivered]":
        """Append the rows of Arrow tables to batches, without creating an object for each row.

        data       a pyarrow Table or RecordBatch, an iterable or reader of batches, a data frame with Arrow support (pandas,
                   polars)
        topic      topic of all rows; by default that in the column `topic`
        partition  partition of rows without one in the column `partition`

        Columns: value and key (string or binary of any kind, null), headers (list<struct<key, value>>), partition (integer,
        null: chosen by the key), timestamp (any unit, or integers in ms; null: now), topic. Other columns are ignored.

        The future returns a summary when all records are acknowledged, or raises the first error; a table stops at the
        first record that fails. Waits for memory as `produce` does. Raises ValueError for unsuitable columns, TypeError
        for data that is not a table, ImportError without pyarrow. Raises UnknownTopic, RecordTooLarge or BufferExhausted
        for a row; the rows before it are sent all the same.
        """
        from ottla.client.producer.tables import TableReport, TableWriting

        future: concurrent.futures.Future[TableDelivered] = concurrent.futures.Future()
        report = TableReport(partial(_settle, future))
        writing = TableWriting(self._producer, report, data, topic, partition)
        while writing.advance():
            self._run(writing.ready())
        self._call(lambda: report.complete(writing.taken))
        return future

    def _queue_callback(self, on_delivery: OnDelivery, error: KafkaError | None, delivered: Delivered | None) -> None:
        """Queue a delivery callback. Runs on the core's thread; `poll` and `flush` run the callbacks on the caller's thread."""
        self._reports.append((on_delivery, error, delivered))

    def poll(self, timeout: Timeout = 0.0) -> int:
        """Run the pending `on_delivery` callbacks and return their number. Waits up to `timeout` seconds for the first."""
        deadline = deadline_of(timeout, time.monotonic())
        self._check()
        while not self._reports and (deadline is None or time.monotonic() < deadline):
            time.sleep(0.001)
            self._check()
        return _run_callbacks(self._reports)

    def flush(self, timeout: Timeout = None) -> int:
        """Send all records, wait for their outcomes, and run callbacks; return how many remain after `timeout` seconds."""
        left = self._run(self._producer.flush(milliseconds(timeout)))
        self.poll()
        return left

    def __len__(self) -> int:
        """Return the number of records without an outcome; 0 after `close`."""
        return 0 if self._released else self._producer.accumulator.records

    @checked
    def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic."""
        return self._run(self._producer.partitions_for(topic))

    def metrics(self) -> MetricValues:
        """Return the metrics of the producer, by Kafka's names: `metrics().value("record-send-total")`."""
        return self._call(self._producer.metrics)

    @checked
    def init_transactions(self, timeout: Timeout = None) -> None:
        """Register as the only producer of transactional.id and fence all others. Raises IllegalState, FencedError."""
        self._run(self._producer.transactional().init(limit_ms(timeout)))

    def begin_transaction(self) -> None:
        """Begin a transaction: all records produced until its end are committed or aborted together."""
        self._call(self._producer.transactional().begin)

    @checked
    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
        timeout: Timeout = None,
    ) -> None:
        """Add the offsets of a consumer group to the transaction."""
        self._run(self._producer.send_offsets(offsets, group_metadata, limit_ms(timeout)))

    @checked
    def commit_transaction(self, timeout: Timeout = None) -> None:
        """Wait until all records are acknowledged, then commit the transaction.

        timeout  limit for both steps together, in seconds; default.api.timeout.ms by default

        After RequestTimedOut no record is visible yet: call again, or abort unless the error says that the commit may
        have succeeded. After IllegalState, raised when a record or request of the transaction failed, only abort is
        possible.
        """
        self._run(self._producer.transactional().commit(limit_ms(timeout)))
        self.poll()

    @checked
    def abort_transaction(self, timeout: Timeout = None) -> None:
        """Abort the transaction and discard its records; those without an acknowledgement fail with TransactionAborted.

        Raises RequestTimedOut while records are in flight to a broker that does not respond; the call can be repeated.
        """
        self._run(self._producer.transactional().abort(limit_ms(timeout)))
        self.poll()

    def transaction(self) -> AbstractContextManager[None]:
        """Begin a transaction that is committed at the end of the block, or aborted if it raises.

            with producer.transaction():
                producer.produce("totals", total)

        Raises what the block or the commit raises. After RequestTimedOut of a commit the transaction is still open; any other
        error of a commit that can be aborted has aborted it.
        """
        self._check()
        return self._transaction()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.begin_transaction()
        try:
            yield
        except BaseException:
            with suppress(KafkaError):
                self.abort_transaction()
            raise
        try:
            self.commit_transaction()
        except IllegalState:
            with suppress(KafkaError):
                self.abort_transaction()
            raise

    def close(self, timeout: Timeout = 30.0) -> None:
        """Flush for up to `timeout` seconds; records that are not delivered by then fail. Run callbacks."""
        try:
            self._close(milliseconds(timeout))
            _run_callbacks(self._reports)
        finally:
            if self._interceptors is not None:
                self._interceptors.close()

    def _closing(self, timeout_ms: int) -> Coroutine[Any, None, None]:
        return self._producer.close(timeout_ms)


class Consumer(Blocking):
    """Reads records of topics, as a member of a group or by itself.

        with Consumer(bootstrap_servers="localhost:9092", group_id="readers") as consumer:
            consumer.subscribe(["work"])
            for record in consumer:
                ...

    Not thread-safe. Timeouts are seconds. Raises InvalidClientConfig.

    key_deserializer, value_deserializer  (bytes, SerializationContext) -> object: `poll`, `consume` and iteration return
                                          records with deserialized keys and values (DeserializedRecord); see
                                          `ottla.schemas`
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
        self._interceptors = interceptors = self._make_part(lambda: interceptors_of(self.config))
        on_commit = None if interceptors is None else interceptors.on_commit
        self._consumer = self._make_part(lambda: ConsumerCore(self._core, on_commit))
        thread = self._thread
        more_room = self._consumer.more_room
        self._consumer.more_room = lambda chunk: _post(thread, more_room, chunk)

    # Subscriptions and assignments.

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
        """Read topics as a member of the group, in place of the previous subscription or assignment.

        pattern   all topics whose whole name matches: Python's syntax with classic groups, RE2's (on the broker) with
                  group.protocol=consumer
        on_*      listeners, called inside `poll` with the list of partitions that were assigned, revoked or lost
        """
        names = list(topics)
        listeners = Listeners(on_assign, on_revoke, on_lost)
        self._call(lambda: self._consumer.subscribe(names, pattern, listeners))

    def unsubscribe(self) -> None:
        """Drop the subscription and assignment, and leave the group."""
        self._run(self._consumer.unsubscribe())

    def subscription(self) -> list[str]:
        """Return the topics subscribed by name."""
        return self._consumer.subscription

    @checked
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, without group membership."""
        assigned = [TopicPartition.of(partition) for partition in partitions]
        self._call(lambda: self._consumer.assign(assigned))

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return self._call(lambda: self._consumer.assignment)

    # Records.

    def poll(self, timeout: Timeout = None) -> Record | None:
        """Return the next record; None if none arrived within `timeout` seconds (None: no limit).

        Raises NoOffset, OffsetOutOfRange (auto.offset.reset=none), CorruptBatch, NotAuthorized and other KafkaErrors that
        cannot be retried. Raises UnreadableRecord when a deserializer fails; the next poll continues after that record.
        """
        if self._interceptors is not None:
            return self._poll_intercepted(timeout)
        if self._deserializers is not None:
            return next(iter(self._consume_objects(self._deserializers, 1, timeout)), None)
        record = self._consumer.take()
        if record is not None:
            return record
        deadline = deadline_of(timeout, time.monotonic())
        while self._wait(deadline):
            record = self._consumer.take()
            if record is not None:
                return record
        return None

    def _poll_intercepted(self, timeout: Timeout) -> Record | None:
        """Return the next record that the interceptors do not leave out."""
        deadline = deadline_of(timeout, time.monotonic())
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            records = self._consume(1, left)
            if not records:
                return None
            records = self._intercept_records(records)
            if records:
                return records[0]

    def _intercept_records(self, records: list[Record]) -> list[Record]:
        return records if self._interceptors is None or not records else self._interceptors.on_consume(records)

    def _wait(self, deadline: float | None) -> bool:
        """Wait until records may be available, and run pending listeners. Return False when the timeout expires."""
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            event = self._run(self._consumer.wait(milliseconds(left)))
            if isinstance(event, bool):
                return event
            self._run_listener(event)

    def _run_listener(self, handover: Handover) -> None:
        """Run a rebalance listener on the caller's thread."""
        try:
            handover.listener(handover.partitions)
        finally:
            self._call(lambda: handover.done.complete(None))

    def consume(self, num_messages: int | None = None, timeout: Timeout = None) -> list[Record]:
        """Return up to `num_messages` records (default max.poll.records); empty if none arrived within `timeout` seconds.

        Raises ValueError if `num_messages` is negative; 0 returns an empty list at once.
        """
        most = records_wanted(num_messages, self.config["max.poll.records"])
        if most == 0:
            return self._consumer.take_many(0)
        return self._intercept_records(self._consume(most, timeout))

    def _consume(self, most: int, timeout: Timeout) -> list[Record]:
        if self._deserializers is not None:
            return self._consume_objects(self._deserializers, most, timeout)
        deadline = deadline_of(timeout, time.monotonic())
        records = self._consumer.take_many(most)
        while not records and self._wait(deadline):
            records = self._consumer.take_many(most)
        return records

    def _consume_objects(self, deserializers: Deserializers, most: int, timeout: Timeout) -> list[Record]:
        """Return deserialized records of one chunk, as `consume` does.

        The position moves past a record once it is deserialized. It moves past an unreadable record when its error is
        raised: by the next call, if readable records come before it."""
        deadline = deadline_of(timeout, time.monotonic())
        while True:
            records = self._consumer.peek_many(most)
            if not records:
                if not self._wait(deadline):
                    return []
                continue
            objects, unreadable = deserializers.records(records)
            if self._consumer.advance(records, len(objects) or 1):
                if unreadable is not None and not objects:
                    raise unreadable
                return objects

    def poll_batches(self, timeout: Timeout = None) -> tuple[TopicPartition, bytes, int, int] | None:
        """Return whole record batches as stored by the broker: partition, bytes, first requested offset, next offset."""
        taken = self._take_batches(timeout)
        if taken is None:
            return None
        partition, batches, position, next_offset = taken
        return partition, batches.copy(), position, next_offset

    def _take_batches(self, timeout: Timeout) -> tuple[TopicPartition, Batches, int, int] | None:
        taken = self._consumer.take_batches()
        deadline = deadline_of(timeout, time.monotonic())
        while taken is None and self._wait(deadline):
            taken = self._consumer.take_batches()
        return taken

    def poll_arrow(self, timeout: Timeout = None, *, columns: Sequence[str] | None = None) -> "pa.Table | None":
        """Return the records of one fetch as an Arrow table; None when none came within `timeout` seconds.

        columns  of key, value, topic, partition, offset, timestamp, timestampType, headers; all but headers unless given

        Requires pyarrow.
        """
        from ottla.client.consumer.tables import table_of

        taken = self._take_batches(timeout)
        return None if taken is None else table_of(*taken, columns=columns)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over records until the consumer is closed."""
        self._check()
        while not self._calls.is_ended:
            record = self._unless_closed(self.poll)
            if record is not None:
                yield record

    # Positions.

    @checked
    def position(self, partition: TopicPartition, timeout: Timeout = 60.0) -> int:
        """Return the offset of the next record."""
        return self._run(self._consumer.position(partition, milliseconds(timeout)))

    @checked
    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the position to an offset; one with a leader epoch is validated first (KIP-320)."""
        self._call(lambda: self._consumer.seek(TopicPartition.of(partition), offset))

    @checked
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Set the positions of partitions (default: all) to their first offsets."""
        chosen = list(partitions)
        self._call(lambda: self._consumer.seek_to(chosen, EARLIEST))

    @checked
    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Set the positions of partitions (default: all) to their end offsets."""
        chosen = list(partitions)
        self._call(lambda: self._consumer.seek_to(chosen, LATEST))

    @checked
    def seek_to_committed(self, partitions: Iterable[TopicPartition] = (), timeout: Timeout = None) -> None:
        """Set the positions of partitions (default: all) to the committed offsets, so that what was read since is read again;
        by auto.offset.reset where the group has none.
        """
        self._run(self._consumer.seek_to_committed(list(partitions), limit_ms(timeout)))

    @checked
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until they are resumed."""
        chosen = [TopicPartition.of(partition) for partition in partitions]
        self._call(lambda: self._consumer.pause(chosen))

    @checked
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume paused partitions."""
        chosen = [TopicPartition.of(partition) for partition in partitions]
        self._call(lambda: self._consumer.resume(chosen))

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        return self._call(lambda: self._consumer.paused)

    @checked
    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of records between the position and the end; None before a fetch has returned the end."""
        return self._call(lambda: self._consumer.lag(partition))

    @checked
    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the offset behind the last committed record, as the last fetch returned it; None before one."""
        return self._call(lambda: self._consumer.high_watermark(partition))

    def enforce_rebalance(self) -> None:
        """Join the group again at the next poll, for a new assignment (KIP-568).

        Members of groups with the consumer protocol get theirs from the broker, which computes one only if something has
        changed. Raises IllegalState without a subscription.
        """
        self._call(self._consumer.enforce_rebalance)

    @checked
    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """Return the first offset at or after a time in ms; offset -1 if there is no such record."""
        return self._run(self._consumer.offsets_at(timestamps))

    @checked
    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        offsets = self._run(self._consumer.offsets_at(dict.fromkeys(partitions, EARLIEST)))
        return {partition: entry.offset for partition, entry in offsets.items()}

    @checked
    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset (that of the next record) of each partition; the last stable offset with read_committed."""
        offsets = self._run(self._consumer.offsets_at(dict.fromkeys(partitions, LATEST)))
        return {partition: entry.offset for partition, entry in offsets.items()}

    # Commits.

    @checked
    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Commit offsets, by default the positions, and wait; return the committed offsets."""
        return self._run(self._consumer.commit(offsets, limit_ms(timeout)))

    @checked
    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        callback: Callable[[KafkaError | None, dict[TopicPartition, OffsetAndMetadata]], object] | None = None,
    ) -> None:
        """Commit offsets, by default the positions, in the background; the callback runs on the client's thread."""
        positions = self._call(self._consumer.positions_to_commit) if offsets is None else whole_offsets(offsets)

        async def commit() -> None:
            failed: KafkaError | None = None
            try:
                await self._consumer.commit(positions, None)
            except KafkaError as error:
                failed = error
            if callback is not None:
                callback(failed, positions)

        self._call(lambda: self._core.scheduler.background(commit(), "commit"))

    @checked
    def committed(
        self, partitions: Iterable[TopicPartition], timeout: Timeout = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the group; partitions without a commit are left out."""
        return self._run(self._consumer.committed(partitions, limit_ms(timeout)))

    def consumer_group_metadata(self) -> GroupMetadata:
        """Return the ids and generation of this member, for a producer's transaction."""
        return self._call(lambda: self._consumer.group_metadata)

    def metrics(self) -> MetricValues:
        """Return the metrics of the consumer, by Kafka's names: `metrics().value("records-lag-max")`."""
        return self._call(self._consumer.metrics)

    def close(self, timeout: Timeout = 30.0) -> None:
        """Commit the positions (enable.auto.commit) and leave the group."""
        try:
            self._close(milliseconds(timeout))
        finally:
            if self._interceptors is not None:
                self._interceptors.close()

    def _closing(self, timeout_ms: int) -> Coroutine[Any, None, None]:
        return self._consumer.close(timeout_ms)


def _post(thread: LoopThread, function: Callable[[Chunk], None], chunk: Chunk) -> None:
    try:  # noqa: SIM105  (a context manager takes as long as the rest)
        thread.post(partial(function, chunk))
    except RuntimeError:  # the event loop is closed, and with it the consumer
        pass


def _waits(
    method: Callable[Concatenate[AdminCore, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["Admin", P], T]:
    """Convert a coroutine method of the core to a blocking method."""

    def waiting(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        check_call(method, (self, *args), kwargs)
        return self._run(method(self._admin, *args, **kwargs))

    update_wrapper(waiting, method)
    return waiting


class Admin(Blocking):
    """Administrative requests to a cluster. Timeouts are seconds; the default is default.api.timeout.ms.

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("work", num_partitions=3)]).check()

    A request about several resources returns a result for each: `results["work"]` returns the outcome or raises the error.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        super().__init__(config, options)
        self._admin = self._make_part(lambda: AdminCore(self._core))

    def _closing(self, timeout_ms: int) -> Coroutine[Any, None, None]:
        del timeout_ms
        return self._admin.close()

    create_topics = _waits(AdminCore.create_topics)
    create_partitions = _waits(AdminCore.create_partitions)
    delete_topics = _waits(AdminCore.delete_topics)
    list_topics = _waits(AdminCore.list_topics)
    describe_topics = _waits(AdminCore.describe_topics)
    delete_records = _waits(AdminCore.delete_records)
    list_offsets = _waits(AdminCore.list_offsets)
    describe_configs = _waits(AdminCore.describe_configs)
    alter_configs = _waits(AdminCore.alter_configs)
    incremental_alter_configs = _waits(AdminCore.incremental_alter_configs)
    list_config_resources = _waits(AdminCore.list_config_resources)
    list_groups = _waits(AdminCore.list_groups)
    delete_groups = _waits(AdminCore.delete_groups)
    describe_consumer_groups = _waits(AdminCore.describe_consumer_groups)
    describe_classic_groups = _waits(AdminCore.describe_classic_groups)
    list_consumer_group_offsets = _waits(AdminCore.list_consumer_group_offsets)
    alter_consumer_group_offsets = _waits(AdminCore.alter_consumer_group_offsets)
    delete_consumer_group_offsets = _waits(AdminCore.delete_consumer_group_offsets)
    remove_members_from_consumer_group = _waits(AdminCore.remove_members_from_consumer_group)
    describe_streams_groups = _waits(AdminCore.describe_streams_groups)
    describe_share_groups = _waits(AdminCore.describe_share_groups)
    list_share_group_offsets = _waits(AdminCore.list_share_group_offsets)
    alter_share_group_offsets = _waits(AdminCore.alter_share_group_offsets)
    delete_share_group_offsets = _waits(AdminCore.delete_share_group_offsets)
    describe_cluster = _waits(AdminCore.describe_cluster)
    api_versions = _waits(AdminCore.api_versions)
    describe_features = _waits(AdminCore.describe_features)
    describe_metadata_quorum = _waits(AdminCore.describe_metadata_quorum)
    update_features = _waits(AdminCore.update_features)
    unregister_broker = _waits(AdminCore.unregister_broker)
    describe_log_dirs = _waits(AdminCore.describe_log_dirs)
    alter_replica_log_dirs = _waits(AdminCore.alter_replica_log_dirs)
    alter_partition_reassignments = _waits(AdminCore.alter_partition_reassignments)
    list_partition_reassignments = _waits(AdminCore.list_partition_reassignments)
    elect_leaders = _waits(AdminCore.elect_leaders)
    describe_client_quotas = _waits(AdminCore.describe_client_quotas)
    alter_client_quotas = _waits(AdminCore.alter_client_quotas)
    describe_user_scram_credentials = _waits(AdminCore.describe_user_scram_credentials)
    alter_user_scram_credentials = _waits(AdminCore.alter_user_scram_credentials)
    create_delegation_token = _waits(AdminCore.create_delegation_token)
    renew_delegation_token = _waits(AdminCore.renew_delegation_token)
    expire_delegation_token = _waits(AdminCore.expire_delegation_token)
    describe_delegation_token = _waits(AdminCore.describe_delegation_token)
    create_acls = _waits(AdminCore.create_acls)
    describe_acls = _waits(AdminCore.describe_acls)
    delete_acls = _waits(AdminCore.delete_acls)
    describe_producers = _waits(AdminCore.describe_producers)
    list_transactions = _waits(AdminCore.list_transactions)
    describe_transactions = _waits(AdminCore.describe_transactions)
    find_hanging_transactions = _waits(AdminCore.find_hanging_transactions)
    abort_transaction = _waits(AdminCore.abort_transaction)
    fence_producers = _waits(AdminCore.fence_producers)
    force_terminate_transaction = _waits(AdminCore.force_terminate_transaction)
