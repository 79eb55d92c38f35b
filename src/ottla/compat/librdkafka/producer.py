"""Producer with the calls and the behaviour of librdkafka's, on Ottla's.

A record is taken at once, even if its topic is not known yet: such records wait in a queue for each topic, and a task of the
core appends them when the metadata has come. A full queue is a BufferError. Every record has an outcome that `poll` and
`flush` count, with or without a callback, as in librdkafka.
"""

import operator
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from ottla.client import blocking
from ottla.client.errors import (
    BrokersUnreachable,
    BufferExhausted,
    FencedError,
    RecordTooLarge,
    RequestTimedOut,
    UnknownTopic,
)
from ottla.client.errors import (
    KafkaError as ClientError,
)
from ottla.client.groups import OffsetAndMetadata
from ottla.client.producer.accumulator import APPENDED, UNKNOWN_TOPIC
from ottla.client.producer.closed import Delivered, Listener
from ottla.client.producer.contents import header_list
from ottla.client.topics import TopicPartition as ClientPartition
from ottla.compat.librdkafka.configs import Settings, number, settings, switch
from ottla.compat.librdkafka.errors import (
    KafkaError,
    KafkaException,
    error_from,
    exception,
    exception_from,
    prefix_error,
)
from ottla.compat.librdkafka.events import Events, statistics
from ottla.compat.librdkafka.groups import group_metadata_from
from ottla.compat.librdkafka.handle import FOREVER_MS, Client, Handle, milliseconds
from ottla.compat.librdkafka.values import OFFSET_INVALID, Message, TopicPartition, positions

_SLICE: Final = 0.1
"""Seconds after which `flush` runs callbacks again."""
_DIGITS: Final = 1_000_000
_AT_ONCE: Final = 20_000
"""Waiting records that are appended before other work of the client has its turn."""

Callback = Callable[[KafkaError | None, Message], Any]
_About = tuple[Callback, str, int, Any, Any, int]
"""Callback of a record, its topic, partition, key and value, and the time (ns) at which it was produced."""


class _Waiting:
    """Records of a topic whose metadata has not come."""

    def __init__(self) -> None:
        self.rows: deque[tuple[int, int, bytes | None, bytes | None, Any, Listener]] = deque()


def _fail(queue: _Waiting, error: ClientError, most: int | None = None) -> None:
    """Fail the waiting records of a topic, at most so many of the oldest ones."""
    for _ in range(len(queue.rows) if most is None else min(most, len(queue.rows))):
        queue.rows.popleft()[-1](error, None)


