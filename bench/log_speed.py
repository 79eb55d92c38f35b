"""The log beside Apache Kafka 4.4.0: durable writes, broker CPU of consuming, many partitions, compaction, look-ups.

    python bench/log_speed.py [--only flush] [--gigabytes 10]

    flush       flush.messages=1, 64 connections with one 100-byte record in flight each, acks=all: acknowledged records/s
    cpu         broker CPU seconds per GB that confluent-kafka consumes (1 KB values)
    partitions  one topic of 10,000 partitions: seconds to create it, memory, milliseconds from exec to the first answer after a
                clean stop; once empty, once with a record in each (Ottla; Apache Kafka needs 1,227 MB for them)
    compaction  1 GB of 100-byte values with a million keys: seconds from the moment the cleaner may until the log has
                shrunk, and p99 of a producer of another topic meanwhile
    lookup      a partition of many gigabytes: microseconds to find where an offset lies, warm, without the network

Both brokers run at the same time on the same machine and are measured in turn, as in broker_speed.py.
"""

import argparse
import os
import random
import selectors
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from broker_speed import compared, consume_megabytes, new_topic, produce_megabytes
from brokers import Running, free_port, kafka, kafka_is_there, ottla, record, serve_command, wait_for_answer
from ottla.environment.disk import DiskStore
from ottla.log.config import LogConfig
from ottla.log.log import Log
from ottla.protocol.codec import encode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import build
from ottla.records.record import Record

CONNECTIONS = 64
PARTITIONS = 10_000
KEYS = 1_000_000


def topic_with(broker: Running, partitions: int = 1, **configs: str) -> str:
    name = f"bench-{random.randrange(1 << 40):x}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    new_topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in configs.items()})
    admin.create_topics([new_topic], request_timeout=120)[name].result(120)
    return name


def produce_frame(topic: str, value: bytes) -> bytes:
    """A whole Produce request of version 9 with one record, as it goes over the socket."""
    batch = build([Record(0, int(time.time() * 1000), None, value)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    body = encode(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 9)
    header = (0).to_bytes(2, "big") + (9).to_bytes(2, "big") + bytes(4) + b"\xff\xff" + b"\0"
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def durable_per_second(broker: Running, topic: str, seconds: float) -> float:
    """Records/s that 64 connections get acknowledged, one in flight each."""
    host, port = broker.bootstrap_servers.split(":")
    frame = produce_frame(topic, b"v" * 100)
    ready = selectors.DefaultSelector()
    sockets = [socket.create_connection((host, int(port))) for _ in range(CONNECTIONS)]
    for sock in sockets:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        ready.register(sock, selectors.EVENT_READ, bytearray())
        sock.send(frame)
    answered = 0
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for key, _ in ready.select(1):
            held = key.data
            held += key.fileobj.recv(65536)  # type: ignore[union-attr]
            if len(held) >= 4 and len(held) >= 4 + int.from_bytes(held[:4], "big"):
                held.clear()
                answered += 1
                key.fileobj.send(frame)  # type: ignore[union-attr]
    elapsed = time.perf_counter() - begun
    for sock in sockets:
        sock.close()
    return answered / elapsed


def cpu_per_gigabyte(broker: Running, topic: str, megabytes: int) -> float:
    before = broker.cpu_seconds()
    consume_megabytes(broker, topic, megabytes)
    return (broker.cpu_seconds() - before) / megabytes * 1000


def many_partitions() -> dict[str, float]:
    """Ottla with 10,000 partitions."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-partitions-"))
    port = free_port()
    command = serve_command(port, directory)
    figures: dict[str, float] = {}

    def start() -> tuple[subprocess.Popen[bytes], Running]:
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        return process, Running("Ottla", f"127.0.0.1:{port}", process.pid, wait_for_answer(port, process.pid, begun))

    def stop(process: subprocess.Popen[bytes]) -> float:
        begun = time.perf_counter()
        process.terminate()
        process.wait(120)
        return time.perf_counter() - begun

    process, broker = start()
    begun = time.perf_counter()
    topic = topic_with(broker, PARTITIONS)
    figures["create_s"] = time.perf_counter() - begun
    figures["memory_mb"] = broker.resident_mb()
    figures["stop_s"] = stop(process)
    process, broker = start()
    figures["restart_ms"] = broker.started_ms
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for index in range(PARTITIONS):
        producer.produce(topic, b"v" * 100, partition=index)
        producer.poll(0)
    producer.flush(120)
    figures["memory_written_mb"] = broker.resident_mb()
    figures["stop_written_s"] = stop(process)
    del producer
    process, broker = start()
    figures["restart_written_ms"] = broker.started_ms
    stop(process)
    shutil.rmtree(directory)
    print("10,000 partitions: " + ", ".join(f"{name} {value:,.1f}" for name, value in figures.items()), flush=True)
    return figures


def size_of(broker: Running, topic: str) -> int:
    """Bytes of the topic's logs, by DescribeLogDirs."""
    from ottla.protocol.codec import decode
    from ottla.protocol.messages.describe_log_dirs import (
        DescribableLogDirTopic,
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
    )

    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[0])])
    body = encode(request, 1)
    header = (35).to_bytes(2, "big") + (1).to_bytes(2, "big") + bytes(4) + b"\xff\xff"
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall((len(header) + len(body)).to_bytes(4, "big") + header + body)
        data = sock.makefile("rb")
        frame = data.read(int.from_bytes(data.read(4), "big"))
    response, _ = decode(DescribeLogDirsResponse, 1, frame, 4)
    return sum(
        part.partition_size for result in response.results for topic in result.topics for part in topic.partitions
    )


