"""Records under load: large ones, compressed ones, many consumers, and consumers of what is not in the page cache."""

import itertools
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from broker_speed import delete_topic, new_topic
from brokers import Running
from groups import Wire
from load_sockets import Answered, Led, ask_for
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

Figures = dict[str, float]
CONSUMERS: Final = 100
FETCHED: Final = 1 << 20
"""Bytes of a partition in one answer: the default of consumers."""
_FETCH_VERSION: Final = 11
_KILOBYTE: Final = [b"v" * 1000]


def produce(broker: Running, topic: str, values: Sequence[bytes], megabytes: int, **configs: Any) -> Figures:
    """Produce `values` in turn with acks=all: MB/s of values, and CPU seconds of the broker for each GB of them."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    producer = Producer({**broker.client, "acks": "all", "message.max.bytes": 4_000_000, **named})
    producer.list_topics(topic, 10)
    cpu, begun = broker.cpu_seconds(), time.perf_counter()
    size, enough = 0, megabytes * 1_000_000
    for value in itertools.cycle(values):
        if size >= enough:
            break
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        size += len(value)
        producer.poll(0)
    assert producer.flush(120) == 0
    seconds = time.perf_counter() - begun
    return {"MB/s": size / 1e6 / seconds, "CPU s/GB": (broker.cpu_seconds() - cpu) / size * 1e9}


def produce_once(broker: Running, values: Sequence[bytes], megabytes: int, **configs: Any) -> Figures:
    """Produce as `produce` does to a topic of its own, which is deleted then."""
    topic = new_topic(broker)
    figures = produce(broker, topic, values, megabytes, **configs)
    delete_topic(broker, topic)
    return figures


def consume(broker: Running, topic: str, megabytes: int) -> Figures:
    """Consume from the beginning: MB/s of values, and CPU seconds of the broker for each GB of them."""
    settings = {"group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 10}
    consumer = Consumer({**broker.client, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    size, enough = 0, megabytes * 1_000_000
    cpu, begun = broker.cpu_seconds(), time.perf_counter()
    while size < enough:
        size += sum(len(message.value() or b"") for message in consumer.consume(100, 5))
    seconds, busy = time.perf_counter() - begun, broker.cpu_seconds() - cpu
    consumer.close()
    return {"MB/s": size / 1e6 / seconds, "CPU s/GB": busy / size * 1e9}


def rows_of_text() -> list[bytes]:
    """Values of about 1 KB that compress as events do: names that repeat, numbers and ids that do not."""
    chance = random.Random(7)
    names = ["created", "updated", "deleted", "moved", "viewed"]
    values = []
    for number in range(2_000):
        event = {
            "id": f"{chance.randrange(1 << 64):016x}",
            "type": chance.choice(names),
            "at": 1_700_000_000_000 + number,
            "amounts": [round(chance.random() * 1000, 2) for _ in range(40)],
            "labels": [f"{chance.choice(names)}-{chance.randrange(100)}" for _ in range(40)],
        }
        values.append(repr(event).encode()[:1000])
    return values


def fill(broker: Running, megabytes: int, topic: str | None = None) -> str:
    """A topic, a new one unless given, that holds records of 1 KB."""
    topic = topic or new_topic(broker)
    produce(broker, topic, _KILOBYTE, megabytes, queue_buffering_max_messages=1_000_000)
    return topic


def fetches(broker: Running, topic: str, megabytes: int) -> list[bytes]:
    """Requests of a consumer that reads a topic of 1 KB records from its beginning."""
    wire = Wire(broker)
    frames = []
    for number in range(megabytes - 1):
        row = FetchPartition(partition=0, fetch_offset=number * 1000, partition_max_bytes=FETCHED)
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[FetchTopic(topic=topic, partitions=[row])]
        )
        frames.append(wire.frame(request, _FETCH_VERSION))
    wire.close()
    return frames


def read_at_once(topics: Sequence[Led], megabytes: int, seconds: float) -> Figures:
    """CONSUMERS connections read again and again, each from another offset on; the topics have the connections in turn."""
    frames = [fetches(broker, topic, megabytes) for broker, topic in topics]
    requests = []
    for number in range(CONSUMERS):
        (broker, _), own = topics[number % len(topics)], frames[number % len(topics)]
        start = number * len(own) // CONSUMERS
        requests.append((broker, itertools.cycle(own[start:] + own[:start])))
    answered = ask_for(requests, seconds)
    return {**_figures(answered), "p99 ms": answered.p99_ms}


def drop_from_cache(directory: Path, topic: str) -> None:
    """Take a topic's log off the page cache; it is flushed first, since the kernel keeps what is not on disk."""
    for path in directory.rglob(f"{topic}-0/*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def read_from_disk(broker: Running, directory: Path, topic: str, megabytes: int) -> Figures:
    """One consumer reads a topic to its end, and nothing of it is in the page cache."""
    drop_from_cache(directory, topic)
    return _figures(ask_for([(broker, iter(fetches(broker, topic, megabytes)))], 600))


def _figures(answered: Answered) -> Figures:
    assert answered.received / answered.answers > FETCHED / 2, "the answers hold no records"
    return {
        "MB/s": answered.received / 1e6 / answered.seconds,
        "CPU s/GB": answered.cpu_s / answered.received * 1e9,
    }
