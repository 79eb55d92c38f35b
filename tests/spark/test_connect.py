"""Spark Connect: batch and stream, read and write, through a Connect server that is another program's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import Cluster, Sent

CLIENT = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
from ottla.spark.monitoring import QueryFigures
from ottla.spark.pipelines.server import connect_server, open_session

servers, source, target, folder = sys.argv[1:]
java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
quick = {"spark.driver.extraJavaOptions": java, "spark.sql.catalogImplementation": "in-memory"}


def reader(reading):
    given = reading.format("ottla").option("kafka.bootstrap.servers", servers)
    return given.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40)


with connect_server(Path(folder), "local[2]", quick) as address, open_session(address) as spark:
    kind = type(spark).__module__
    rows = spark.createDataFrame([("b", "batch")], "key string, value string")
    rows.write.format("ottla").option("kafka.bootstrap.servers", servers).option("topic", target).mode("append").save()
    batch = spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", source).load()
    total = batch.select(F.sum(F.col("value").cast("string").cast("int"))).first()[0]
    figures = QueryFigures()
    spark.streams.addListener(figures)
    query = (
        reader(spark.readStream).option("subscribe", source).load().select("key", "value")
        .writeStream.format("ottla").queryName("copy")
        .option("kafka.bootstrap.servers", servers).option("topic", target).option("exactlyOnce", "true")
        .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    ended = figures.wait_ended({"copy"}, 10)
    (figure,) = figures.figures()
    told = [figure.batches, figure.rows_in, figure.rows_out, figure.lag]
    print(json.dumps({"kind": kind, "total": total, "ended": ended, "told": told}))
"""


@pytest.mark.usefixtures("a_spark_of_its_own")
@pytest.mark.timeout(120)
def test_batch_and_stream_through_spark_connect(cluster: Cluster, tmp_path: Path) -> None:
    source, target = cluster.topic([Sent(str(n).encode()) for n in range(100)]), cluster.topic()
    command = [sys.executable, "-W", "ignore", "-c", CLIENT, cluster.servers, source, target, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report == {
        "kind": "pyspark.sql.connect.session",
        "total": sum(range(100)),
        "ended": True,
        "told": [3, 100, 100, 0],
    }
    values = [record.value for record in cluster.records(target, committed=True)]
    assert sorted(values, key=lambda value: value or b"") == sorted([b"batch", *(str(n).encode() for n in range(100))])
