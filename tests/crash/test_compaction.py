"""Compaction in a running broker: readers see the newest of every key, before and after kill -9; commits survive it too."""

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance.members import wait_for

from .conftest import Start
from .records import create

KEYS = 50
ROUNDS = 100
OFTEN = "-o", "log.cleaner.backoff.ms=20", "-o", "log.initial.task.delay.ms=20"


def newest(servers: str) -> dict[bytes, bytes]:
    """The topic read from its beginning, later records over earlier ones; and at most a few that are superseded."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "r", "enable.partition.eof": True})
    consumer.assign([TopicPartition("compacted", 0, 0)])
    values: dict[bytes, bytes] = {}
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return values
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        values[key] = value


def committed(servers: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False})
    offset = consumer.committed([TopicPartition("compacted", 0)], timeout=30)[0].offset
    consumer.close()
    return int(offset)


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def test_the_newest_of_every_key_is_left(start: Start) -> None:
    broker = start(*OFTEN, "-o", "offsets.topic.segment.bytes=1048576")
    servers = broker.bootstrap_servers
    create(
        servers,
        "compacted",
        1,
        cleanup_policy="compact",
        segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.01",
        file_delete_delay_ms="0",
    )
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5})
    for number in range(ROUNDS):
        for key in range(KEYS):
            producer.produce("compacted", key=b"%d" % key, value=(b"%d " % number).ljust(1000, b"."))
        producer.flush(30)
    expected = {b"%d" % key: (b"%d " % (ROUNDS - 1)).ljust(1000, b".") for key in range(KEYS)}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False})
    for offset in range(1, 200):
        consumer.commit(offsets=[TopicPartition("compacted", 0, offset)], asynchronous=False)
    consumer.close()
    directory = broker.data_dir / "compacted-0"
    wait_for(lambda: size_of(directory) < 2_500_000)  # of 5 MB
    assert newest(servers) == expected
    assert broker.kill() == ""
    again = start(*OFTEN)
    assert newest(again.bootstrap_servers) == expected
    assert committed(again.bootstrap_servers) == 199
    wait_for(lambda: not list(directory.glob("*.deleted")))
    assert again.stop() == ""
