"""A Spark session that is set up for this source: Java found, the workers' Python, the settings that matter; and its end."""

import os
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from ottla.spark import SESSION_CONFS
from ottla.spark.java import ensure_java

_LAUNCHER: Final = "ottla-spark-python"


def session_builder(name: str) -> "SparkSession.Builder":
    """A builder with SESSION_CONFS and Java taken care of; workers run this interpreter unless PYSPARK_PYTHON says otherwise.

    Raises JavaMissing.
    """
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", str(_interpreter()))
    builder = SparkSession.builder.appName(name)
    for key, value in SESSION_CONFS.items():
        builder = builder.config(key, value)
    return builder


def _interpreter() -> Path:
    """Return the interpreter for Spark's Python processes. Spark itself would start "python3" from the PATH, which is another
    one if the environment is not activated.

    It is this interpreter, by way of `ottla-spark-python` where both were installed side by side and PySpark with them:
    that is the same on every host that has the same environment.
    """
    here = Path(sys.executable)
    quick = here.with_name(_LAUNCHER)
    beside = here.with_name("python3")
    installed = Path(pyspark.__file__).is_relative_to(sysconfig.get_path("purelib"))
    if installed and os.access(quick, os.X_OK) and beside.exists() and beside.samefile(here):
        return quick
    return here


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
