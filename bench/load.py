"""Loads that users meet beside Apache Kafka 4.4.0: many connections, topics, members and partitions; large and compressed
records. Many consumers are in consumers.py.

    python bench/load.py [--only connections] [--skip-kafka]

    connections  1,000 connections with one request in flight each: Produce of one 100-byte record
    topics       10,000 topics of one partition: to create them, and one Metadata of all of them
    members      one group of 500 consumers, for both protocols: from the first request until all have their partition, and
                 from a member's departure until the others have all partitions; the configs of groups.py, heartbeats every
                 0.5 s
    partitions   partitions on one broker (10,000 and 50,000): to create, memory, a small topic beside them, a clean stop, and
                 from a start until all are led. Apache Kafka keeps a file open and two in memory maps for each partition:
                 50,000 are left out where a process may not have as many
    large        records of 1 MB, acks=all
    zstd         records of 1 KB of text, compressed by the producer with zstd and validated by the broker, acks=all; MB of
                 uncompressed values

Both brokers run at the same time on the same machine and are measured in turn, as in broker_speed.py: the median of five rounds
counts, after a warm-up. `partitions` starts a broker of its own for each side. CPU is user and system time of the broker's
process.
"""

import argparse
import resource
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from broker_speed import ROUNDS, compared, new_topic
from brokers import REMOVE_SOON, Running, kafka, kafka_is_there, ottla, record
from groups import CONFIGS, ready
from load_groups import MEMBERS, ClassicMember, ConsumerMember, cold_start
from load_partitions import TOPICS, create_topics, list_topics, many
from load_records import Figures, consume, produce, produce_once, rows_of_text
from load_sockets import produce_at_once

CONNECTIONS: Final = 1_000
FEWEST, MOST = 10_000, 50_000
MAPS_OF_A_PARTITION: Final = 2
OTHER_MAPS, OTHER_FILES = 10_000, 2_000
"""Memory maps and open files that a process of Apache Kafka has at most besides those of the partitions."""


class Side:
    """A running broker and the directory of its data."""

    def __init__(self, running: Running, directory: Path) -> None:
        self.running = running
        self.directory = directory


Sides = list[Side]


def rounds(name: str, unit: str, sides: Sides, measure: Callable[[Side], Figures]) -> dict[str, object]:
    """Compare all sides by their first figure; the medians of the other figures are those of the same rounds."""
    by_name = {side.running.name: side for side in sides}
    kept: dict[str, list[Figures]] = {name: [] for name in by_name}

    def first(running: Running) -> float:
        figures = measure(by_name[running.name])
        kept[running.name].append(figures)
        return next(iter(figures.values()))

    result = compared(name, unit, [side.running for side in sides], first)
    medians = {side: _medians(figures[-ROUNDS:]) for side, figures in kept.items()}
    for figure in list(next(iter(medians.values())))[1:]:
        _show(figure, {side: figures[figure] for side, figures in medians.items()})
    return {**result, "figures": medians}


def _medians(runs: list[Figures]) -> Figures:
    return {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}


def _show(figure: str, values: dict[str, float]) -> None:
    print(f"    {figure}: " + ", ".join(f"{side} {value:,.2f}" for side, value in values.items()), flush=True)


def connections(sides: Sides) -> dict[str, object]:
    topics = {side.running.name: new_topic(side.running, 10) for side in sides}

    def produced(side: Side) -> Figures:
        answered = produce_at_once([(side.running, topics[side.running.name])], CONNECTIONS, 2)
        return {
            "requests/s": answered.answers / answered.seconds,
            "p99 ms": answered.p99_ms,
            "CPU s for 10,000": answered.cpu_s / answered.answers * 10_000,
            "memory MB": side.running.resident_mb(),
        }

    name = f"{CONNECTIONS:,} connections, Produce of 100 bytes"
    return {"connections": rounds(name, "/s", sides, produced)}


def topics(sides: Sides) -> dict[str, object]:
    created = {side.running.name: create_topics(side.running) for side in sides}
    print(f"{TOPICS:,} topics")
    for figure in next(iter(created.values())):
        _show(figure, {side: figures[figure] for side, figures in created.items()})
    listed = rounds(f"Metadata of {TOPICS:,} topics", "ms", sides, lambda side: list_topics(side.running, 3))
    return {"topics": {"created": created, "listed": listed}}