class Prober(threading.Thread):
    """Sends a record every few milliseconds and keeps how long each took to be acknowledged, in ms."""

    def __init__(self, broker: Running) -> None:
        super().__init__()
        self._frame = produce_frame(new_topic(broker), b"v" * 100)
        self._address = broker.bootstrap_servers.split(":")
        self.took: list[float] = []
        self.over = False

    def run(self) -> None:
        with socket.create_connection((self._address[0], int(self._address[1]))) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self.over:
                begun = time.perf_counter()
                sock.sendall(self._frame)
                sock.recv(65536)
                self.took.append((time.perf_counter() - begun) * 1000)
                time.sleep(0.005)  # two hundred probes a second are no load of their own

    def p99(self) -> float:
        self.over = True
        self.join()
        return sorted(self.took)[len(self.took) * 99 // 100]


def compaction(broker: Running) -> dict[str, float]:
    """Seconds, and p99 of another producer meanwhile."""
    topic = topic_with(broker, cleanup_policy="compact", segment_bytes=str(100 << 20), min_cleanable_dirty_ratio="1.0")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "queue.buffering.max.messages": 1_000_000})
    chance, value = random.Random(7), b"v" * 100
    count = (1 << 30) // 125
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, b"%07d" % chance.randrange(KEYS))
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(120)
    full = size_of(broker, topic)
    prober = Prober(broker)
    prober.start()
    entries = [ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.incremental_alter_configs([resource])[resource].result(30)
    before = broker.cpu_seconds()
    begun = time.perf_counter()
    held, since = full, begun
    while time.perf_counter() - since < (20 if held < full else 300):  # over when it has not shrunk for a while
        time.sleep(0.1)  # there is no notification from the cleaner: look at the directory
        now = size_of(broker, topic)
        if now < held:
            held, since = now, time.perf_counter()
    figures = {
        "seconds": since - begun,
        "cpu_seconds": broker.cpu_seconds() - before,
        "p99_ms": prober.p99(),
        "from_mb": full / 1e6,
        "to_mb": held / 1e6,
    }
    shown = ", ".join(f"{name} {value:,.1f}" for name, value in figures.items())
    print(f"compaction: {broker.name} {shown}", flush=True)
    return figures


def lookup(gigabytes: float) -> dict[str, float]:
    """Microseconds to find an offset's batch in a log of so many gigabytes, median and p99."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-lookup-")) / "t-0"
    directory.mkdir()
    log = Log(DiskStore(), directory, LogConfig())
    records = [Record(at, 1_700_000_000_000 + at, b"k", b"v" * 1000) for at in range(16)]
    batch = build(records)
    for number in range(int(gigabytes * 1e9 / len(batch))):
        log.append(batch, 0, len(batch), 0, 1_700_000_000_000 + number)
    chance = random.Random(7)
    took: list[float] = []
    for _ in ("cold", "warm"):
        took.clear()
        for _ in range(20_000):
            offset = chance.randrange(log.end_offset)
            begun = time.perf_counter()
            log.read(offset, 1, log.end_offset, whole_first=True)
            took.append((time.perf_counter() - begun) * 1e6)
    log.close(clean=False)
    shutil.rmtree(directory.parent)
    took.sort()
    figures = {"p50_us": took[len(took) // 2], "p99_us": took[len(took) * 99 // 100], "gigabytes": gigabytes}
    print(f"look-up: p50 {figures['p50_us']:.1f} us, p99 {figures['p99_us']:.1f} us in {gigabytes:.0f} GB", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    scenarios = ["flush", "cpu", "partitions", "compaction", "lookup"]
    parser.add_argument("--only", choices=scenarios, action="append")
    parser.add_argument("--seconds", type=float, default=3, help="a round of flush")
    parser.add_argument("--megabytes", type=int, default=1000, help="what a round of cpu consumes")
    parser.add_argument("--gigabytes", type=float, default=10, help="the partition of lookup")
    arguments = parser.parse_args()
    only = arguments.only or scenarios
    figures: dict[str, object] = {}
    if "lookup" in only:
        figures["lookup"] = lookup(arguments.gigabytes)
    if "partitions" in only:
        figures["partitions"] = many_partitions()
    missing = kafka_is_there()
    if missing:
        print(f"Apache Kafka is left out: {missing}")
    if {"flush", "cpu", "compaction"} & set(only):
        with ExitStack() as stack:
            sides = [stack.enter_context(ottla("log.cleaner.backoff.ms=500", "log.initial.task.delay.ms=500"))]
            if not missing:
                sides.append(stack.enter_context(kafka("log.cleaner.backoff.ms=500", "log.initial.task.delay.ms=500")))
            if "flush" in only:
                topics = {side.name: topic_with(side, flush_messages="1") for side in sides}
                figures["flush"] = compared(
                    "flush.messages=1, 64 producers",
                    "records/s",
                    sides,
                    lambda side: durable_per_second(side, topics[side.name], arguments.seconds),
                )
            if "cpu" in only:
                filled = {side.name: new_topic(side) for side in sides}
                for side in sides:
                    produce_megabytes(side, arguments.megabytes, filled[side.name])
                figures["cpu"] = compared(
                    "broker CPU of consuming",
                    "s/GB",
                    sides,
                    lambda side: cpu_per_gigabyte(side, filled[side.name], arguments.megabytes),
                )
            if "compaction" in only:
                figures["compaction"] = {side.name: compaction(side) for side in sides}
    figures["load"] = statistics.fmean(os.getloadavg())
    record(figures)


if __name__ == "__main__":
    main()
