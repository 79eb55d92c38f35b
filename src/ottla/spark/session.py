"""A Spark session that is set up for this source: Java found, the workers' Python, the settings that matter; and its end."""

import os
import sys

from pyspark.sql import SparkSession

from ottla.spark import SESSION_CONFS
from ottla.spark.java import ensure_java


def session_builder(name: str) -> "SparkSession.Builder":
    """A builder with SESSION_CONFS and Java taken care of; workers run this interpreter unless PYSPARK_PYTHON says otherwise.

    Raises JavaMissing.
    """
    ensure_java()
    # Spark would start "python3" from the PATH, which is another one where the environment is not activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    for key, value in SESSION_CONFS.items():
        builder = builder.config(key, value)
    return builder


def stop_session(spark: SparkSession) -> None:
    """Stop a session and wait until the Java that it started is gone: `spark.stop()` leaves it until Python ends."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        process.stdin.close()
        process.wait(30)
