"""Share consumer with the calls and the behaviour of librdkafka's, on Ottla's (KIP-932)."""

import operator
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self

from ottla.client import blocking
from ottla.client.config import ClientConfig
from ottla.client.errors import IllegalState
from ottla.client.errors import KafkaError as ClientError
from ottla.client.share.delivery import AcknowledgeType as ClientAcknowledgeType
from ottla.client.topics import TopicPartition as ClientPartition
from ottla.compat.librdkafka.configs import settings
from ottla.compat.librdkafka.enums import AcknowledgeType
from ottla.compat.librdkafka.errors import (
    ConcurrentModificationException,
    IllegalStateException,
    KafkaException,
    exception_from,
)
from ottla.compat.librdkafka.events import Events, statistics
from ottla.compat.librdkafka.handle import Handle, milliseconds
from ottla.compat.librdkafka.values import Message, TopicPartition
from ottla.records.record import Record

_SLICE_S: Final = 0.1
"""Time after which a waiting poll looks for callbacks."""
_NOT_APPLICABLE: Final = (
    *("message.copy.max.bytes", "topic.blacklist", "group.instance.id", "partition.assignment.strategy"),
    *("group.protocol", "group.remote.assignor", "enable.auto.commit", "queued.min.messages"),
    *("queued.max.messages.kbytes", "fetch.queue.backoff.ms", "fetch.error.backoff.ms", "isolation.level"),
    *("enable.partition.eof", "auto.offset.reset", "consume.callback.max.messages"),
)
_OF_THE_BROKER: Final = ("session.timeout.ms", "heartbeat.interval.ms")
_UNSUPPORTED: Final = "is not supported for `group.protocol=consumer` or share consumer"
CommitCallback = Callable[[dict[TopicPartition, set[int]], KafkaException | None], Any]


class Messages:
    """Messages of one poll, as a sequence."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._records = list(messages)

    def records(self) -> list[Message]:
        """Return the messages as a new list."""
        return list(self._records)

    def count(self) -> int:
        """Return the number of messages."""
        return len(self._records)

    def is_empty(self) -> bool:
        """Return whether there is no message."""
        return not self._records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._records)

    def __getitem__(self, index: Any) -> Any:
        return Messages(self._records[index]) if isinstance(index, slice) else self._records[index]

    def __repr__(self) -> str:
        return f"Messages({self._records!r})"


class _Reader(Handle, blocking.ShareConsumer):
    """Ottla's share consumer, which ends without a warning."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)


def _check_configs(configs: Mapping[str, Any]) -> None:
    """Raise ValueError for a config that share consumers do not have."""
    for name in configs:
        reason = None
        if name in _NOT_APPLICABLE:
            reason = f"`{name}` is not applicable for share consumer"
        elif name in _OF_THE_BROKER:
            reason = f"`{name}` {_UNSUPPORTED}. It is defined broker side"
        elif name == "group.protocol.type":
            reason = f"`{name}` {_UNSUPPORTED}"
        elif name == "allow.auto.create.topics":
            reason = f"{name} is not supported for share consumer"
        if reason is not None:
            raise ValueError(f"Failed to create share consumer: {reason}")
    if "on_commit" in configs:
        raise ValueError("on_commit is not supported on ShareConsumer")


