"""Template of `ottla pipeline init`: a project that runs without changes, also with `spark-pipelines run`.

Orders are read as JSON from a topic. Bronze has the unchanged records, silver the valid orders, a quarantine the others; gold
has totals by customer, and large orders are written to a topic exactly once. With a table in place of that topic, the orders
and the quarantine are Delta tables, and there is nothing else. Paths are relative to the project's folder, so
that it can be moved and committed; it includes sample data.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.spark.pipelines.project import DATA, TABLES, TEMPLATE_CONFS, InvalidProject
from ottla.spark.releases import HAS_ADMISSION_CONTROL

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,100}")

_SPEC: Final = """\
# Read by `ottla pipeline run`. Paths are relative to this file; `spark-pipelines run` needs an absolute `storage`,
# file:///... .
name: {name}
storage: data/checkpoints
database: {database}
configuration:
  # Settings of queries only. Static Spark settings belong in conf/spark-defaults.conf: here they would make flows fail.
  {app}.bootstrap.servers: "{servers}"
  {app}.source: "{source}"
  {app}.{results}
  spark.sql.shuffle.partitions: "2"
libraries:
  - glob:
      include: transformations/**
"""

_CONF: Final = """\
# Settings that Spark is started with: a persistent catalog, and settings of Ottla's source and sink.
{confs}
"""

_BRONZE: Final = '''\
"""Bronze: the records of the topic, unchanged."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(comment="Unchanged records.", format="parquet")
def bronze() -> DataFrame:
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", spark.conf.get("{app}.bootstrap.servers"))
        .option("subscribe", spark.conf.get("{app}.source"))
        .option("startingOffsets", "earliest"){limit}
        .option("groupOffsets", "{name}")  # `ottla consumer-groups --describe --group {name}` shows its lag
        .load()
    )
'''

_LIMIT: Final = '\n        .option("maxOffsetsPerTrigger", 100000)'

_RULES: Final = '''\
RULES = {{
    "has a number": "number IS NOT NULL",
    "has a customer": "customer IS NOT NULL",
    "amount is positive": "amount > 0",
}}


def orders(records: DataFrame) -> DataFrame:
    """One row per record; invalid JSON has NULL columns."""
    order = F.from_json(F.col("value").cast("string"), "number bigint, customer string, amount double")
    return records.select(order.alias("order"), F.col("value").cast("string").alias("record"), "timestamp").select(
        "order.*", "timestamp", "record"
    )
'''

_SILVER: Final = f'''\
"""Silver: orders that pass the rules; the others go to the quarantine, with the names of the rules they violate.

One flow per table: Spark loses rows if two flows write to one. Use `select` instead of `drop` or `withColumn`: these are
resolved at once, when the table does not exist yet.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.spark.pipelines import expect, failed, passed

spark = SparkSession.active()

{_RULES}

@dp.table(comment="Orders that pass the rules.", format="parquet")
def silver() -> DataFrame:
    good = passed(expect(orders(spark.readStream.table("bronze")), RULES))
    return good.select("number", "customer", "amount", "timestamp")


@dp.table(comment="Records that violate a rule.", format="parquet")
def quarantine() -> DataFrame:
    return failed(expect(orders(spark.readStream.table("bronze")), RULES))
'''

_GOLD: Final = '''\
"""Gold: totals by customer, recomputed in each run."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


def by_customer(orders: DataFrame) -> DataFrame:
    return orders.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


@dp.materialized_view(comment="Orders by customer.")
def gold() -> DataFrame:
    return by_customer(spark.read.table("silver"))
'''

_SINK: Final = '''\
"""Flow into a topic: large orders, exactly once."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


def large(orders: DataFrame) -> DataFrame:
    return orders.where("amount >= 100").select(
        F.col("customer").alias("key"), F.to_json(F.struct("number", "customer", "amount")).alias("value")
    )


dp.create_sink(
    "large_orders",
    "ottla",
    {{
        "kafka.bootstrap.servers": spark.conf.get("{app}.bootstrap.servers"),
        "topic": spark.conf.get("{app}.target"),
        "exactlyOnce": "true",
        "sinkId": "{name}",
    }},
)


@dp.append_flow(target="large_orders", name="to_topic")
def to_topic() -> DataFrame:
    return large(spark.readStream.table("silver"))
'''

_TABLES: Final = f'''\
"""Delta tables of the topic, each record once: orders that pass the rules, and a quarantine for the others.

Any tool that reads Delta can read them: deltalake, DuckDB, Polars, Spark. `ottla pipeline status` shows how far they are behind
the topic.
"""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ottla.spark.pipelines import expect, failed, passed

spark = SparkSession.active()

{_RULES}

def records() -> DataFrame:
    return (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", spark.conf.get("{{app}}.bootstrap.servers"))
        .option("subscribe", spark.conf.get("{{app}}.source"))
        .option("startingOffsets", "earliest"){{limit}}
        .load()
    )


def location(table: str) -> str:
    """Path or URL of a table; a path must be absolute, because executors have working directories of their own."""
    folder = spark.conf.get("{{app}}.tables")
    return f"{{{{folder}}}}/{{{{table}}}}" if "://" in folder else str(Path(folder).absolute() / table)


# mergeSchema adds new columns to a table. "partitionBy": "customer" would partition a new one.
dp.create_sink("orders_table", "ottla-delta", {{{{"path": location("orders"), "mergeSchema": "true"}}}})
dp.create_sink("quarantine_table", "ottla-delta", {{{{"path": location("quarantine"), "mergeSchema": "true"}}}})


@dp.append_flow(target="orders_table", name="to_orders")
def to_orders() -> DataFrame:
    return passed(expect(orders(records()), RULES)).select("number", "customer", "amount", "timestamp")


@dp.append_flow(target="quarantine_table", name="to_quarantine")
def to_quarantine() -> DataFrame:
    return failed(expect(orders(records()), RULES))
'''

_TEST: Final = '''\
"""Tests of the functions in the definition files, without a broker or a run: `pytest`."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.spark.pipelines import definitions, expect, failed, passed
from ottla.spark.session import session_builder, stop_session

PROJECT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = session_builder("tests").master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    stop_session(session)


def test_rules_and_totals(spark: SparkSession) -> None:
    files = definitions(PROJECT, spark)
    rules = files["{rules}"]
    records = [
        b\'{{"number": 1, "customer": "ada", "amount": 120.0}}\',
        b\'{{"number": 2, "customer": "ada", "amount": 30.0}}\',
        b\'{{"number": 3, "customer": "bob", "amount": -1.0}}\',
        b"not JSON",
    ]
    rows = spark.createDataFrame([(record, datetime.now()) for record in records], "value binary, timestamp timestamp")
    checked = expect(rules.orders(rows), rules.RULES)
    good = passed(checked)
    assert [row["number"] for row in good.orderBy("number").collect()] == [1, 2]
    broken = {{row["record"]: row["broken_rules"] for row in failed(checked).collect()}}
    assert broken["not JSON"] == list(rules.RULES)
    assert broken[records[2].decode()] == ["amount is positive"]
{results_test}'''

_TEST_RESULTS: Final = """\
    assert [tuple(row) for row in files["gold"].by_customer(good).collect()] == [("ada", 2, 150.0)]
    assert [row["key"] for row in files["to_topic"].large(good).collect()] == ["ada"]
"""

_SAMPLE: Final = """\
{"number": 1, "customer": "ada", "amount": 120.0}
{"number": 2, "customer": "bob", "amount": -7.0}
{"number": 3, "customer": "ada", "amount": 30.0}
{"number": 4, "customer": "eve", "amount": 250.5}
{"number": 5, "customer": "bob", "amount": 12.0}
not JSON
"""

SAMPLE: Final = "sample/orders.jsonl"
"""Sample records for the source topic, one per line: two of them violate the rules."""

_IGNORE: Final = "data/\n__pycache__/\n.pytest_cache/\nspark-warehouse/\n"

_COMMON: Final = {
    "spark-pipeline.yml": _SPEC,
    "conf/spark-defaults.conf": _CONF,
    "tests/test_transformations.py": _TEST,
    SAMPLE: _SAMPLE,
    ".gitignore": _IGNORE,
}

FILES: Final[Mapping[str, str]] = {
    **_COMMON,
    "transformations/bronze.py": _BRONZE,
    "transformations/silver.py": _SILVER,
    "transformations/gold.py": _GOLD,
    "transformations/to_topic.py": _SINK,
}
TABLE_FILES: Final[Mapping[str, str]] = {**_COMMON, "transformations/tables.py": _TABLES}
"""Files of a project with Delta tables."""


def write_project(root: Path, servers: str, source: str, target: str) -> list[str]:
    """Write a project into the new folder `root`; return the paths of its files relative to it. Raises InvalidProject.

    servers         HOST:PORT of a broker, several separated by commas
    source, target  topics of the orders and of the large orders
    """
    results = {"results": f'target: "{target}"', "rules": "silver", "results_test": _TEST_RESULTS}
    return _write(root, FILES, {"servers": servers, "source": source, **results})


def write_table_project(root: Path, servers: str, source: str) -> list[str]:
    """Write a project with Delta tables of the topic `source`, as `write_project` does. Raises InvalidProject."""
    results = {"results": f"tables: {TABLES}", "rules": "tables", "results_test": ""}
    return _write(root, TABLE_FILES, {"servers": servers, "source": source, **results})


def _write(root: Path, files: Mapping[str, str], words: dict[str, str]) -> list[str]:
    if not _NAME.fullmatch(root.name):
        raise InvalidProject(
            f"a project name consists of letters, digits, - and _, and begins with a letter: not {root.name!r}"
        )
    if root.exists():
        raise InvalidProject(f"{root} already exists")
    confs = "\n".join(f"{name} {value}" for name, value in TEMPLATE_CONFS.items())
    words |= {"name": root.name, "database": root.name.replace("-", "_").lower(), "confs": confs}
    words |= {"app": root.name.replace("-", "_"), "limit": _LIMIT if HAS_ADMISSION_CONTROL else ""}
    try:
        for name, text in files.items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text if text in (_IGNORE, _SAMPLE) else text.format(**words), encoding="utf-8")
        (root / DATA).mkdir()
    except OSError as error:
        raise InvalidProject(f"cannot write {error.filename}: {error.strerror}") from None
    return list(files)
