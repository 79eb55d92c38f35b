"""Spark session for this source: Java runtime, Python of the workers, recommended settings; and shutdown."""

import os
import sys
import sysconfig
from pathlib import Path
from typing import Final

from ottla.spark import releases  # noqa: F401  (first: it refuses a PySpark that is missing or too old)

import pyspark  # isort: skip
from pyspark.sql import SparkSession  # isort: skip

from ottla.spark import SESSION_CONFS
from ottla.spark.java import ensure_java

_LAUNCHER: Final = "ottla-spark-python"


def session_builder(name: str) -> "SparkSession.Builder":
    """Return a session builder with SESSION_CONFS, after `ensure_java`; workers run this interpreter unless PYSPARK_PYTHON is
    set.

    Raises JavaMissing.
    """
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", str(_interpreter()))
    builder = SparkSession.builder.appName(name)
    for key, value in SESSION_CONFS.items():
        builder = builder.config(key, value)
    return builder


def _interpreter() -> Path:
    """Return the interpreter for Spark's Python processes.

    Spark's default is "python3" from the PATH, which is another interpreter if the environment is not activated. The result is
    this interpreter, or its launcher `ottla-spark-python` if that, Ottla and PySpark are installed in the same environment: the
    path is then valid on every host with that environment.
    """
    here = Path(sys.executable)
    quick = here.with_name(_LAUNCHER)
    beside = here.with_name("python3")
    installed = Path(pyspark.__file__).is_relative_to(sysconfig.get_path("purelib"))
    if installed and os.access(quick, os.X_OK) and beside.exists() and beside.samefile(here):
        return quick
    return here


def stop_session(spark: SparkSession) -> None:
    """Stop a session and the Java process that it started, which `spark.stop()` leaves running until Python exits."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        process.stdin.close()
        process.wait(30)