def members(sides: Sides) -> dict[str, object]:
    names = {side.running.name: new_topic(side.running, MEMBERS) for side in sides}
    for side in sides:
        ready(side.running).close()
    return {
        f"members_{protocol}": rounds(
            f"{MEMBERS} members of a group, {protocol}",
            "s",
            sides,
            lambda side, kind=kind: cold_start(side.running, names[side.running.name], kind),  # type: ignore[misc]
        )
        for protocol, kind in (("classic", ClassicMember), ("consumer", ConsumerMember))
    }


def too_small_for_kafka(partitions: int) -> str | None:
    """Return the limit of this machine that a broker of Apache Kafka with so many partitions exceeds; None if it has room."""
    maps = int(Path("/proc/sys/vm/max_map_count").read_text())
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if maps < MAPS_OF_A_PARTITION * partitions + OTHER_MAPS:
        return f"vm.max_map_count is {maps:,}"
    return f"a process may have {files:,} open files" if files < partitions + OTHER_FILES else None


def partitions(with_kafka: bool) -> dict[str, object]:
    figures = {f"Ottla, {FEWEST:,}": many(ottla, FEWEST)}
    if with_kafka:
        figures[f"Apache Kafka 4.4.0, {FEWEST:,}"] = many(kafka, FEWEST)
    figures[f"Ottla, {MOST:,}"] = many(ottla, MOST)
    if with_kafka:
        limit = too_small_for_kafka(MOST)
        if limit is None:
            figures[f"Apache Kafka 4.4.0, {MOST:,}"] = many(kafka, MOST)
        else:
            print(f"without Apache Kafka and {MOST:,} partitions: {limit}")
    print("partitions on one broker")
    for figure in next(iter(figures.values())):
        _show(figure, {side: row[figure] for side, row in figures.items()})
    return {"partitions": figures}


def large(sides: Sides) -> dict[str, object]:
    value = [bytes(1_000_000)]
    topics = {side.running.name: new_topic(side.running) for side in sides}
    for side in sides:
        produce(side.running, topics[side.running.name], value, 500)
    return {
        "large_produce": rounds(
            "produce of 1 MB values",
            "MB/s",
            sides,
            lambda side: produce_once(side.running, value, 500),
        ),
        "large_consume": rounds(
            "consume of 1 MB values", "MB/s", sides, lambda side: consume(side.running, topics[side.running.name], 500)
        ),
    }


def zstd(sides: Sides) -> dict[str, object]:
    values = rows_of_text()

    def measure(side: Side) -> Figures:
        configs = {"compression_type": "zstd", "linger_ms": 20, "queue_buffering_max_messages": 1_000_000}
        return produce_once(side.running, values, 300, **configs)

    return {"zstd": rounds("produce with zstd", "MB/s", sides, measure)}


ROWS: Final[dict[str, Callable[[Sides], dict[str, object]]]] = {
    "connections": connections,
    "topics": topics,
    "members": members,
    "large": large,
    "zstd": zstd,
}


def compare(names: list[str], with_kafka: bool) -> dict[str, object]:
    """Measure the rows whose brokers run at the same time, each row with brokers of its own."""
    figures: dict[str, object] = {}
    for name in names:
        configs = CONFIGS if name == "members" else REMOVE_SOON
        with ExitStack() as stack:
            sides = []
            for start in (ottla, kafka)[: 1 + with_kafka]:
                directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-")))
                sides.append(Side(stack.enter_context(start(*configs, data=directory)), directory))
            figures |= ROWS[name](sides)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=[*ROWS, "partitions"], action="append")
    parser.add_argument("--skip-kafka", action="store_true")
    arguments = parser.parse_args()
    only = arguments.only or [*ROWS, "partitions"]
    missing = "--skip-kafka" if arguments.skip_kafka else kafka_is_there()
    if missing:
        print(f"Apache Kafka is left out: {missing}")
    figures = compare([name for name in ROWS if name in only], not missing)
    if "partitions" in only:
        figures |= partitions(not missing)
    record(figures)


if __name__ == "__main__":
    main()