class RecordQueue(Handle, blocking.Producer):
    """Ottla's producer, with a queue for records of topics that are not known yet."""

    def __init__(self, settings: Settings) -> None:
        self._waiting: dict[str, _Waiting] = {}
        self._lock = threading.Lock()
        self._timeout_ms = int(settings.client["delivery.timeout.ms"])
        self._propagation_ms = number(settings.own, "topic.metadata.propagation.max.ms")
        super().__init__(settings.client)

    @property
    def unsent(self) -> int:
        """Number of records without an outcome."""
        if self._released:
            return 0
        count = self._producer.accumulator.records
        if self._waiting:
            count += sum(len(queue.rows) for queue in list(self._waiting.values()))
        return count

    def offer(
        self,
        topic: str,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Any,
        listener: Listener,
    ) -> None:
        """Take a record. Raises BufferError if buffer.memory is full, and the errors of Ottla's producer."""
        core = self._producer
        if core.transactions is not None:
            core.transactions.check_open()
        if topic not in self._waiting:
            taken = core.accumulator.append(topic, partition, timestamp, key, value, headers, listener)
            if taken == APPENDED:
                return
            if taken != UNKNOWN_TOPIC:
                if not core.check_append_result(taken, topic, partition, key, value):
                    self._call(core.sender.close_all)
                    raise BufferError("Local: Queue full")
                return
        if len(key or b"") + len(value or b"") > int(self.config["max.request.size"]):
            raise RecordTooLarge("Message size too large")
        with self._lock:
            queue = self._waiting.get(topic)
            is_first = queue is None
            if queue is None:
                queue = self._waiting[topic] = _Waiting()
            queue.rows.append((partition, timestamp, key, value, headers, listener))
        if is_first:
            self._call(lambda: self._core.scheduler.background(self._fill(topic, queue), "metadata of a topic"))

    async def _fill(self, topic: str, queue: _Waiting) -> None:
        """Append the waiting records of a topic once it is known, or fail them.

        Threads that produce wait for the lock meanwhile: they would add records faster than one by one is appended, and none of
        theirs would take the short way.
        """
        failure = await self._learn(topic)
        core = self._producer
        while True:
            with self._lock:
                is_full = failure is None and not self._append_waiting(topic, queue)
                if failure is not None:
                    _fail(queue, failure)
                if not queue.rows:
                    del self._waiting[topic]
                    return
            try:
                if is_full:
                    await core.wait_for_room(self._core.clock.now_ms() + self._timeout_ms)
                else:
                    await self._core.scheduler.sleep(0)
            except ClientError as error:
                with self._lock:
                    _fail(queue, error, 1)

    def _append_waiting(self, topic: str, queue: _Waiting) -> bool:
        """Append some of the waiting records; return whether there is room for more. The caller has the lock."""
        rows = queue.rows
        for _ in range(min(len(rows), _AT_ONCE)):
            partition, timestamp, key, value, headers, listener = rows[0]
            try:
                if not self._producer.append(topic, partition, timestamp, key, value, headers, listener):
                    return False
            except ClientError as refused:
                listener(refused, None)
            rows.popleft()
        return True

    async def _learn(self, topic: str) -> ClientError | None:
        """Wait for the metadata of a topic; return the error of its records if it does not come."""
        now_ms = self._core.clock.now_ms
        expiry = now_ms() + self._timeout_ms
        propagated = now_ms() + self._propagation_ms
        while True:
            try:
                await self._producer.learn(topic, min(expiry, max(propagated, now_ms() + 1000)))
            except (BrokersUnreachable, RequestTimedOut) as error:
                if now_ms() >= expiry:
                    return RequestTimedOut(str(error))
                await self._core.scheduler.sleep(100)
            except ClientError as error:
                return error
            else:
                return None

    def purge(self, error: ClientError) -> None:
        """Fail the records that are not in flight."""

        def fail() -> None:
            with self._lock:
                rows = [row for queue in self._waiting.values() for row in queue.rows]
                for queue in self._waiting.values():
                    queue.rows.clear()
            for row in rows:
                row[-1](error, None)
            self._producer.sender.refuse(error)
            self._producer.sender.refused = None

        self._call(fail)

    def send_all(self, timeout_ms: int) -> None:
        """Send all records and wait for their outcomes, at most `timeout_ms`."""

        async def send() -> None:
            deadline = self._core.clock.now_ms() + timeout_ms
            while self._waiting and self._core.clock.now_ms() < deadline:
                await self._core.scheduler.sleep(2)
            await self._producer.flush(max(deadline - self._core.clock.now_ms(), 0))

        self._run(send())


