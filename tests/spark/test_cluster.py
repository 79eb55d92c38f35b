"""A standalone cluster of one master and two workers, from the pip package: batch, stream and an exactly-once job, as
docs/spark.md says it is done. Takes a minute and most of the machine: with `--interop` only.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

import ottla
from ottla.spark.java import ensure_java
from tests.spark.conftest import Cluster, Sent
from tests.spark.test_demo import alive_in_session
from tests.spark.test_pipeline_runs import flows, orders, running, write_shop

# Each Java lives for a minute at most.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
JOB = """
import json, os, sys
from pyspark.sql import SparkSession, functions as F
from ottla.spark import SESSION_CONFS

servers, source, target, once, folder = sys.argv[1:]
builder = SparkSession.builder.appName("cluster")
for name, value in SESSION_CONFS.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def where(_):
    import ottla
    return os.getcwd(), os.path.realpath(ottla.__file__)


def run(topic, name, **options):
    stream = spark.readStream.format("ottla").option("kafka.bootstrap.servers", servers)
    stream = stream.option("subscribe", source).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 150)
    query = (
        stream.load().select("key", "value").writeStream.format("ottla").options(**options)
        .option("kafka.bootstrap.servers", servers).option("topic", topic)
        .option("checkpointLocation", f"{folder}/{name}").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


places = spark.sparkContext.parallelize(range(8), 8).map(where).distinct().collect()
batch = spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", source)
total = batch.option("minPartitions", 4).load().select(F.sum(F.col("value").cast("string").cast("int"))).first()[0]
batches = [run(target, "stream"), run(once, "once", exactlyOnce="true")]
print(json.dumps({"places": places, "total": total, "batches": batches}))
spark.stop()
"""


def spark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


def environment() -> dict[str, str]:
    ensure_java()
    mine = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "512m", "PYSPARK_PYTHON": sys.executable}
    mine["SPARK_DAEMON_JAVA_OPTS"] = JAVA
    return {**os.environ, **mine, "SPARK_HOME": str(spark_home())}


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[Path]:
    """A master or a worker; it and what it started is gone after the block."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [spark_home() / "bin" / "spark-class", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            for left in alive_in_session(process.pid):
                os.kill(left, signal.SIGKILL)


def wait_for_line(log: Path, pattern: str) -> str:
    """Wait until a log says something; its first group."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        matched = re.search(pattern, log.read_text())
        if matched:
            return matched[1]
        time.sleep(0.1)
    raise AssertionError(f"{log.name} does not say {pattern}: {log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def master(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster with two workers."""
    if not request.config.getoption("--interop"):
        pytest.skip("runs a Spark cluster: with --interop")
    folder = tmp_path_factory.mktemp("standalone")
    nowhere = ("--host", "127.0.0.1", "--webui-port", "0")
    with daemon(folder / "master.log", "org.apache.spark.deploy.master.Master", *nowhere, "--port", "0") as log:
        address = wait_for_line(log, r"(spark://127\.0\.0\.1:\d+)")
        worker = ("org.apache.spark.deploy.worker.Worker", *nowhere, "-c", "1", "-m", "1g", "-d")
        with (
            daemon(folder / "worker-1.log", *worker, str(folder / "worker-1"), address) as first,
            daemon(folder / "worker-2.log", *worker, str(folder / "worker-2"), address) as second,
        ):
            for worker_log in (first, second):
                wait_for_line(worker_log, r"Successfully registered with master (\S+)")
            yield address


@pytest.mark.timeout(300)
def test_batch_stream_and_exactly_once_on_a_standalone_cluster(master: str, cluster: Cluster, tmp_path: Path) -> None:
    numbers = [str(n).encode() for n in range(400)]
    source = cluster.topic([Sent(value, partition=n % 4) for n, value in enumerate(numbers)], 4)
    target, once = cluster.topic(partitions=2), cluster.topic(partitions=2)
    shipped = tmp_path / "ottla.tar.gz"
    with tarfile.open(shipped, "w:gz") as archive:
        for package in ("ottla", "pyspark_ottla"):
            archive.add(Path(ottla.__file__).parents[1] / package, package)
    (tmp_path / "job.py").write_text(JOB)
    command = [str(spark_home() / "bin" / "spark-submit"), "--master", master, "--executor-memory", "600m"]
    command += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
    for role in ("driver", "executor"):
        command += ["--conf", f"spark.{role}.extraJavaOptions={JAVA}"]
    command += ["--archives", f"{shipped}#shipped", "--conf", "spark.executorEnv.PYTHONPATH=shipped"]
    command += [str(tmp_path / "job.py"), cluster.servers, source, target, once, str(tmp_path / "checkpoints")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env=environment(), cwd=tmp_path
    )
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if "\tat " not in line)[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    # Both workers took part, and ran the package that was shipped to them.
    assert {name for folder, _ in report["places"] for name in Path(folder).parts if name.startswith("worker-")} == {
        "worker-1",
        "worker-2",
    }
    assert all(Path(module) != Path(ottla.__file__).resolve() for _, module in report["places"])
    assert report["total"] == sum(range(400))
    assert [sum(batches) for batches in report["batches"]] == [400, 400]
    assert all(len(batches) > 2 for batches in report["batches"])
    for topic in (target, once):
        assert sorted(record.value or b"" for record in cluster.records(topic, committed=True)) == sorted(numbers)


@pytest.mark.timeout(300)
def test_a_pipeline_on_a_standalone_cluster(master: str, cluster: Cluster, tmp_path: Path) -> None:
    source = cluster.topic(orders(0, 100), 2)
    shop = write_shop(cluster, tmp_path, source)
    confs = ["spark.driver.host=127.0.0.1", "spark.executor.memory=600m"]
    confs += [f"spark.{role}.extraJavaOptions={JAVA}" for role in ("driver", "executor")]
    options = [word for conf in confs for word in ("--conf", conf)]
    with running(str(shop), "--master", master, "--json", *options) as process:
        shown, errors = process.communicate(timeout=250)
        assert (process.returncode, errors) == (0, "")
    rows_out = {name: flow["rows_out"] for name, flow in flows(shown).items()}
    assert rows_out == {"bronze": 100, "silver": 100, "quarantine": 0, "gold": 3, "to_topic": 50}
    assert len(cluster.records(f"{source}-large", committed=True)) == 50
