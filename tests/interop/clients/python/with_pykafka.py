"""pykafka 2.8: the last release of a client that was given up in 2018."""

import time
from typing import Any

from pykafka import KafkaClient  # type: ignore[import-not-found]  # in an environment of its own
from pykafka.common import CompressionType, OffsetType  # type: ignore[import-not-found]
from pykafka.exceptions import UnknownTopicOrPartition  # type: ignore[import-not-found]

from tests.interop.clients.contract import Record, equal, records, same, step, task

_PATIENCE_S = 30
_CODECS = {"none": CompressionType.NONE, "gzip": CompressionType.GZIP, "snappy": CompressionType.SNAPPY}


def produce(topic: Any, numbers: range, codec: str) -> None:
    with topic.get_producer(compression=_CODECS[codec], linger_ms=50, min_queued_messages=50) as producer:
        for key, value in records(numbers):
            producer.produce(value, partition_key=key)


def take(source: Any, count: int) -> list[Record]:
    """`count` records, and one that follows them, which should not be there."""
    received: list[Record] = []
    deadline = time.monotonic() + _PATIENCE_S
    while len(received) < count and time.monotonic() < deadline:
        _one(source, received)
    _one(source, received)
    return received


def _one(source: Any, received: list[Record]) -> None:
    message = source.consume()  # None after consumer_timeout_ms
    if message is not None:
        received.append((message.partition_key, message.value))


def create(client: KafkaClient, name: bytes) -> Any:
    """The topic, which asking for it creates.

    pykafka expects the first answer to be LEADER_NOT_AVAILABLE; brokers without ZooKeeper say UNKNOWN_TOPIC_OR_PARTITION.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return client.topics[name]
        except UnknownTopicOrPartition:
            if time.monotonic() > deadline:
                raise


def main() -> None:
    arguments = task()
    client = KafkaClient(hosts=arguments.bootstrap, broker_version=arguments.settings["version"])
    topic = create(client, arguments.topic.encode())
    for codec, numbers in arguments.shares:
        with step(f"produce {codec}"):
            produce(topic, numbers, codec)
    with step("fetch"):
        source = topic.get_simple_consumer(consumer_timeout_ms=1000)
        same(take(source, len(arguments.first)), arguments.first)
        source.stop()
    with step("offsets"):
        equal(topic.earliest_available_offsets()[0].offset[0], 0)
        equal(topic.latest_available_offsets()[0].offset[0], len(arguments.first))
    with step("commit"):
        source = topic.get_simple_consumer(f"{arguments.group}-alone".encode(), consumer_timeout_ms=500)
        take(source, 10)
        source.commit_offsets()
        # pykafka remembers the last record that was read, and commits the one after it.
        equal([held.offset for _, held in source.fetch_offsets()], [11])
        source.stop()
    if "group" not in arguments.lacks:
        for name, numbers in (("group", arguments.first), ("resume", arguments.more)):
            with step(name):
                if name == "resume":
                    produce(topic, numbers, "none")
                member = topic.get_balanced_consumer(
                    arguments.group.encode(),
                    managed=True,
                    consumer_timeout_ms=1000,
                    auto_offset_reset=OffsetType.EARLIEST,
                )
                same(take(member, len(numbers)), numbers)
                member.commit_offsets()
                member.stop()


if __name__ == "__main__":
    main()
