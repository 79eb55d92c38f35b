"""Clusters of Ottla and of Apache Kafka that are measured in turn, with the same code and beside each other in one table."""

import argparse
import contextlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from brokers import kafka_is_there, record
from cluster import NODES, KafkaCluster, OttlaCluster, etcd, wait_for_all

Cluster = OttlaCluster | KafkaCluster


@contextlib.contextmanager
def ottla(home: Path) -> Iterator[Cluster]:
    """Three brokers over one etcd."""
    with etcd(home) as (url, _):
        cluster = OttlaCluster(home, url)
        try:
            for node in NODES:
                cluster.start(node)
            wait_for_all(cluster)
            yield cluster
        finally:
            cluster.end()


@contextlib.contextmanager
def kafka(home: Path, internal_replicas: int = 1) -> Iterator[Cluster]:
    """Three nodes of Apache Kafka, whose internal topics have so many replicas."""
    cluster = KafkaCluster(home, internal_replicas)
    try:
        cluster.start_all()
        wait_for_all(cluster)
        yield cluster
    finally:
        with contextlib.suppress(subprocess.SubprocessError):
            cluster.end()


def options(description: str | None, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of the options of all comparisons; `rounds` is the default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--skip-kafka", action="store_true")
    return parser


def compare(
    name: str, arguments: argparse.Namespace, measure: Callable[[Cluster], dict[str, float]], internal_replicas: int = 1
) -> None:
    """Measure both sides in turn, each round with new clusters, and print the medians.

    internal_replicas  replication factor of Apache Kafka's internal topics; Ottla's is 3
    """
    sides: dict[str, Callable[[Path], AbstractContextManager[Cluster]]] = {"ottla": ottla}
    missing = "--skip-kafka" if arguments.skip_kafka else kafka_is_there()
    if missing is None:
        sides["kafka"] = partial(kafka, internal_replicas=internal_replicas)
    else:
        print(f"without Apache Kafka: {missing}", file=sys.stderr)
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(arguments.rounds):
        for side, start in sides.items():
            home = Path(tempfile.mkdtemp(prefix="ottla-bench-"))
            try:
                with start(home) as cluster:
                    runs[side].append(measure(cluster))
            finally:
                shutil.rmtree(home, ignore_errors=True)
    medians: dict[str, dict[str, float]] = {}
    for side, results in runs.items():
        figures = list(dict.fromkeys(figure for run in results for figure in run))
        medians[side] = {
            figure: round(statistics.median(run[figure] for run in results if figure in run), 2) for figure in figures
        }
    print(f"{'':28}" + "".join(f"{side:>12}" for side in medians))
    for figure in dict.fromkeys(figure for figures in medians.values() for figure in figures):
        print(f"{figure:28}" + "".join(f"{figures.get(figure, '-'):>12}" for figures in medians.values()))
    record({name: medians, "options": vars(arguments)})