class Producer(Client):
    """Producer of records, with librdkafka's configs.

        producer = Producer({"bootstrap.servers": "localhost:9092"})
        producer.produce("work", "value", key="key", on_delivery=report)
        producer.flush()

    Any thread may produce; callbacks run in the thread that calls `poll` or `flush`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._settings = settings("producer", args, kwargs)
        self._on_delivery: Callback | None = self._settings.callbacks.get("on_delivery")
        self._only_errors = switch(self._settings.own, "delivery.report.only.error")
        self._limit = number(self._settings.own, "queue.buffering.max.messages") or 2**31 - 1
        self._outcomes: deque[Any] = deque()
        self._transaction = "Init"
        self._closed = False
        self._handle = self._queue = RecordQueue(self._settings)
        self._events = Events(self._settings, self._statistics)
        self._queue.report_to(self._events)

    # Records.

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Take a record, which is sent in the background.

        callback, on_delivery  called with (error, message) by `poll` or `flush`
        timestamp              ms since the epoch; now, unless given

        Raises BufferError for a full queue, KafkaException for a record that cannot be taken, TypeError.
        """
        if self._closed:
            raise RuntimeError("Producer has been closed")
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        if value is not None and type(value) is not bytes:  # written out: a call takes as long as the rest
            value = value.encode() if isinstance(value, str) else _payload(value)
        if key is not None and type(key) is not bytes:
            key = key.encode() if isinstance(key, str) else _payload(key)
        pairs = None if headers is None else _headers(headers)
        partition, timestamp = operator.index(partition), operator.index(timestamp)
        function = on_delivery or callback or self._on_delivery
        now = time.time_ns()
        listener: Listener = (
            self._on_delivered
            if function is None
            else partial(self._on_reported, (function, topic, partition, key, value, now))
        )
        queue = self._queue
        try:
            if queue.unsent + len(self._outcomes) >= self._limit:
                raise BufferError("Local: Queue full")
            if partition < -1:
                raise UnknownTopic("no such partition")
            queue.offer(topic, partition, timestamp if timestamp > 0 else now // _DIGITS, key, value, pairs, listener)
        except BufferExhausted:
            raise BufferError("Local: Queue full") from None
        except UnknownTopic:
            raise exception("_UNKNOWN_PARTITION", "Unable to produce message: Local: Unknown partition") from None
        except RecordTooLarge:
            raise exception("MSG_SIZE_TOO_LARGE", "Unable to produce message: Broker: Message size too large") from None
        except FencedError as error:
            raise exception_from(error) from None
        except ClientError as error:
            if self._transaction != "InTransaction" and self._queue.config["transactional.id"]:
                raise exception("_STATE", "Unable to produce message: Local: Erroneous state") from None
            raise prefix_error("Unable to produce message: ", error) from None

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: Callback | None = None,
        on_delivery: Callback | None = None,
    ) -> int:
        """Take records of a topic: dictionaries with the arguments of `produce`. Return how many were taken.

        One that cannot be taken gets its error under `_error`.
        """
        if not isinstance(messages, list):
            raise TypeError("messages must be a list")
        for index, row in enumerate(messages):
            if not isinstance(row, dict):
                raise TypeError(f"Message at index {index} must be a dict")
        count = 0
        for row in messages:
            function = row.get("on_delivery") or row.get("callback") or on_delivery or callback
            try:
                self.produce(
                    topic,
                    row.get("value"),
                    row.get("key"),
                    row.get("partition", partition),
                    on_delivery=function,
                    timestamp=row.get("timestamp", 0),
                    headers=row.get("headers"),
                )
                count += 1
            except BufferError:
                row["_error"] = KafkaError(KafkaError._QUEUE_FULL)
            except KafkaException as error:
                row["_error"] = error.args[0]
        return count

    def _on_delivered(self, error: ClientError | None, delivered: Delivered | None) -> None:
        """Note the outcome of a record without a callback. Runs on the core's thread."""
        del error, delivered
        self._outcomes.append(None)

    def _on_reported(self, about: _About, error: ClientError | None, delivered: Delivered | None) -> None:
        """Note the outcome of a record with a callback. Runs on the core's thread."""
        self._outcomes.append((about, error, delivered, time.time_ns()))

    def _serve(self) -> int:
        """Run what is pending; return the number of outcomes and events."""
        count = self._events.serve() if self._events else 0
        while self._outcomes:
            outcome = self._outcomes.popleft()
            count += 1
            if outcome is not None:
                self._report(*outcome)
        return count

    def _report(self, about: _About, error: ClientError | None, delivered: Delivered | None, at: int) -> None:
        function, topic, partition, key, value, produced = about
        latency = (at - produced) / 1_000_000_000
        if error is not None:
            failure = _delivery_error(error)
            function(failure, Message(topic, partition, OFFSET_INVALID, key, value, None, failure, (0, 0), latency))
        elif delivered is not None and not self._only_errors:
            topic, partition, offset, timestamp = delivered
            message = Message(topic, partition, offset, key, value, None, None, (1, timestamp), latency)
            function(None, message)

    def poll(self, timeout: float = -1) -> int:
        """Run callbacks; return the number of outcomes and events.

        timeout  seconds to wait for the first; -1 is no limit
        """
        self._check()
        deadline = time.monotonic() + milliseconds(timeout) / 1000
        while not self._outcomes and not self._events and time.monotonic() < deadline:
            time.sleep(0.001)
            self._check()
        return self._serve()

    def flush(self, timeout: float = -1) -> int:
        """Send all records, wait for their outcomes and run callbacks; return how many have none after `timeout` seconds."""
        self._check()
        deadline = time.monotonic() + milliseconds(timeout) / 1000
        while True:
            left = deadline - time.monotonic()
            self._queue.send_all(int(1000 * max(min(left, _SLICE), 0)))
            self._serve()
            if not len(self) or left <= 0:
                return len(self)

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Fail the records that are not in flight, with _PURGE_QUEUE; those in flight keep their outcome."""
        del in_flight, blocking
        self._check()
        if in_queue:
            self._queue.purge(_Purged("purged in queue"))

    def __len__(self) -> int:
        """Return the number of records without an outcome, and of callbacks that have not run."""
        return 0 if self._closed else self._queue.unsent + len(self._outcomes)

    def __bool__(self) -> bool:
        return True

    # Transactions.

    def init_transactions(self, timeout: float = -1) -> None:
        """Register as the only producer of transactional.id. Raises KafkaException."""
        self._in_state("Init")
        self._transact(partial(self._queue.init_transactions, _limit(timeout)), "Ready")

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises KafkaException."""
        self._in_state("Ready")
        self._transact(self._queue.begin_transaction, "InTransaction")

    def send_offsets_to_transaction(
        self, positions_: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Add offsets of a consumer group to the transaction. Raises KafkaException."""
        self._in_state("InTransaction")
        offsets = {
            ClientPartition(entry.topic, entry.partition): OffsetAndMetadata(
                entry.offset, entry.metadata or "", -1 if entry.leader_epoch is None else entry.leader_epoch
            )
            for entry in positions(positions_)
            if entry.offset >= 0
        }
        if offsets:
            group = group_metadata_from(group_metadata)
            send = partial(self._queue.send_offsets_to_transaction, offsets, group, _limit(timeout))
            self._transact(send, "InTransaction")

    def commit_transaction(self, timeout: float = -1) -> None:
        """Send all records and commit the transaction. Raises KafkaException."""
        self._in_state("InTransaction")
        self._flush_waiting()
        self._transact(partial(self._queue.commit_transaction, _limit(timeout)), "Ready")
        self._serve()

    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction; records that are not sent fail with _PURGE_QUEUE. Raises KafkaException."""
        self._in_state("InTransaction")
        self._flush_waiting()
        self._transact(partial(self._queue.abort_transaction, _limit(timeout)), "Ready")
        self._serve()

    def _flush_waiting(self) -> None:
        while self._queue._waiting:
            self._queue.send_all(int(1000 * _SLICE))

    def _in_state(self, state: str) -> None:
        self._check()
        if not self._queue.config["transactional.id"]:
            raise exception("_NOT_CONFIGURED", "The Transactional API requires transactional.id to be configured")
        if self._transaction != state:
            raise exception("_STATE", f"Operation not valid in state {self._transaction}")

    def _transact(self, function: Callable[[], None], after: str) -> None:
        try:
            function()
        except RequestTimedOut as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error), retriable=True)) from None
        except ClientError as error:
            is_fatal = isinstance(error, FencedError)
            must_abort = not is_fatal and not error.retriable and self._transaction == "InTransaction"
            flags = {"retriable": not is_fatal and error.retriable, "txn_requires_abort": must_abort}
            raise exception_from(error, **flags) from None
        self._transaction = after

    # The client.

    def _statistics(self) -> dict[str, Any]:
        queue = self._queue
        return statistics("producer", queue.config["client.id"], len(self), queue.metrics(), queue.brokers())

    def _check(self, message: str = "Producer has been closed") -> None:
        if self._closed:
            raise RuntimeError(message)

    def close(self) -> bool:
        """Send all records, run callbacks, and close the connections. Return True."""
        if not self._closed:
            if self._transaction != "InTransaction" and not self._queue.closed:
                self.flush()
            self._queue.close()
            self._serve()
            self._closed = True
        return True


