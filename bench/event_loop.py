"""Longest time for which one request keeps all others waiting.

    python bench/event_loop.py [--log]

Each heavy request is sent on a connection of its own while a second process asks for ApiVersions without a pause; the longest
of its waits is the figure. Nothing may hold the event loop for longer than 50 ms. With --log the broker also says what held it.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import cramjam

from brokers import Running, free_port, record, wait_for_answer
from groups import Wire
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.batch import HEADER_SIZE, build, read_header, seal
from ottla.records.record import Record

_PROBE = """
import socket, struct, sys, time
frame = struct.pack(">ihhih", 10, 18, 0, 1, -1)
longest = 0.0
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as sock:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print("ready", flush=True)
    import signal
    def end(*_):
        print(longest, flush=True)
        raise SystemExit
    signal.signal(signal.SIGTERM, end)
    while True:
        begun = time.perf_counter()
        sock.sendall(frame)
        sock.recv(65536)
        longest = max(longest, (time.perf_counter() - begun) * 1000)
        time.sleep(0.002)  # five hundred probes a second are no load of their own
"""


class Measured:
    """A broker, and the figures taken of it."""

    def __init__(self, broker: Running) -> None:
        self.broker = broker
        self.port = int(broker.bootstrap_servers.rpartition(":")[2])
        self.figures: dict[str, float] = {}

    def hold(self, name: str, heavy: Callable[[], object]) -> None:
        """Take the longest wait of a probe during `heavy`."""
        probe = subprocess.Popen(
            [sys.executable, "-c", _PROBE, str(self.port)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )
        assert probe.stdout is not None
        probe.stdout.readline()
        begun = time.perf_counter()
        heavy()
        seconds = time.perf_counter() - begun
        probe.send_signal(signal.SIGTERM)
        longest = float(probe.stdout.readline())
        probe.communicate()
        self.figures[name] = longest
        print(
            f"{name}: longest wait {longest:.0f} ms, {seconds:.2f} s in all, broker {self.broker.resident_mb():.0f} MB"
        )


def create(wire: Wire, topics: dict[str, int]) -> None:
    creatable = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics.items()
    ]
    response = wire.ask(CreateTopicsRequest(topics=creatable, timeout_ms=60_000), 4)
    assert not any(topic.error_code for topic in response.topics), response


def delete(wire: Wire, names: list[str]) -> None:
    response = wire.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=60_000), 1)
    assert not any(topic.error_code for topic in response.responses), response


def produce(wire: Wire, topic: str, batch: bytes) -> int:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    response = wire.ask(ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), 8)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def bomb(gigabytes: float) -> bytes:
    """A batch of zstd that decompresses to zeros in records of 1 MB."""
    count = int(gigabytes * 1000)
    plain = build(Record(at, 0, None, bytes(1_000_000)) for at in range(count))
    header = read_header(plain, 0)
    header.attributes = 4
    return seal(header, bytes(cramjam.zstd.compress(plain[HEADER_SIZE:], 3)))


def scenarios(measured: Measured) -> None:
    wire = Wire(measured.broker)
    many = {f"many-{number}": 1000 for number in range(10)}
    measured.hold("create 10,000 partitions", lambda: create(wire, many))
    measured.hold("metadata of 10,000 partitions", lambda: wire.ask(MetadataRequest(topics=None), 9))
    more = {f"more-{number}": 1000 for number in range(10)}
    create(wire, more)
    measured.hold("checkpoints with 20,000 partitions", lambda: time.sleep(62))  # they are written once a minute
    measured.hold("delete 20,000 partitions", lambda: delete(wire, [*many, *more]))
    measured.hold(
        "removal of their directories", lambda: time.sleep(12)
    )  # until the delay of 1 s is over, and the work
    create(wire, {"fetched": 1, "bomb": 1})
    batch = build(Record(at, 0, None, bytes(1000)) for at in range(900))
    for _ in range(60):
        assert produce(wire, "fetched", batch) == 0
    asked = FetchTopic(
        topic="fetched", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=48 << 20)]
    )
    old = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, topics=[asked])
    measured.hold("fetch of 48 MB, version 2", lambda: wire.ask(old, 2))
    poison = bomb(1.9)
    measured.hold(f"produce of {len(poison) >> 10} KB of zstd that are 1.9 GB", lambda: produce(wire, "bomb", poison))
    create(wire, {f"last-{number}": 1000 for number in range(5)})
    delete(wire, [f"last-{number}" for number in range(5)])
    wire.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", action="store_true", help="start the broker with --log-level debug")
    logged = parser.parse_args().log
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        port = free_port()
        command = [sys.executable, "-m", "ottla", "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", directory]
        command += ["-o", "log.segment.delete.delay.ms=1000"]
        command += ["--log-level", "debug" if logged else "error"]
        begun = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        measured = Measured(
            Running("Ottla", f"127.0.0.1:{port}", process.pid, wait_for_answer(port, process.pid, begun))
        )
        try:
            scenarios(measured)
        finally:
            begun = time.perf_counter()
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        stopped = time.perf_counter() - begun
        print(f"stop after the deletion of 5,000 partitions: {stopped:.2f} s")
    record({"longest_wait_ms": measured.figures, "stop_s": stopped, "load": os.getloadavg()[0]})


if __name__ == "__main__":
    assert Path(__file__).parent.name == "bench"
    main()
