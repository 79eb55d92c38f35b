"""Cost of metrics: CPU of a broker with --metrics beside one without, and the longest wait while many partitions are read.

    python bench/metrics.py [--rounds 400] [--partitions 10000]
    python bench/metrics.py --instructions   # needs valgrind and callgrind_control

Equal processes differ by some percent, and a fetch of 1 MB may cost twice in one what it costs in another. So the cost of
requests is measured in one broker, on one connection, where measurement is switched off and on by signals after each short
round. Figures are CPU time of the broker's process for each request, the medians of the rounds; the difference is the median of
those of neighbouring rounds, given with its quartiles. As it is smaller than their spread, the calls that count one response
are timed alone, too: the best of five repetitions. Produce requests have one record of 100 bytes, or 1 MB of records;
fetches return 1 MB. What does not depend on requests is measured in brokers without load.

`--instructions` counts instead the instructions of the broker's process (without the kernel's) by callgrind, which repeats
within some thousandths: with and without measurement, in one broker. As it runs some fifty times slower there, the timer that
has the times of a request measured is made fifty times slower too.

While a broker with many partitions is scraped, a second process asks for ApiVersions without a pause.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from brokers import Running, free_port, record, serve_command, wait_for_answer
from event_loop import Measured, create
from groups import Wire
from ottla.broker.metrics.meter import ApiVersionMeter, RequestMeter
from ottla.protocol.api import APIS
from ottla.protocol.connection import Envelope
from ottla.protocol.context import Peer
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.schema import Request, Response
from ottla.records.batch import build
from ottla.records.record import Record

TOPIC = "t"
_SLOWER = 50
"""Factor by which callgrind is slower."""


_SWITCHED = """
import os, signal, sys
from ottla.broker.metrics import collection, loop_load
loop_load._BEAT_MS *= int(os.environ.get("BEATS", "1"))
from ottla.cli.main import main
class Switched(collection.BrokerMetrics):
    def __init__(self, server, *arguments):
        super().__init__(server, *arguments)
        self.server, self.meter = server, server.pipeline.meter
        signal.signal(signal.SIGUSR1, lambda *_: self.switch(None))
        signal.signal(signal.SIGUSR2, lambda *_: self.switch(self.meter))
    def switch(self, meter):
        self.server.pipeline.meter = meter
        for connection in self.server.sockets.connections:
            connection._entry, connection._weight = None, 0
import ottla.cli.own.exposed
ottla.cli.own.exposed.BrokerMetrics = Switched
sys.argv = ["ottla", *sys.argv[1:]]
main()
"""


@contextmanager
def served(*, metrics: int | None, is_switched: bool = False, counts: Path | None = None) -> Iterator[Running]:
    """Ottla, with metrics on a port; SIGUSR1 switches the measurement of requests off, SIGUSR2 on. Under callgrind if its
    counts have a file."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        port, begun = free_port(), time.perf_counter()
        command = serve_command(port, Path(directory))
        if is_switched:
            command[1:3] = ["-c", _SWITCHED]
        if metrics is not None:
            command += ["--metrics", f"127.0.0.1:{metrics}"]
        environment = dict(os.environ)
        if counts is not None:
            command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={counts}", *command]
            environment["BEATS"] = str(_SLOWER)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
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


SCENARIOS: tuple[tuple[str, Callable[[], Request], int, int, int], ...] = (
    ("produce 100 bytes", lambda: produce(100, 1), 9, 300, 1),
    ("produce 1 MB", lambda: produce(1000, 1000), 9, 10, 4),
    ("fetch 1 MB", fetch, 11, 50, 2),
)
"""Name, request, version, requests of a round, and by what the number of rounds is divided."""


