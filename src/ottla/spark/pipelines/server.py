"""Spark Connect server of a run: one started by this process, or an external one.

Pipelines require Spark Connect. A server of this process ends with it (Java exits when its standard input is closed, even after
`kill -9`), listens on the loopback interface with a token, and may have any master: local, or a cluster.
"""

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ottla.spark.pipelines.project import DATA, InvalidProject, read_confs, static_confs
from ottla.spark.session import session_builder, stop_session

_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_CONNECT = "SPARK_CONNECT_MODE_ENABLED"


def log_file(root: Path) -> Path:
    """Return the path of Spark's own log."""
    return root / DATA / "spark.log"


@contextlib.contextmanager
def connect_server(root: Path, master: str | None, confs: Mapping[str, str]) -> Iterator[str]:
    """Start a Connect server for the project in `root`, yield its address, and stop it.

    master  None for the one in conf/spark-defaults.conf, by default all local cores
    confs   Spark settings that override those of the project

    Raises JavaMissing, and InvalidProject if Spark does not start.
    """
    written = read_confs(root)
    log = log_file(root)
    log.parent.mkdir(parents=True, exist_ok=True)
    changed = {_TOKEN: uuid.uuid4().hex, "SPARK_CONF_DIR": str(root / "conf")}
    if not written:
        del changed["SPARK_CONF_DIR"]
    with _environment(changed):
        builder = session_builder(root.name)
        settings = {**static_confs(root), "spark.ui.showConsoleProgress": "false"}
        for name in set(written) & set(settings):
            settings[name] = written[name]
        settings |= confs
        if "derby.stream.error.file" not in settings["spark.driver.extraJavaOptions"]:
            # Derby would otherwise write derby.log to the working directory.
            settings["spark.driver.extraJavaOptions"] += f" -Dderby.stream.error.file={log.with_name('derby.log')}"
        if master or not (set(written) | set(confs)) & {"spark.master"}:
            builder = builder.master(master or "local[*]")
        if (master or settings.get("spark.master", written.get("spark.master", "local"))).startswith("local"):
            settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **settings}
        settings |= {
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        with _stderr_into(log):
            try:
                spark = builder.getOrCreate()
            except PySparkException as error:
                raise InvalidProject(f"Spark did not start: {error}; see its log {log}") from None
        try:
            with _environment({_CONNECT: "1"}):
                yield f"sc://localhost:{_port(spark)}"
        finally:
            with _stderr_into(log):
                stop_session(spark)


def _port(spark: SparkSession) -> int:
    """Return the port that the Connect plugin bound."""
    java: Any = spark._jvm
    service = getattr(java, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())


@contextlib.contextmanager
def open_session(address: str) -> Iterator[SparkSession]:
    """Yield a new session on a Connect server, and stop it."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    # While this is set, PySpark's functions and columns use Connect, in definition files too.
    with _environment({_CONNECT: "1"}):
        spark: Any = ConnectSession.builder.remote(address).create()
        try:
            yield spark
        finally:
            with contextlib.suppress(PySparkException):
                spark.stop()


@contextlib.contextmanager
def _environment(changed: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """Redirect standard error of this process and its new children to a file: Java logs there."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
