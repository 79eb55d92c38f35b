"""`ottla pipeline` as people use it: a project is written, run, run again with more data on one Spark, and stopped."""

import json
import os
import re
import runpy
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.spark.pipelines.template import write_table_project
from ottla.spark.releases import RELEASE
from tests.spark.conftest import Cluster, Sent
from tests.spark.test_demo import alive_in_session

QUICK = ["--master", "local[2]", "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"]
BAD = [Sent(b"not JSON"), Sent(b'{"number": 7, "customer": "eve", "amount": 0}')]


def orders(first: int, count: int) -> list[Sent]:
    """Orders of 20, 120, 20, 120, ..., each second one large."""
    return [
        Sent(json.dumps({"number": n, "customer": f"c{n % 3}", "amount": 20 + n % 2 * 100}).encode())
        for n in range(first, first + count)
    ]


def write_shop(cluster: Cluster, folder: Path, source: str) -> Path:
    """A project that reads `source`, as `ottla pipeline init` writes it."""
    shop = folder / "shop"
    command = ["init", str(shop), "--bootstrap-server", cluster.servers, "--topic", source, "--to", f"{source}-large"]
    done = subprocess.run([*PIPELINE, *command], capture_output=True, text=True, timeout=60, check=True)
    assert f"{shop}/spark-pipeline.yml" in done.stdout.splitlines()
    return shop


PIPELINE = [sys.executable, "-m", "ottla", "pipeline"]


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`ottla pipeline run`, whose processes are all gone after the block."""
    process = subprocess.Popen(
        [*PIPELINE, "run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
        assert alive_in_session(process.pid) == []
    finally:
        for left in alive_in_session(process.pid):
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        process.wait()


def flows(line: str) -> dict[str, dict[str, Any]]:
    """Of a run's report in JSON."""
    report = json.loads(line)
    assert report["state"] == "COMPLETED"
    return {flow["name"]: flow for flow in report["flows"]}


@pytest.mark.usefixtures("a_spark_of_its_own")
@pytest.mark.timeout(240)
def test_a_continuous_run_reads_new_records_and_counts_them(cluster: Cluster, tmp_path: Path) -> None:
    source = cluster.topic([*orders(0, 300), *BAD], 2)
    shop = write_shop(cluster, tmp_path, source)
    continuous = ["--continuous", "--interval", "0.2", "--json", "--metrics", "127.0.0.1:0"]
    with running(str(shop), *QUICK, *continuous) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = re.search(r"http://\S+", process.stderr.readline())
        first = flows(process.stdout.readline())
        row_counts = {name: (flow["rows_in"], flow["rows_out"]) for name, flow in first.items()}
        assert row_counts == {
            "bronze": (302, 302),
            "silver": (302, 300),
            "quarantine": (302, 2),
            "gold": (None, 3),
            "to_topic": (300, 150),
        }
        assert (first["bronze"]["lag"], first["bronze"]["batches"]) == (0 if RELEASE >= (4, 2) else None, 1)
        assert address is not None
        with urllib.request.urlopen(address[0], timeout=10) as answer:
            assert "ottla_spark_batches_total" in answer.read().decode()
        cluster.send(source, [*orders(300, 100), *BAD[:1]])
        more = dict.fromkeys(("bronze", "silver", "quarantine", "to_topic"), 0)
        while more["to_topic"] < 50:
            later = flows(process.stdout.readline())
            for name in more:
                more[name] += later[name]["rows_out"]
        assert more == {"bronze": 101, "silver": 100, "quarantine": 1, "to_topic": 50}
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, "")
    large = [json.loads(record.value or b"")["number"] for record in cluster.records(f"{source}-large", committed=True)]
    assert sorted(large) == list(range(1, 400, 2))
    # The consumer group that the source keeps for people shows how far it is.
    assert sum(cluster.committed("shop", source).values()) == 403 or RELEASE < (4, 2)  # a batch late before


@pytest.mark.usefixtures("a_spark_of_its_own")
@pytest.mark.timeout(180)
def test_a_flow_that_fails_is_named_in_one_line(cluster: Cluster, tmp_path: Path) -> None:
    shop = write_shop(cluster, tmp_path, "nobody-made-this-topic")
    with running(str(shop), *QUICK, "--set", "spark.sql.pipelines.maxFlowRetryAttempts=0") as process:
        shown, errors = process.communicate(timeout=150)
    assert process.returncode == 1
    (line,) = errors.splitlines()
    assert re.fullmatch(r"ottla: flow bronze failed: \w+: .*nobody-made-this-topic.*", line)
    states = dict(row.split()[:2] for row in shown.splitlines()[1:6])
    assert states["bronze"] == "FAILED"
    assert {states[name] for name in ("silver", "quarantine", "gold", "to_topic")} == {"SKIPPED"}


@pytest.mark.usefixtures("a_spark_of_its_own")
@pytest.mark.timeout(180)
def test_a_dry_run_names_the_topic_that_does_not_exist(cluster: Cluster, tmp_path: Path) -> None:
    shop = write_shop(cluster, tmp_path, "misspelt-topic")
    with running(str(shop), *QUICK, "--dry-run") as process:
        shown, errors = process.communicate(timeout=150)
    assert (process.returncode, shown) == (1, "")
    (line,) = errors.splitlines()
    assert line.startswith("ottla: flow bronze cannot read: topic misspelt-topic does not exist")
    # The sink's topic does not exist either, but brokers create it.
    source = cluster.topic([*orders(0, 3)], 1)
    with running(str(shop), *QUICK, "--dry-run", "--set", f"shop.source={source}") as process:
        shown, errors = process.communicate(timeout=150)
    assert (process.returncode, errors) == (0, "")
    assert "bronze" in shown


def test_the_project_s_own_test(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    shop = write_shop(cluster, tmp_path, "unread")
    tests = runpy.run_path(str(shop / "tests" / "test_transformations.py"))
    tests["test_rules_and_totals"](spark)
    assert spark.conf.get("shop.source") == "unread"
    write_table_project(tmp_path / "lake", cluster.servers, "unread")
    tests = runpy.run_path(str(tmp_path / "lake" / "tests" / "test_transformations.py"))
    tests["test_rules_and_totals"](spark)
    assert spark.conf.get("lake.tables") == "data/tables"


def test_two_flows_into_one_table_are_refused(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    """Spark would run them, lose half of the rows and say COMPLETED."""
    from ottla.spark.pipelines import definitions
    from ottla.spark.pipelines.project import InvalidProject

    shop = write_shop(cluster, tmp_path, "unread")
    (shop / "transformations" / "twice.py").write_text(
        "from pyspark import pipelines as dp\n"
        "dp.create_streaming_table('both')\n"
        "@dp.append_flow(target='both')\n"
        "def one(): ...\n"
        "@dp.append_flow(target='both')\n"
        "def two(): ...\n"
    )
    with pytest.raises(InvalidProject, match="table both has two flows, one and two: Spark would lose rows"):
        definitions(shop, spark)