class ShareConsumer:
    """Member of a share group, with librdkafka's configs.

        consumer = ShareConsumer({"bootstrap.servers": "localhost:9092", "group.id": "workers"})
        consumer.subscribe(["work"])
        for message in consumer.poll(1.0):
            ...

    With `share.acknowledgement.mode=explicit` each message is acknowledged. Callbacks run in the thread that calls `poll`,
    `commit_sync` or `close`. Raises IllegalStateException after `close`, ConcurrentModificationException for a second thread.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args and isinstance(args[0], dict):
            _check_configs({**args[0], **kwargs})
        else:
            _check_configs(kwargs)
        self._settings = settings("share consumer", args, kwargs)
        self._is_explicit = self._settings.client["share.acknowledgement.mode"] == "explicit"
        self._records: dict[tuple[str, int, int], Record] = {}  # of the last poll, without those that are committed
        self._acknowledged: set[tuple[str, int, int]] = set()
        self._callback: CommitCallback | None = None
        self._closed = False
        self._thread: int | None = None
        self._lock = threading.Lock()
        self._reader = _Reader(self._settings.client)
        self._events = Events(self._settings, self._statistics)
        self._reader.report_to(self._events)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the consumer for one thread. Raises ConcurrentModificationException, IllegalStateException."""
        if not self._lock.acquire(blocking=False):
            ids = f"currentThread(id: {threading.get_ident()}) otherThread(id: {self._thread})"
            raise ConcurrentModificationException(f"Share consumer is not safe for multi-threaded access. {ids}")
        try:
            self._thread = threading.get_ident()
            if self._closed:
                raise IllegalStateException("Share consumer closed")
            yield
        except IllegalState as error:
            raise IllegalStateException(str(error)) from error
        except ClientError as error:
            raise exception_from(error) from error
        finally:
            self._lock.release()

    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to these topics, in place of the previous ones. Raises TypeError, KafkaException."""
        if not isinstance(topics, list):
            raise TypeError("expected list of topic unicode strings")
        with self._alone():
            if topics:
                self._reader.subscribe([str(topic) for topic in topics])
            else:
                self._reader.unsubscribe()

    def unsubscribe(self) -> None:
        """Leave the group; messages without an acknowledgement are released. Raises KafkaException."""
        with self._alone():
            self._reader.unsubscribe()

    def subscription(self) -> list[str]:
        """Return the subscribed topics."""
        with self._alone():
            return sorted(self._reader.subscription())

    def poll(self, timeout: float = -1) -> Messages:
        """Return messages; none if none came within `timeout` seconds (-1: no limit). Runs callbacks.

        Raises IllegalStateException without a subscription, and while messages are not acknowledged; KafkaException.
        """
        end = time.monotonic() + milliseconds(timeout) / 1000
        with self._alone():
            self._events.serve()
            if not self._reader.subscription():
                raise IllegalStateException("Consumer is not subscribed to any topics")
            open_count = len(self._records.keys() - self._acknowledged)
            if self._is_explicit and open_count:
                raise IllegalStateException(f"{open_count} records from previous poll have not been acknowledged")
            self._forget_acknowledged()
            while True:
                records = self._reader.poll(max(min(_SLICE_S, end - time.monotonic()), 0))
                self._events.serve()
                if records or time.monotonic() >= end:
                    break
            self._records = {(row.origin.topic, row.origin.partition, row.offset): row for row in records}
            return Messages(map(Message.of, records))

    def _forget_acknowledged(self) -> None:
        for key in self._acknowledged:
            self._records.pop(key, None)
        self._acknowledged.clear()

    def acknowledge(self, message: Any, ack_type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Set the outcome of a message of the last poll. Raises TypeError, ValueError, IllegalStateException."""
        if not isinstance(message, Message):
            kind = type(message).__name__
            raise TypeError(f"argument 1 must be confluent_kafka.cimpl.Message, not {kind}")
        key = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
        self._acknowledge("message", key, ack_type)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, ack_type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Set the outcome of the message at an offset, as `acknowledge`."""
        self._acknowledge("offset", (topic, partition, offset), ack_type)

    def _acknowledge(self, what: str, key: tuple[str, int, int], ack_type: int) -> None:
        number = operator.index(ack_type)
        with self._alone():
            if number not in set(AcknowledgeType):
                raise ValueError(f"Failed to acknowledge {what}: Local: Invalid argument or configuration")
            record = self._records.get(key)
            if not self._is_explicit or record is None:
                raise IllegalStateException(f"Failed to acknowledge {what}: Local: Erroneous state")
            self._reader.acknowledge(record, ClientAcknowledgeType(number))
            self._acknowledged.add(key)

    def commit_sync(self, timeout: float = 60) -> dict[TopicPartition, KafkaException | None]:
        """Send the acknowledgements and wait; return the error of each partition or None. Runs callbacks.

        Raises KafkaException.
        """
        limit = milliseconds(timeout) / 1000
        with self._alone():
            results = self._reader.commit(limit)
            self._forget_acknowledged()
            self._events.serve()
            return {
                TopicPartition(*partition, 0): None if error is None else exception_from(error)
                for partition, error in results.items()
            }

    def commit_async(self) -> None:
        """Send the acknowledgements; the callback gets the outcome."""
        with self._alone():
            self._reader.commit_async()
            self._forget_acknowledged()

    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Set a callback `({partition: offsets}, exception or None)` for the outcome of acknowledgements. Raises TypeError."""
        if callback is not None and not callable(callback):
            raise TypeError("callback must be callable or None")
        with self._alone():
            self._callback = callback
            self._reader.set_acknowledgement_commit_callback(None if callback is None else self._on_committed)

    def _on_committed(self, offsets: Mapping[ClientPartition, set[int]], error: ClientError | None) -> None:
        """Have the callback called by the next poll. Called on the client's thread."""
        rows = {TopicPartition(*partition, 0): set(numbers) for partition, numbers in offsets.items()}
        if self._callback is not None:
            self._events.add(self._callback, rows, None if error is None else exception_from(error))

    def _statistics(self) -> dict[str, Any]:
        reader = self._reader
        return statistics("consumer", reader.config["client.id"], 0, reader.metrics(), reader.brokers())

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with these credentials whenever a connection logs in from now on (PLAIN, SCRAM). Raises TypeError."""
        if self._closed:
            raise IllegalStateException("Share consumer closed")
        self._reader.set_credentials(username, password)

    def close(self) -> None:
        """Send the acknowledgements, leave the group, and run callbacks."""
        if self._closed and not self._lock.locked():
            return
        with self._alone():
            self._reader.close()
            self._events.serve()
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
