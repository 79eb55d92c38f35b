"""SQL over Delta tables, for an interpreter that has Spark 4.2, or DuckDB with its extension for Delta, and nothing of Ottla.

    python delta_sql.py spark JARS < STATEMENTS > ROWS
    python delta_sql.py duckdb < STATEMENTS > ROWS

STATEMENTS is a JSON list of texts; ROWS has the rows of each, lists of texts. {table:PATH} is a table in either dialect.
"""

import json
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def spark(jars: str) -> Callable[[str], list[Any]]:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")

    def run(statement: str) -> list[Any]:
        return session.sql(re.sub(r"\{table:(.*?)\}", r"delta.`\1`", statement)).collect()

    return run


def duckdb() -> Callable[[str], list[Any]]:
    import duckdb as engine

    package = import_module("duckdb_extension_delta")
    (extension,) = Path(str(package.__file__)).parent.rglob("delta.duckdb_extension")
    connection = engine.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"LOAD '{extension}'")

    def run(statement: str) -> list[Any]:
        return connection.execute(re.sub(r"\{table:(.*?)\}", r"delta_scan('\1')", statement)).fetchall()

    return run


def main(engine: str, jars: str = "") -> None:
    run = spark(jars) if engine == "spark" else duckdb()
    rows = [[[str(value) for value in row] for row in run(statement)] for statement in json.load(sys.stdin)]
    print(json.dumps(rows))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
