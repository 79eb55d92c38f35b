"""An independent client for the crash tests: numbered records in, numbered records out."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

_PATIENCE_S = 60


def create(servers: str, topic: str, partitions: int, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    new_topic = NewTopic(
        topic, partitions, 1, config={name.replace("_", "."): value for name, value in configs.items()}
    )
    for created in admin.create_topics([new_topic]).values():
        assert created.result(timeout=30) is None


def delete(servers: str, topic: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": servers})
    for deleted in admin.delete_topics([topic]).values():
        assert deleted.result(timeout=30) is None


class Numbers:
    """Produces 0, 1, 2, ... round robin over the partitions, acks=all, and keeps where each was acknowledged."""

    def __init__(self, servers: str, topic: str, partitions: int, size: int = 100, **configs: Any) -> None:
        self.acknowledged: dict[int, dict[int, int]] = {index: {} for index in range(partitions)}
        self.count = 0
        self._topic = topic
        self._padding = b"." * size
        self._next = 0
        self._failures: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in configs.items()},
            }
        )

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.acknowledged[partition][number_of(value)] = offset
        self.count += 1

    def until(self, done: Callable[[], bool]) -> None:
        """Produce, with at most a thousand unacknowledged, until `done`."""
        deadline = time.monotonic() + _PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"{self.count} of {self._next} acknowledged"
            assert self._failures == []
            while self._next < self.count + 1000:
                value = b"%d %s" % (self._next, self._padding)
                partition = self._next % len(self.acknowledged)
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                self._next += 1
            self._producer.poll(0.001)

    def flush(self) -> None:
        """Wait for every acknowledgement."""
        assert self._producer.flush(_PATIENCE_S) == 0
        assert self._failures == []
        assert self.count == self._next


def number_of(value: bytes) -> int:
    return int(value.split(b" ")[0])


def read_all(servers: str, topic: str, partitions: int) -> dict[int, list[tuple[int, int]]]:
    """Everything that is there: per partition (offset, number), in the order in which it was read."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False})
    parts = [TopicPartition(topic, index, 0) for index in range(partitions)]
    ends = {part.partition: _end(consumer, part) for part in parts}
    consumer.assign(parts)
    records: dict[int, list[tuple[int, int]]] = {index: [] for index in range(partitions)}
    deadline = time.monotonic() + _PATIENCE_S
    while any(end and (not records[index] or records[index][-1][0] < end - 1) for index, end in ends.items()):
        assert time.monotonic() < deadline, f"{[len(rows) for rows in records.values()]} of {ends}"
        for message in consumer.consume(1000, timeout=0.05):
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert message.error() is None, message.error()
            assert partition is not None
            assert offset is not None
            assert value is not None
            records[partition].append((offset, number_of(value)))
    consumer.close()
    return records


def _end(consumer: Consumer, part: TopicPartition) -> int:
    """The end of a partition, as soon as the broker that the client asks knows a leader of it."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return consumer.get_watermark_offsets(part, timeout=30)[1]
        except KafkaException as error:
            # After a restart a broker may name a leader while another still waits for that news.
            if error.args[0].code() != KafkaError._UNKNOWN_PARTITION or time.monotonic() > deadline:
                raise
        time.sleep(0.05)
