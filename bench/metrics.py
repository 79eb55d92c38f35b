"""Cost of metrics: CPU of a broker with --metrics beside one without, and the longest wait while many partitions are read.

    python bench/metrics.py [--rounds 15] [--partitions 10000]

Both brokers get the same requests in turn; figures are CPU time of the broker's process for each request, the medians of the
rounds. Produce requests have one record of 100 bytes, or 1 MB of records; fetches return 1 MB. While a broker with many
partitions is scraped, a second process asks for ApiVersions without a pause.
"""

import argparse
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from brokers import Running, free_port, record, serve_command, wait_for_answer
from event_loop import Measured, create
from groups import Wire
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import Request
from ottla.records.batch import build
from ottla.records.record import Record

TOPIC = "t"


@contextmanager
def served(*, metrics: int | None) -> Iterator[Running]:
    """Ottla, with metrics on a port."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        port, begun = free_port(), time.perf_counter()
        command = serve_command(port, Path(directory))
        if metrics is not None:
            command += ["--metrics", f"127.0.0.1:{metrics}"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            started_ms = wait_for_answer(port, process.pid, begun)
            yield Running("without" if metrics is None else "with", f"127.0.0.1:{port}", process.pid, started_ms)
        finally:
            process.terminate()
            process.wait(30)


def produce(size: int, records: int) -> ProduceRequest:
    """A Produce request."""
    batch = build([Record(at, 0, None, b"v" * size) for at in range(records)])
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[data])


def fetch() -> FetchRequest:
    """A Fetch request for 1 MB from the beginning."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics)


SCENARIOS: tuple[tuple[str, Callable[[], Request], int, int], ...] = (
    ("produce 100 bytes", lambda: produce(100, 1), 9, 6_000),
    ("produce 1 MB", lambda: produce(1000, 1000), 9, 200),
    ("fetch 1 MB", fetch, 11, 3000),
)


def microseconds(broker: Running, wire: Wire, request: Request, version: int, count: int) -> float:
    """CPU time of the broker for a request."""
    begun = broker.cpu_seconds()
    for _ in range(count):
        wire.ask(request, version)
    return (broker.cpu_seconds() - begun) / count * 1e6


def costs(rounds: int) -> dict[str, object]:
    """Compare both brokers in all scenarios."""
    result: dict[str, object] = {}
    with ExitStack() as stack:
        sides = [stack.enter_context(served(metrics=port)) for port in (None, free_port())]
        wires = [Wire(side) for side in sides]
        for wire in wires:
            create(wire, {TOPIC: 1})
        for name, request, version, count in SCENARIOS:
            values: list[list[float]] = [[], []]
            built = request()
            for number in range(rounds + 1):
                for at in (0, 1) if number % 2 else (1, 0):
                    value = microseconds(sides[at], wires[at], built, version, count)
                    if number:
                        values[at].append(value)
            without, with_metrics = (statistics.median(side) for side in values)
            percent = (with_metrics / without - 1) * 100
            print(f"{name}: {without:.1f} us of CPU, with metrics {with_metrics:.1f} us: {percent:+.1f} %")
            result[name] = {"without": without, "with": with_metrics, "rounds": values}
    return result


def reading(partitions: int) -> dict[str, float]:
    """Scrape a broker with many partitions while a probe asks it."""
    port = free_port()
    with served(metrics=port) as broker:
        wire = Wire(broker)
        create(wire, {f"topic-{number}": 100 for number in range(partitions // 100)})
        measured = Measured(broker)
        sizes = []

        def scrape() -> None:
            for _ in range(5):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                    sizes.append(len(answer.read()))

        measured.hold("nothing", lambda: time.sleep(3))
        measured.hold(f"5 readings of {partitions} partitions", scrape)
        print(f"{sizes[-1] / 1e6:.1f} MB each")
        return measured.figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    record({"costs": costs(options.rounds), "reading": reading(options.partitions)})


if __name__ == "__main__":
    main()
