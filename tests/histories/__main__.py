"""Command of scripts/histories: run brokers with faults, store the histories of their clients, and check them."""

import argparse
import logging
import random
import sys
import time
from pathlib import Path

from ottla.protocol import plan

from .run import WORKLOADS, Result, Run, Settings, check, part_of_history

_SHOWN = 5
_LINE = 600


def main() -> int:
    """Run or check; return 1 if there is an anomaly, or the run has failed."""
    parser = argparse.ArgumentParser(prog="scripts/histories", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="duration of the faults (default: 60)")
    parser.add_argument("--seed", type=int, help="seed of the faults and clients (default: a new one)")
    parser.add_argument("--rate", type=float, default=20, help="operations a second of the queue and the registers")
    parser.add_argument(
        "--directory", type=Path, help="directory for histories and logs (default: build/histories/...)"
    )
    parser.add_argument("--module", default="ottla", help="Python module that runs as a broker (default: ottla)")
    parser.add_argument("--check", type=Path, metavar="DIR", help="check the histories in DIR again")
    parser.add_argument(
        "--compiled", action="store_true", help="run the installed modules instead of the sources (scripts/histories)"
    )
    options = parser.parse_args()
    if options.compiled and not plan.COMPILED:
        parser.error("the installed modules are not compiled: install Ottla where there is a C compiler")
    if options.check is not None:
        return report(options.check, check(options.check))
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    directory = options.directory or Path("build/histories") / time.strftime(f"%Y%m%d-%H%M%S-{seed}")
    modules = "compiled" if plan.COMPILED else "interpreted"
    write(f"seed {seed}, {modules}, {options.minutes:g} minutes, histories in {directory}")
    logging.getLogger("ottla").setLevel(logging.CRITICAL)  # of lost connections, which are many
    settings = Settings(seed, options.minutes, options.module, options.rate)
    return report(directory, Run(directory, settings, write).run())


def write(line: str) -> None:
    """Write a line to standard output at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def report(directory: Path, result: Result) -> int:
    """Print a summary, and each anomaly with its part of the history."""
    write(f"\n{'operations':50} {'count':>10}")
    for name in WORKLOADS:
        for kind, count in result.operations[name].items():
            write(f"  {name + ': ' + kind:48} {count:10,}")
    for title, rows in (("faults", result.faults), ("facts", result.facts)):
        write(f"{title} {sum(rows.values()) if title == 'faults' else ''}")
        for kind, count in rows.items():
            write(f"  {kind:48} {count:10,}")
    for name in WORKLOADS:
        anomalies = result.anomalies[name]
        write(f"anomalies of the {name}: {len(anomalies)}")
        for anomaly in anomalies[:_SHOWN]:
            write(f"  {anomaly.kind}: {anomaly.text}")
            for line in part_of_history(directory, name, anomaly):
                write(f"    {line if len(line) < _LINE else line[:_LINE] + ' ...'}")
    if result.failure:
        write(f"the run has failed: {result.failure}")
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
