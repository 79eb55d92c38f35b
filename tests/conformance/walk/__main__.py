"""Compare Ottla with Apache Kafka over random requests:

    python -m tests.conformance.walk --kafka HOST:PORT --requests 10000 --seed N

Ottla runs in this process, unless --ottla names a broker. A broker that is named needs the configs of --configs.
"""

import argparse
import sys
import time
from contextlib import ExitStack, closing

from ottla.testing import EmbeddedBroker

from .side import Side
from .walk import run

CONFIGS = {
    "node.id": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "log.initial.task.delay.ms": "86400000",
}


def main() -> int:
    """Run the walks of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kafka", metavar="HOST:PORT")
    parser.add_argument("--ottla", metavar="HOST:PORT")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--configs", action="store_true", help="print the configs that a broker needs")
    options = parser.parse_args()
    if options.configs:
        print(*(f"{name}={value}" for name, value in CONFIGS.items() if name != "node.id"))  # noqa: T201
        return 0
    if not options.kafka:
        parser.error("--kafka is required")
    began = time.monotonic()
    with ExitStack() as stack:
        ottla = _address(options.ottla) if options.ottla else stack.enter_context(EmbeddedBroker(CONFIGS)).address
        sides = [
            stack.enter_context(closing(Side("Ottla", ottla, is_kafka=False))),
            stack.enter_context(closing(Side("Apache Kafka", _address(options.kafka), is_kafka=True))),
        ]
        unequal = run(sides, options.seed, options.requests, print)
    print(f"{options.requests} requests, {len(unequal)} differences, {time.monotonic() - began:.0f} s")  # noqa: T201
    return 1 if unequal else 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main())
