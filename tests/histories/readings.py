"""Reads of a partition from an offset to its end, with both clients."""

import time
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ottla import Consumer as OttlaConsumer
from ottla import KafkaError as OttlaError
from ottla import TopicPartition as Place

READ_ERRORS: Final = (KafkaException, OttlaError, TimeoutError)
COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"


class Item(NamedTuple):
    """Record of a read."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


class PartitionReader(Protocol):
    """Client that reads a partition up to its end: the high watermark, or the last stable offset with `read_committed`."""

    def read(self, topic: str, partition: int, start: int, timeout_s: float) -> tuple[list[Item], int]:
        """Return the records from an offset on, and the offset at which the read has ended. Raises one of READ_ERRORS."""
        ...

    def close(self) -> None:
        """Close the client."""
        ...


class OttlaReader:
    """Ottla's consumer, without a group."""

    def __init__(self, servers: str, isolation: str) -> None:
        self._consumer = OttlaConsumer(
            bootstrap_servers=servers,
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="none",
            request_timeout_ms=5000,
            default_api_timeout_ms=10_000,
        )

    def read(self, topic: str, partition: int, start: int, timeout_s: float) -> tuple[list[Item], int]:
        deadline = time.monotonic() + timeout_s
        place = Place(topic, partition)
        self._consumer.assign([place])
        self._consumer.seek(place, start)
        end = self._consumer.end_offsets([place])[place]
        items: list[Item] = []
        while (position := self._consumer.position(place)) < end:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}-{partition} cannot be read to {end} in time")
            for record in self._consumer.consume(1000, 0.2):
                headers = {name: value or b"" for name, value in record.headers or ()}
                items.append(Item(record.offset, record.key, record.value, headers))
        return items, max(end, position, start)

    def close(self) -> None:
        self._consumer.close(1)


class LibrdkafkaReader:
    """librdkafka's consumer, without a group."""

    def __init__(self, servers: str, isolation: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "histories",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )

    def read(self, topic: str, partition: int, start: int, timeout_s: float) -> tuple[list[Item], int]:
        deadline = time.monotonic() + timeout_s
        self._consumer.assign([TopicPartition(topic, partition, start)])
        items: list[Item] = []
        try:
            while True:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic}-{partition} cannot be read to its end in time")
                for message in self._consumer.consume(1000, 0.1):
                    if message.topic() != topic or message.partition() != partition:
                        continue  # left over from the assignment before
                    error, offset = message.error(), message.offset()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        assert offset is not None
                        return items, max(offset, start)
                    if error is not None:
                        raise KafkaException(error)
                    items.append(_item(message))
        finally:
            self._consumer.unassign()

    def close(self) -> None:
        self._consumer.close()


def _item(message: Any) -> Item:
    headers = {name: value or b"" for name, value in message.headers() or ()}
    return Item(message.offset(), message.key(), message.value(), headers)