class _Purged(ClientError):
    """The record was purged from the queue."""


def _limit(timeout: float) -> float | None:
    """Convert a timeout of librdkafka (-1: no limit) to one of Ottla's client (None: that of the configs)."""
    return None if milliseconds(timeout) == FOREVER_MS else timeout


def _payload(value: Any) -> bytes | None:
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, bytearray | memoryview):
        raise TypeError(f"argument must be read-only bytes-like object, not {type(value).__name__}")
    raise TypeError(f"a bytes-like object is required, not '{type(value).__name__}'")


def _headers(headers: Any) -> Any:
    """Convert headers: a list of pairs or a dictionary. Raises TypeError."""
    if isinstance(headers, Mapping):
        headers = list(headers.items())
    if not isinstance(headers, list):
        raise TypeError(f"expected headers to be dict or list of (key, value) tuples, not {type(headers).__name__}")
    for pair in headers:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError("Headers are expected to be a list of (key, value) tuples")
        if not isinstance(pair[1], str | bytes | None):
            raise TypeError(
                f"expected header value to be None, binary, or unicode string, not {type(pair[1]).__name__}"
            )
    return header_list([(str(name), value) for name, value in headers])


def _delivery_error(error: ClientError) -> KafkaError:
    if isinstance(error, _Purged):
        return KafkaError(KafkaError._PURGE_QUEUE)
    if isinstance(error, RequestTimedOut | BrokersUnreachable):
        return KafkaError(KafkaError._MSG_TIMED_OUT)
    converted = error_from(error)
    return converted if converted.code() >= 0 else KafkaError(converted.code())
