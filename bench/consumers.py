"""Consumers that take all that a broker can send, beside Apache Kafka 4.4.0, and beside a program that only sends a file.

    python bench/consumers.py [--only cached] [--skip-kafka]

    cached  100 connections that fetch 1 MB at a time from one topic of 1 KB records in the page cache, and drop it
    disk    one such connection, and nothing of the topic is in the page cache

All sides run at the same time on the same machine and are measured in turn, as in load.py. `sendfile` is one thread that sends
the file of Ottla's topic and does nothing else (sendfile_server.py): what one core and the kernel give; a second one sends from
two threads. CPU is user and system time of the process, and `kernel %` how much of it is system time.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from brokers import REMOVE_SOON, Running, free_port, kafka, kafka_is_there, ottla, record, wait_for_answer
from load import Side, Sides, rounds
from load_records import CONSUMERS, Figures, fill, read_at_once, read_from_disk

CACHED_MB, STORED_MB = 200, 500


@contextmanager
def sendfile(directory: Path, topic: str, connections: int, threads: int = 1) -> Iterator[Running]:
    """A server that sends the log of a topic of Ottla, in a process of its own."""
    (log,) = directory.rglob(f"{topic}-0/*.log")
    port = free_port()
    server = Path(__file__).with_name("sendfile_server.py")
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, server, str(port), log, str(connections), str(threads)])
    try:
        yield Running(
            "sendfile" if threads == 1 else f"sendfile, {threads} threads",
            f"127.0.0.1:{port}",
            process.pid,
            wait_for_answer(port, process.pid, begun),
        )
    finally:
        process.kill()
        process.wait()


def _with_kernel(broker: Running, run: Callable[[], Figures]) -> Figures:
    """Add the share of the kernel in the CPU time of a broker."""
    cpu, kernel = broker.cpu_seconds(), broker.kernel_seconds()
    figures = run()
    return {**figures, "kernel %": (broker.kernel_seconds() - kernel) / (broker.cpu_seconds() - cpu) * 100}


def cached(sides: Sides, topics: dict[str, str]) -> dict[str, object]:
    def measure(side: Side) -> Figures:
        led = [(side.running, topics[side.running.name])]
        return _with_kernel(side.running, lambda: read_at_once(led, CACHED_MB, 3))

    for side in sides:
        read_at_once([(side.running, topics[side.running.name])], CACHED_MB, 10)  # Java compiles for that long
    return rounds(f"{CONSUMERS} consumers of a topic in the page cache", "MB/s", sides, measure)


def disk(sides: Sides, topics: dict[str, str]) -> dict[str, object]:
    def measure(side: Side) -> Figures:
        broker, topic = side.running, topics[side.running.name]
        return _with_kernel(broker, lambda: read_from_disk(broker, side.directory, topic, STORED_MB))

    return rounds("a consumer of a topic that is on disk only", "MB/s", sides, measure)


ROWS: Final[dict[str, tuple[Callable[[Sides, dict[str, str]], dict[str, object]], int, int]]] = {
    "cached": (cached, CACHED_MB, CONSUMERS),
    "disk": (disk, STORED_MB, 1),
}
"""Measurements, with the size of the topic in MB and the number of connections."""


def compare(name: str, with_kafka: bool) -> dict[str, object]:
    """Measure one row, with brokers of its own."""
    measure, megabytes, connections = ROWS[name]
    with ExitStack() as stack:
        sides: Sides = []
        topics: dict[str, str] = {}
        for start in (ottla, kafka)[: 1 + with_kafka]:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-")))
            side = Side(stack.enter_context(start(*REMOVE_SOON, data=directory)), directory)
            topics[side.running.name] = fill(side.running, megabytes)
            sides.append(side)
        ours = sides[0]
        topic = topics[ours.running.name]
        for threads in (1, 2) if connections > 1 else (1,):
            alone = stack.enter_context(sendfile(ours.directory, topic, connections, threads))
            topics[alone.name] = topic
            sides.append(Side(alone, ours.directory))
        return measure(sides, topics)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(ROWS), action="append")
    parser.add_argument("--skip-kafka", action="store_true")
    arguments = parser.parse_args()
    missing = "--skip-kafka" if arguments.skip_kafka else kafka_is_there()
    if missing:
        print(f"Apache Kafka is left out: {missing}")
    record({name: compare(name, not missing) for name in ROWS if name in (arguments.only or ROWS)})


if __name__ == "__main__":
    main()
