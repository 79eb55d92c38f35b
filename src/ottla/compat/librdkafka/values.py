"""Values of librdkafka's API: partitions with offsets, messages, UUIDs, and the hashes of its partitioners."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.client.producer.accumulator import TopicBuffers
from ottla.client.producer.partitioners import partitioner
from ottla.compat.librdkafka.errors import KafkaError
from ottla.records.record import Record

OFFSET_BEGINNING: Final = -2
OFFSET_END: Final = -1
OFFSET_STORED: Final = -1000
OFFSET_INVALID: Final = -1001

TIMESTAMP_NOT_AVAILABLE: Final = 0
TIMESTAMP_CREATE_TIME: Final = 1
TIMESTAMP_LOG_APPEND_TIME: Final = 2

Headers = list[tuple[str, bytes | None]]


class TopicPartition:
    """Partition of a topic, with an offset where a call takes or returns one.

    Equality, order and hash are those of topic and partition; the offset does not count.
    """

    __slots__ = ("_error", "_leader_epoch", "_metadata", "_topic", "offset", "partition")

    def __init__(
        self,
        topic: str,
        partition: int = -1,
        offset: int = OFFSET_INVALID,
        metadata: str | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        self._topic = topic
        self.partition = operator.index(partition)
        self.offset = operator.index(offset)
        self._metadata = metadata
        self._leader_epoch = None if leader_epoch is None or leader_epoch < 0 else operator.index(leader_epoch)
        self._error: KafkaError | None = None

    @property
    def topic(self) -> str:
        """Return the topic."""
        return self._topic

    @property
    def metadata(self) -> str | None:
        """Return the metadata of a committed offset."""
        return self._metadata

    @property
    def leader_epoch(self) -> int | None:
        """Return the leader epoch of the offset; None if it is unknown."""
        return self._leader_epoch

    @property
    def error(self) -> KafkaError | None:
        """Return the error of this partition in a result."""
        return self._error

    def failed(self, error: KafkaError | None) -> "TopicPartition":
        """Set the error of a result; return the partition."""
        self._error = error
        return self

    def __repr__(self) -> str:
        return (
            f"TopicPartition{{topic={self._topic},partition={self.partition},offset={self.offset},"
            f"leader_epoch={self._leader_epoch},error={self._error}}}"
        )

    __str__ = __repr__

    def __hash__(self) -> int:
        return hash((self._topic, self.partition))

    def _compare(self, other: object, operation: Callable[[Any, Any], Any]) -> bool:
        if not isinstance(other, TopicPartition):
            raise NotImplementedError  # as in librdkafka's binding
        return bool(operation((self._topic, self.partition), (other._topic, other.partition)))

    def __eq__(self, other: object) -> bool:
        return self._compare(other, operator.eq)

    def __lt__(self, other: object) -> bool:
        return self._compare(other, operator.lt)

    def __le__(self, other: object) -> bool:
        return self._compare(other, operator.le)

    def __gt__(self, other: object) -> bool:
        return self._compare(other, operator.gt)

    def __ge__(self, other: object) -> bool:
        return self._compare(other, operator.ge)


class Message:
    """Consumed record, or a produced one with its outcome. `error` is None, or says what came in place of a record."""

    __slots__ = (
        "_delivery_count",
        "_error",
        "_headers",
        "_key",
        "_latency",
        "_leader_epoch",
        "_offset",
        "_partition",
        "_timestamp",
        "_topic",
        "_value",
    )

    def __init__(
        self,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: Any = None,
        value: Any = None,
        headers: Any = None,
        error: KafkaError | None = None,
        timestamp: tuple[int, int] = (TIMESTAMP_NOT_AVAILABLE, 0),
        latency: float | None = None,
        leader_epoch: int | None = None,
        delivery_count: int | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        self._timestamp = timestamp
        self._latency = latency
        self._leader_epoch = leader_epoch
        self._delivery_count = delivery_count

    @classmethod
    def of(cls, record: Record) -> "Message":
        """Return a consumed record as a message."""
        origin = record.origin
        epoch, count, timestamp = origin.leader_epoch, origin.delivery_count, record.timestamp
        kind = TIMESTAMP_NOT_AVAILABLE if timestamp < 0 else 1 + origin.timestamp_type
        return cls(
            origin.topic,
            origin.partition,
            record.offset,
            record.key,
            record.value,
            record.headers or None,
            None,
            (kind, timestamp),
            None,
            epoch if epoch >= 0 else None,
            count or None,
        )

    def topic(self) -> str | None:
        """Return the topic."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset."""
        return self._offset

    def key(self) -> Any:
        """Return the key: bytes, or what `set_key` has set."""
        return self._key

    def value(self) -> Any:
        """Return the value: bytes, or what `set_value` has set."""
        return self._value

    deserialized_key = key
    deserialized_value = value

    def headers(self) -> Any:
        """Return the headers as pairs; None without any."""
        return self._headers

    def error(self) -> KafkaError | None:
        """Return the error of the record, or of its partition; None for a good record."""
        return self._error

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type and the timestamp, ms since the epoch."""
        return self._timestamp

    def latency(self) -> float | None:
        """Return the seconds from `produce` to the acknowledgement; None for a consumed record."""
        return self._latency

    def leader_epoch(self) -> int | None:
        """Return the leader epoch; None if it is unknown."""
        return self._leader_epoch

    def delivery_count(self) -> int | None:
        """Return the number of deliveries by a share group; None outside of one."""
        return self._delivery_count

    def set_topic(self, topic: str) -> None:
        """Replace the topic."""
        self._topic = topic

    def set_key(self, key: Any) -> None:
        """Replace the key."""
        self._key = key

    def set_value(self, value: Any) -> None:
        """Replace the value."""
        self._value = value

    def set_headers(self, headers: Any) -> None:
        """Replace the headers."""
        self._headers = headers

    def set_error(self, error: Any) -> None:
        """Replace the error."""
        self._error = error

    def __len__(self) -> int:
        try:
            return 0 if self._value is None else len(self._value)
        except TypeError:
            return 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Message.__slots__)

    __hash__ = None  # type: ignore[assignment]  # as of librdkafka's binding: messages can be changed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(
            getattr(self, f"_{name}")
            for name in (
                "topic",
                "partition",
                "offset",
                "key",
                "value",
                "headers",
                "error",
                "timestamp",
                "latency",
                "leader_epoch",
                "delivery_count",
            )
        )


class Uuid:
    """Identifier of 128 bits, such as a topic id; prints as base64 of a URL."""

    __slots__ = ("_least", "_most")

    def __init__(self, most_significant_bits: int, least_significant_bits: int) -> None:
        self._most = most_significant_bits
        self._least = least_significant_bits

    def get_most_significant_bits(self) -> int:
        """Return the upper 64 bits."""
        return self._most

    def get_least_significant_bits(self) -> int:
        """Return the lower 64 bits."""
        return self._least

    def __str__(self) -> str:
        from base64 import urlsafe_b64encode

        mask = 2**64 - 1
        whole = (self._most & mask).to_bytes(8, "big") + (self._least & mask).to_bytes(8, "big")
        return urlsafe_b64encode(whole).decode().rstrip("=")

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash((self._most, self._least))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uuid) and (self._most, self._least) == (other._most, other._least)


class _NoRandom:
    def below(self, _: int) -> int:
        return 0


def _hash(name: str) -> Callable[[bytes, int], int]:
    """Return the hash of a partitioner as a function of key and number of partitions."""
    choose = partitioner(name, _NoRandom(), 0)  # type: ignore[arg-type]  # a key is given: nothing is random

    def partition(key: bytes, partition_count: int) -> int:
        view = memoryview(key)
        if partition_count <= 0:
            raise ValueError(f"partition_count must be > 0, got {partition_count}")
        return choose(TopicBuffers("", partition_count), bytes(view))

    partition.__name__ = partition.__qualname__ = name
    partition.__doc__ = (
        f"Return the partition of a key by librdkafka's partitioner {name}. Raises ValueError, TypeError."
    )
    return partition


murmur2: Final = _hash("murmur2")
consistent: Final = _hash("consistent")
fnv1a: Final = _hash("fnv1a")


def positions(partitions: Sequence[Any]) -> list[TopicPartition]:
    """Return a list of partitions as it is. Raises TypeError for anything else."""
    if not isinstance(partitions, list):
        raise TypeError("requires list of TopicPartition")
    for partition in partitions:
        if not isinstance(partition, TopicPartition):
            raise TypeError(f"expected TopicPartition, not {type(partition).__name__}")
    return partitions
