"""Compare queries of Spark with either format: `python -m tests.interop.spark_walk --count 200 --kinds read`."""

import argparse
import sys
import tempfile
from pathlib import Path

from ottla.testing import EmbeddedBroker
from tests.client.conftest import QUICK
from tests.interop.apache_kafka import connector_jars
from tests.spark.conftest import Cluster, started_session

from .walk import KINDS, Walk, run


def main() -> int:
    """Return 1 if there are differences."""
    parser = argparse.ArgumentParser(
        description="Compare Ottla's format with Spark's own Kafka connector on random queries."
    )
    parser.add_argument("--count", type=int, default=200, help="number of queries")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS), help="some of them, separated by commas")
    options = parser.parse_args()
    with (
        EmbeddedBroker(QUICK) as broker,
        started_session("walk", spark_jars=connector_jars()) as spark,
        tempfile.TemporaryDirectory() as folder,
    ):
        walk = Walk(spark, Cluster(broker.bootstrap_servers), Path(folder))
        walk.fill()
        differed = run(walk, options.seed, options.count, print, options.kinds.split(","))
    sys.stdout.write(f"{options.count} queries, {differed} differences\n")
    return int(differed > 0)


if __name__ == "__main__":
    sys.exit(main())
