"""Two cores: `ottla serve --brokers 2` beside one broker, and beside Apache Kafka, whose threads use both.

    python bench/two_brokers.py [--rounds 5] [--megabytes 256] [--skip-kafka]

    produce      MB/s of records of 1 KB with acks=1 from one producer of librdkafka to four partitions
    consume      MB/s of one consumer of librdkafka that reads them from the page cache
    connections  Produce requests/s of one 100-byte record each on 1,000 connections with one in flight, to two partitions,
                 which two brokers lead one each
    consumers    MB/s of 100 connections that fetch 1 MB at a time from two such partitions in the page cache, and drop it

All sides run at the same time and are measured in turn; the first rounds are not counted: Java compiles for that long. The
clients are on the same two cores, and the cores that the client and the brokers use are figures of their own.
"""

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from broker_speed import new_topic
from brokers import READING, Running, free_port, kafka, kafka_is_there, record, serve_command
from consumers import CACHED_MB
from load import CONNECTIONS
from load_records import fill, read_at_once
from load_sockets import Led, produce_at_once

PARTITIONS: Final = 4
LED_TOPICS: Final = 2
WARMING: Final = 4
"""Rounds that are not counted."""
VALUE: Final = os.urandom(1024)
Figures = dict[str, float]


class Side(NamedTuple):
    """Brokers of one side. Clients begin with the first."""

    name: str
    brokers: list[Running]

    def cpu_seconds(self) -> float:
        return sum(broker.cpu_seconds() for broker in self.brokers)


@contextmanager
def ottla(brokers: int) -> Iterator[Side]:
    """One `ottla serve` with so many brokers."""
    home = tempfile.mkdtemp(prefix="ottla-bench-")
    command = [*serve_command(free_port(), Path(home)), *(["--brokers", str(brokers)] if brokers > 1 else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        listens = [process.stdout.readline() for _ in range(brokers)]  # each broker says where it listens
        addresses = sorted(re.findall(r"127\.0\.0\.1:\d+", line)[0] for line in listens)
        pids = [process.pid]
        if brokers > 1:
            pids = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        name = f"{brokers} broker{'s' * (brokers > 1)}"
        # Which process has which address does not matter: only the CPU time of all is looked at.
        yield Side(name, [Running(name, *pair, 0) for pair in zip(addresses, pids, strict=True)])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)
        process.stdout.close()
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def apache_kafka() -> Iterator[Side]:
    with kafka() as running:
        yield Side(running.name, [running])


def led_topics(side: Side) -> list[Led]:
    """Topics of one partition, with their leaders: as many for each broker, LED_TOPICS in all."""
    by_address = {broker.bootstrap_servers: broker for broker in side.brokers}
    led: list[Led] = []
    while len(led) < LED_TOPICS:
        topic = new_topic(side.brokers[0])
        listed = AdminClient(side.brokers[0].client).list_topics(topic, 30)
        leader = listed.brokers[listed.topics[topic].partitions[0].leader]
        broker = by_address[f"{leader.host}:{leader.port}"]
        if sum(other is broker for other, _ in led) < LED_TOPICS // len(side.brokers):
            led.append((broker, topic))
    return led


def produce(side: Side, topic: str, megabytes: int) -> Figures:
    producer = Producer(
        {
            **side.brokers[0].client,
            "linger.ms": 5,
            "batch.size": 262_144,
            "queue.buffering.max.messages": 1_000_000,
            "acks": "1",
        }
    )
    begun, cpu = time.perf_counter(), time.process_time()
    for number in range(megabytes * 1000):
        while True:
            try:
                producer.produce(topic, VALUE, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush(300)
    seconds = time.perf_counter() - begun
    return {
        "produce, MB/s": megabytes * 1.024 / seconds,
        "produce, cores of the client": (time.process_time() - cpu) / seconds,
    }


def consume(side: Side, topic: str, megabytes: int) -> Figures:
    consumer = Consumer(
        {**side.brokers[0].client, "group.id": "bench", "fetch.message.max.bytes": 4_194_304, **READING}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    begun, cpu = time.perf_counter(), time.process_time()
    count = 0
    while count < megabytes * 1000:
        count += len(consumer.consume(min(10_000, megabytes * 1000 - count), 1))
    seconds = time.perf_counter() - begun
    used = time.process_time() - cpu
    consumer.close()
    return {"consume, MB/s": megabytes * 1.024 / seconds, "consume, cores of the client": used / seconds}


def measure(side: Side, small: list[Led], large: list[Led], megabytes: int) -> Figures:
    topic = new_topic(side.brokers[0], PARTITIONS)
    figures = {**produce(side, topic, megabytes), **consume(side, topic, megabytes)}
    answered = produce_at_once(small, CONNECTIONS, 2)
    figures["connections, requests/s"] = answered.answers / answered.seconds
    figures["connections, p99 ms"] = answered.p99_ms
    figures["connections, cores of the brokers"] = answered.cpu_s / answered.seconds
    cpu, begun = side.cpu_seconds(), time.perf_counter()
    read = read_at_once(large, CACHED_MB, 2)
    figures["consumers, MB/s"] = read["MB/s"]
    figures["consumers, p99 ms"] = read["p99 ms"]
    figures["consumers, cores of the brokers"] = (side.cpu_seconds() - cpu) / (time.perf_counter() - begun)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--skip-kafka", action="store_true")
    options = parser.parse_args()
    missing = "--skip-kafka" if options.skip_kafka else kafka_is_there()
    if missing:
        print(f"Apache Kafka is left out: {missing}")
    with ExitStack() as stack:
        sides = [stack.enter_context(ottla(1)), stack.enter_context(ottla(2))]
        if not missing:
            sides.append(stack.enter_context(apache_kafka()))
        topics = {side.name: (led_topics(side), led_topics(side)) for side in sides}
        for side in sides:
            for broker, topic in topics[side.name][1]:
                fill(broker, CACHED_MB, topic)
        runs: dict[str, list[Figures]] = {side.name: [] for side in sides}
        for _ in range(WARMING + options.rounds):
            for side in sides:
                runs[side.name].append(measure(side, *topics[side.name], options.megabytes))
    medians = {
        name: {figure: round(statistics.median(run[figure] for run in counted), 2) for figure in counted[0]}
        for name, counted in ((name, run[WARMING:]) for name, run in runs.items())
    }
    print(f"{'':36}" + "".join(f"{name:>20}" for name in medians))
    for figure in next(iter(medians.values())):
        print(f"{figure:36}" + "".join(f"{figures[figure]:>20,}" for figures in medians.values()))
    record({"two brokers": medians, "rounds": options.rounds, "megabytes": options.megabytes})


if __name__ == "__main__":
    main()
