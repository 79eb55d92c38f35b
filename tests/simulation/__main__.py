"""Command: `python -m tests.simulation --seed 4711`; see `scripts/simulate`."""

import argparse
import gc
import itertools
import random
import sys
import time
from collections import Counter
from dataclasses import replace

from ottla.protocol import plan

from .results import Result, Settings
from .run import run


def main() -> int:
    """Run one seed, or several; return 1 if a check was violated."""
    parser = argparse.ArgumentParser(prog="simulate", description="Run brokers and clients on virtual time.")
    parser.add_argument("--seed", type=int, default=1, help="first seed (default 1)")
    parser.add_argument("--runs", type=int, default=1, help="number of seeds, one after the other")
    parser.add_argument("--for-minutes", type=float, help="run one seed after the other for a time, on varied clusters")
    parser.add_argument("--varied", action="store_true", help="vary the settings with the seed")
    parser.add_argument("--minutes", type=float, default=3.0, help="virtual minutes of a run")
    parser.add_argument("--brokers", type=int, default=3, help="number of brokers")
    parser.add_argument("--clients", type=int, default=17, help="number of clients")
    parser.add_argument("--parallel", type=int, default=3, help="largest number of faults at a time")
    parser.add_argument("--gap", type=float, default=5.0, help="longest time between the begins of two faults (s)")
    parser.add_argument("--length", type=float, default=1.0, help="factor of the durations of faults")
    parser.add_argument("--only-stops", action="store_true", help="stop brokers cleanly, and nothing else")
    parser.add_argument("--directories", type=int, choices=(1, 2), default=1, help="log directories of a broker")
    parser.add_argument("--replicas", type=int, default=3, help="replication factor of all topics")
    parser.add_argument("--clusters", type=int, default=1, help="number of clusters that the brokers form")
    parser.add_argument("--roles", default="", help="clients to start, such as producer,consumer (default: all)")
    parser.add_argument("--store", choices=("memory", "etcd"), default="memory", help="metadata store")
    parser.add_argument(
        "--compiled", action="store_true", help="run the installed modules instead of the sources (scripts/simulate)"
    )
    parser.add_argument("--json", action="store_true", help="print each result as JSON")
    parser.add_argument("--story", action="store_true", help="print the story of a run that passes, too")
    options = parser.parse_args()
    if options.compiled and not plan.COMPILED:
        parser.error("the installed modules are not compiled: install Ottla where there is a C compiler")
    settings = Settings(
        options.minutes,
        options.brokers,
        options.clients,
        options.parallel,
        options.replicas,
        options.clusters,
        tuple(options.roles.split(",")) if options.roles else (),
        options.store,
        gap_s=options.gap,
        length=options.length,
        only_stops=options.only_stops,
        directories=options.directories,
    )
    begun = time.monotonic()
    results: list[Result] = []
    for seed in itertools.count(options.seed):
        if options.for_minutes is None:
            if seed == options.seed + options.runs:
                break
        elif time.monotonic() - begun >= options.for_minutes * 60:
            break
        result = run(seed, vary(settings, seed) if options.varied or options.for_minutes else settings)
        results.append(replace(result, story=[]))
        gc.collect()  # brokers and clients refer to each other, and a run does not collect
        if options.story:
            sys.stdout.writelines(f"{line}\n" for line in result.story)
        if options.json:
            text = result.as_json()
        elif result.violations:
            text = result.explain()
        else:
            text = result.summary()
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    failed = sum(bool(result.violations) for result in results)
    if len(results) > 1:
        hours = sum(result.virtual_seconds for result in results) / 3600
        cpu_hours = sum(result.cpu_seconds for result in results) / 3600
        totals = Counter[str]()
        for result in results:
            totals.update(result.counts)
        faults = sum(count for name, count in totals.items() if name.startswith("fault: "))
        modules = "compiled" if plan.COMPILED else "interpreted"
        sys.stdout.write(
            f"{len(results)} runs, {modules}, {failed} failed; {faults} faults in {hours:.2f} virtual hours, "
            f"{hours / cpu_hours:.1f} per CPU hour\n"
        )
        for name, count in sorted(totals.items()):
            sys.stdout.write(f"{count:10,} {name}\n")
    return int(failed > 0)


def vary(settings: Settings, seed: int) -> Settings:
    """Let runs differ in length, replication factor, number of clusters and clients, and metadata store."""
    draw = random.Random(f"{seed}/settings")
    clusters = settings.brokers if draw.random() < 0.08 else settings.clusters
    return replace(
        settings,
        minutes=draw.choice((2.0, 2.5, 3.0, 4.0, 5.0)),
        replicas=draw.choices((1, 2, 3), (7, 13, 80))[0],
        clusters=clusters,
        clients=settings.clients if draw.random() < 0.5 or clusters > 1 else draw.randint(4, 9),
        parallel=draw.choice((2, 3, 4, 6)),
        store="etcd" if draw.random() < 0.25 else settings.store,
        gap_s=draw.choice((settings.gap_s, settings.gap_s / 2, settings.gap_s / 5)),
        directories=draw.choice((1, 1, 2)),
    )


if __name__ == "__main__":
    sys.exit(main())
