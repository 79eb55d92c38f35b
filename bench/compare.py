"""Two commits of Ottla beside each other: what a change costs the broker.

    python bench/compare.py OLD NEW [--pairs 10]

OLD and NEW are anything that git takes for a commit. Each is built as users get it (compiled where there is a C compiler) into
a directory of its own under ~/.cache/ottla-compare, which is used again. Both brokers run at the same time, and are measured in
pairs, the order changing from pair to pair, with the client of this checkout (confluent-kafka):

    produce    MB/s of 1 KB values, and broker CPU seconds per GB
    consume    the same, of a topic that holds them
    requests   Produce requests/s of one 100-byte record each, and broker CPU microseconds per request
    Metadata   requests/s for one topic, five in flight, and CPU; Heartbeat of a classic member and InitProducerId likewise
    commits/s  transactions of ten records, one at a time, and CPU microseconds for each

A line shows the geometric mean of the ratios NEW/OLD with its 95 % interval (Student's t on their logarithms). A figure is
unchanged when the interval contains 1 or lies within 5 % of it.
"""

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from broker_speed import consume_megabytes, new_topic, produce_megabytes, requests_per_second
from brokers import REMOVE_SOON, Running, free_port, record, serve_command, wait_for_answer
from small_requests import SmallRequests
from transactions import by_hand

CACHE = Path(os.environ.get("OTTLA_COMPARE_CACHE", Path.home() / ".cache" / "ottla-compare"))
MEGABYTES = 300
REQUESTS = 20_000
TRANSACTIONS_S = 1.0
TOLERANCE = 0.05
LEAST_PAIRS = 10
QUANTILES = (2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093)
"""Student's t for 97.5 % and 9, 10, ... degrees of freedom."""

Figures = dict[str, float]


def commit_of(name: str) -> str:
    """The full hash of a commit."""
    run = subprocess.run(
        ["git", "rev-parse", "--verify", f"{name}^{{commit}}"], capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise SystemExit(f"{name} is not a commit of this repository")
    return run.stdout.strip()


def built(commit: str) -> Path:
    """A directory that has the package of a commit."""
    target = CACHE / commit
    if not (target / "ottla").exists():
        print(f"building {commit[:9]}", flush=True)
        with tempfile.TemporaryDirectory(prefix="ottla-compare-") as name:
            source = Path(name) / "source"
            subprocess.run(["git", "clone", "--quiet", "--no-checkout", ".", str(source)], check=True)
            subprocess.run(["git", "checkout", "--quiet", commit], cwd=source, check=True)
            half = Path(name) / "package"
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*install, "--no-build-isolation", "--target", str(half), str(source)], check=True)
            CACHE.mkdir(parents=True, exist_ok=True)
            shutil.move(half, target)
    return target


@contextmanager
def running(commit: str) -> Iterator[Running]:
    """A broker of a commit, on a disk directory."""
    with tempfile.TemporaryDirectory(prefix="ottla-compare-") as directory:
        port = free_port()
        environment = {**os.environ, "PYTHONPATH": str(built(commit))}
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*serve_command(port, Path(directory)), *chain.from_iterable(("-o", config) for config in REMOVE_SOON)],
            env=environment,
            cwd=directory,
            stdout=subprocess.DEVNULL,
        )
        try:
            started_ms = wait_for_answer(port, process.pid, begun)
            yield Running(commit[:9], f"127.0.0.1:{port}", process.pid, started_ms)
        finally:
            process.terminate()
            process.wait(60)


def rate_and_cpu(broker: Running, measure: Callable[[], float], units: float) -> tuple[float, float]:
    """A rate, and CPU seconds of the broker for each of `units`."""
    before = broker.cpu_seconds()
    rate = measure()
    return rate, (broker.cpu_seconds() - before) / units


class Measured:
    """A broker, and what it was prepared with."""

    def __init__(self, broker: Running) -> None:
        self._broker = broker
        self._stored = new_topic(broker)
        produce_megabytes(broker, MEGABYTES, self._stored)
        self._small = SmallRequests(broker, self._stored)

    def figures(self) -> Figures:
        """One round of all figures."""
        broker = self._broker
        figures: Figures = {}
        rate, cpu = rate_and_cpu(broker, lambda: produce_megabytes(broker, MEGABYTES), MEGABYTES / 1000)
        figures |= {"produce MB/s": rate, "produce CPU s/GB": cpu}
        rate, cpu = rate_and_cpu(broker, lambda: consume_megabytes(broker, self._stored, MEGABYTES), MEGABYTES / 1000)
        figures |= {"consume MB/s": rate, "consume CPU s/GB": cpu}
        rate, cpu = rate_and_cpu(broker, lambda: requests_per_second(broker, 5, REQUESTS), REQUESTS / 1e6)
        figures |= {"requests/s": rate, "request CPU us": cpu}
        for name, measure in self._small.measures(REQUESTS).items():
            rate, cpu = rate_and_cpu(broker, measure, REQUESTS / 1e6)
            figures |= {f"{name}/s": rate, f"{name} CPU us": cpu}
        before = broker.cpu_seconds()
        commits = by_hand(broker, TRANSACTIONS_S)
        cpu = (broker.cpu_seconds() - before) / (commits.rate * TRANSACTIONS_S / 1e6)
        return figures | {"commits/s": commits.rate, "commit CPU us": cpu}


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Geometric mean of ratios, and the ends of its 95 % interval."""
    logarithms = [math.log(ratio) for ratio in ratios]
    mean = statistics.fmean(logarithms)
    quantile = QUANTILES[min(len(ratios) - LEAST_PAIRS, len(QUANTILES) - 1)]
    half = quantile * statistics.stdev(logarithms) / math.sqrt(len(ratios))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def verdict(low: float, high: float) -> str:
    """Say in a word what an interval of a ratio means."""
    if low <= 1 <= high or (low >= 1 - TOLERANCE and high <= 1 + TOLERANCE):
        return "unchanged"
    return "higher" if low > 1 else "lower"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--pairs", type=int, default=LEAST_PAIRS, help=f"at least {LEAST_PAIRS}")
    arguments = parser.parse_args()
    if arguments.pairs < LEAST_PAIRS:
        parser.error(f"--pairs must be at least {LEAST_PAIRS}")
    with running(commit_of(arguments.old)) as old, running(commit_of(arguments.new)) as new:
        sides = Measured(old), Measured(new)
        for side in sides:
            side.figures()  # to warm up
        pairs: list[tuple[Figures, Figures]] = []
        for number in range(arguments.pairs):
            if number % 2 == 0:
                before, after = (side.figures() for side in sides)
            else:
                after, before = (side.figures() for side in reversed(sides))
            pairs.append((before, after))
            if sys.stderr.isatty():
                print(f"\r{number + 1} of {arguments.pairs} pairs", end="", file=sys.stderr)
        if sys.stderr.isatty():
            print(file=sys.stderr)
    results = {}
    for name in pairs[0][0]:
        olds, news = ([pair[side][name] for pair in pairs] for side in (0, 1))
        ratio, low, high = interval([new_one / old_one for old_one, new_one in zip(olds, news, strict=True)])
        medians = statistics.median(olds), statistics.median(news)
        print(
            f"{name:18} {medians[0]:10,.2f} {medians[1]:10,.2f}   {ratio:.3f} ({low:.3f}-{high:.3f}) {verdict(low, high)}"
        )
        results[name] = {"medians": medians, "ratio": ratio, "interval": (low, high)}
    record({"old": arguments.old, "new": arguments.new, "pairs": arguments.pairs, "figures": results})


if __name__ == "__main__":
    main()