def cpu_seconds(broker: Running) -> float:
    """CPU time of the broker so far: on Linux in ns rather than in ticks of 10 ms."""
    if sys.platform != "linux":
        return broker.cpu_seconds()
    stats = Path(f"/proc/{broker.pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text().split()[0]) for stat in stats) / 1e9


def microseconds(broker: Running, wire: Wire, request: Request, version: int, count: int, *, measured: bool) -> float:
    """CPU time of the broker for a request."""
    os.kill(broker.pid, signal.SIGUSR2 if measured else signal.SIGUSR1)
    for _ in range(3):
        wire.ask(request, version)
    begun = cpu_seconds(broker)
    for _ in range(count):
        wire.ask(request, version)
    return (cpu_seconds(broker) - begun) / count * 1e6


def costs(rounds: int) -> dict[str, object]:
    """Compare rounds with and without measurement in all scenarios."""
    result: dict[str, object] = {}
    with served(metrics=free_port(), is_switched=True) as broker:
        wire = Wire(broker)
        create(wire, {TOPIC: 1})
        for name, request, version, count, divisor in SCENARIOS:
            built = request()
            for _ in range(2000 // divisor):  # the first 1000 requests are all measured
                wire.ask(built, version)
            without: list[float] = []
            with_metrics: list[float] = []
            for number in range(rounds // divisor):
                for measured in (False, True) if number % 2 else (True, False):
                    values = with_metrics if measured else without
                    values.append(microseconds(broker, wire, built, version, count, measured=measured))
            median = statistics.median(without)
            pairs = zip(with_metrics, without, strict=True)
            quartiles = statistics.quantiles((measured - plain for measured, plain in pairs), n=4)
            low, difference, high = quartiles
            print(
                f"{name}: {median:.2f} us of CPU, with metrics {difference:+.2f} us ({difference / median * 100:+.1f} %), "
                f"quartiles {low:+.2f} and {high:+.2f} us",
                flush=True,
            )
            result[name] = {"without": median, "quartiles of the difference": quartiles, "rounds": len(without)}
    return result


def instructions() -> dict[str, object]:
    """Instructions of the broker for a request, with and without measurement, by callgrind."""
    result: dict[str, object] = {}
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory,
        served(metrics=free_port(), is_switched=True, counts=Path(directory) / "counts") as broker,
    ):
        wire = Wire(broker)
        create(wire, {TOPIC: 1})
        dumps = 0
        for name, request, version, count, _ in SCENARIOS:
            share = user_share(request, version, count)
            built = request()
            for _ in range(1200):  # the first 1000 requests are all measured
                wire.ask(built, version)
            figures: dict[bool, list[float]] = {False: [], True: []}
            for number in range(6):
                measured = number % 2 == 1
                os.kill(broker.pid, signal.SIGUSR2 if measured else signal.SIGUSR1)
                for _ in range(3):
                    wire.ask(built, version)
                callgrind("--zero", broker.pid)
                requests = 20 * count
                for _ in range(requests):
                    wire.ask(built, version)
                callgrind("--dump", broker.pid)
                dumps += 1
                text = (Path(directory) / f"counts.{dumps}").read_text()
                figures[measured].append(int(text.rsplit("totals: ", 1)[1].split()[0]) / requests)
            plain, with_metrics = statistics.median(figures[False]), statistics.median(figures[True])
            more = (with_metrics / plain - 1) * 100
            print(
                f"{name}: {plain:,.0f} instructions, with metrics {with_metrics - plain:+,.0f} ({more:+.2f} %); "
                f"{share:.0%} of the CPU is outside the kernel, so {more * share:+.2f} % of the CPU",
                flush=True,
            )
            result[name] = {"without": figures[False], "with": figures[True], "share outside the kernel": share}
    return result


def user_share(request: Callable[[], Request], version: int, count: int) -> float:
    """Share of the broker's CPU for a request that is spent outside the kernel."""
    with served(metrics=free_port()) as broker:
        wire = Wire(broker)
        create(wire, {TOPIC: 1})
        for _ in range(3):  # there is something to fetch
            wire.ask(produce(1000, 1000), 9)
        built = request()
        spent = []
        for number in (5, 100):
            for _ in range(number * count):
                wire.ask(built, version)
            fields = Path(f"/proc/{broker.pid}/stat").read_text().rsplit(")", 1)[1].split()
            spent.append((int(fields[11]), int(fields[12])))
        user, kernel = (after - before for before, after in zip(*spent, strict=True))
        return float(user / (user + kernel))


def callgrind(order: str, pid: int) -> None:
    """Have the counts of a process set to zero, or written."""
    subprocess.run(["callgrind_control", order, str(pid)], check=True, capture_output=True)


def counting() -> dict[str, float]:
    """Microseconds of the calls that count a response of one partition, in this process."""
    meter, peer = RequestMeter(TOPIC.__eq__), Peer()
    responses: dict[int, Response] = {
        9: ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=[PartitionProduceResponse()])]
        ),
        12: FetchResponse(
            responses=[FetchableTopicResponse(topic=TOPIC, partitions=[PartitionData(records=bytes(1 << 20))])]
        ),
    }
    figures = {}
    for version, response in responses.items():
        api = APIS[response.API]
        entry = meter.of(Envelope(api, version, version, 1, "bench", b"", 0), peer)

        def count(entry: ApiVersionMeter = entry, response: Response = response) -> None:
            if entry.is_due:
                entry.take()
            entry.count_response(response, peer)

        number = 200_000
        figures[api.name] = min(timeit.repeat(count, number=number)) / number * 1e6
        print(f"counting a response of {api.name} takes {figures[api.name]:.2f} us")
    return figures


def idle(seconds: float) -> dict[str, float]:
    """CPU of brokers without load, in ms for each second."""
    result: dict[str, float] = {}
    for name, metrics in (("without", None), ("with", free_port())):
        with served(metrics=metrics) as broker:
            time.sleep(2)
            begun = cpu_seconds(broker)
            time.sleep(seconds)
            result[name] = (cpu_seconds(broker) - begun) / seconds * 1000
    print(f"without load: {result['without']:.2f} ms of CPU a second, with metrics {result['with']:.2f} ms")
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
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    if options.instructions:
        record({"instructions": instructions()})
        return
    record(
        {
            "counting": counting(),
            "costs": costs(options.rounds),
            "idle": idle(10),
            "reading": reading(options.partitions),
        }
    )


if __name__ == "__main__":
    main()
